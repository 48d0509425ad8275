#include "lora.h"

#include <algorithm>
#include <cctype>

namespace llgtrt {

std::optional<te::LoraConfig> to_lora(llgtrt_trtllm_request const& request) {
  if (request.has_lora == 0) return std::nullopt;
  auto weights = to_tensor(request.lora_weights);
  auto config = to_tensor(request.lora_config);
  if (weights.has_value() != config.has_value())
    throw InvalidArgument("a LoRA adapter has weights and config, or neither");
  return te::LoraConfig(request.lora_task, std::move(weights), std::move(config));
}

bool is_lora_miss(std::string const& error) {
  std::string text = error;
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  auto const has = [&text](char const* part) { return text.find(part) != std::string::npos; };
  return has("lora") && (has("not found in cache") || has("please send"));
}

}  // namespace llgtrt
