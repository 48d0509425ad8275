#include "errors.h"

namespace llgtrt {

llgtrt_trtllm_error_kind kind_of(std::string const& error) {
  auto const has = [&error](char const* part) { return error.find(part) != std::string::npos; };
  // PeftCacheManager::addRequestPeft (cpp/tensorrt_llm/batch_manager/peftCacheManager.cpp): "LoRA task 7 not found in cache.
  // Please send LoRA weights with request". The library's own test compares the whole text.
  if (has("LoRA task") && has("not found in cache")) return LLGTRT_ADAPTER_MISSING;
  // LoraCache (cpp/tensorrt_llm/runtime/loraCache.cpp)
  if (has("Cache is full. There are no done tasks to evict")) return LLGTRT_ADAPTER_CACHE_FULL;
  return LLGTRT_REQUEST_FAILED;
}

}  // namespace llgtrt
