// LoRA adapters of requests.
#pragma once

#include "plain.h"

namespace llgtrt {

/// The adapter of a request, with its weights if they are sent along.
std::optional<te::LoraConfig> to_lora(llgtrt_trtllm_request const& request);

/// Whether an error says that the adapter fell out of the cache, so that the weights have to be sent again.
bool is_lora_miss(std::string const& error);

}  // namespace llgtrt
