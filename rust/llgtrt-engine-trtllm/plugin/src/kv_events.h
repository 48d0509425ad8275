// What changes in the executor's KV cache, as plain structs.
#pragma once

#include <chrono>
#include <deque>
#include <memory>
#include <vector>

#include "plain.h"

namespace llgtrt {

/// Used by one thread, which need not be that of the engine.
class KvEvents {
 public:
  explicit KvEvents(te::Executor const& executor);

  /// Whether the executor tells of anything.
  bool are_told() const { return manager_ != nullptr; }

  /// Waits for events, at most so long. They live until the next call.
  std::vector<llgtrt_trtllm_kv_event> const& await(std::chrono::milliseconds timeout);

 private:
  /// What the plain struct of one event points to.
  struct Storage {
    std::vector<uint64_t> hashes;
    std::vector<int32_t> tokens;
    std::vector<size_t> ends;
    std::vector<uint8_t> plain;
  };

  llgtrt_trtllm_kv_event convert(te::KVCacheEvent const& event);

  std::shared_ptr<te::KVCacheEventManager> manager_;
  std::deque<Storage> storage_;
  std::vector<llgtrt_trtllm_kv_event> plain_;
};

}  // namespace llgtrt
