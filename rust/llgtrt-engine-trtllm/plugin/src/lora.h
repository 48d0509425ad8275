// LoRA adapters of requests.
#pragma once

#include "plain.h"

namespace llgtrt {

/// The adapter of a request, with its weights if they are sent along.
std::optional<te::LoraConfig> to_lora(llgtrt_trtllm_request const& request);

}  // namespace llgtrt
