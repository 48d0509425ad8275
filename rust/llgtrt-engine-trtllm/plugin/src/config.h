// From llgtrt_trtllm_config to an ExecutorConfig.
#pragma once

#include "plain.h"

namespace llgtrt {

/// Everything but the logits post-processor.
te::ExecutorConfig to_executor_config(llgtrt_trtllm_config const& config);

}  // namespace llgtrt
