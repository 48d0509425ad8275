#include "lora.h"

namespace llgtrt {

std::optional<te::LoraConfig> to_lora(llgtrt_trtllm_request const& request) {
  if (request.has_lora == 0) return std::nullopt;
  auto weights = to_tensor(request.lora_weights);
  auto config = to_tensor(request.lora_config);
  if (weights.has_value() != config.has_value())
    throw InvalidArgument("a LoRA adapter has weights and config, or neither");
  return te::LoraConfig(request.lora_task, std::move(weights), std::move(config));
}

}  // namespace llgtrt
