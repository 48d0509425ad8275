#include "status.h"

namespace llgtrt {
namespace {

thread_local std::string last;

}  // namespace

void set_last_error(std::string text) noexcept { last = std::move(text); }

char const* last_error() noexcept { return last.c_str(); }

}  // namespace llgtrt
