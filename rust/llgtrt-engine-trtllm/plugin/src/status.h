// Failures as the C interface reports them: a status, and a text per thread.
#pragma once

#include <exception>
#include <stdexcept>
#include <string>

#include "llgtrt_trtllm.h"

namespace llgtrt {

/// The caller's argument is wrong.
class InvalidArgument : public std::invalid_argument {
 public:
  using std::invalid_argument::invalid_argument;
};

void set_last_error(std::string text) noexcept;
char const* last_error() noexcept;

/// Runs `body`; whatever it throws becomes a status. `otherwise` is the status of errors that are not the caller's.
template <class Body>
llgtrt_trtllm_status guard(llgtrt_trtllm_status otherwise, Body&& body) noexcept {
  try {
    return body();
  } catch (InvalidArgument const& error) {
    set_last_error(error.what());
    return LLGTRT_INVALID;
  } catch (std::exception const& error) {
    set_last_error(error.what());
    return otherwise;
  } catch (...) {
    set_last_error("an exception that is no std::exception");
    return otherwise;
  }
}

/// Checks a struct's size, by which both sides know that they mean the same struct.
template <class T>
T const& checked(T const* value, char const* name) {
  if (value == nullptr) throw InvalidArgument(std::string(name) + " is null");
  if (value->struct_size != sizeof(T))
    throw InvalidArgument(std::string(name) + " has " + std::to_string(value->struct_size) + " bytes, not " +
                          std::to_string(sizeof(T)));
  return *value;
}

}  // namespace llgtrt
