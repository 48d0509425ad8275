// What an error of the executor means. It has texts only, so this is the one place that reads them.
#pragma once

#include <string>

#include "llgtrt_trtllm.h"

namespace llgtrt {

llgtrt_trtllm_error_kind kind_of(std::string const& error);

}  // namespace llgtrt
