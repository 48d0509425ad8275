// Which blocks of tokens are cached, and what is told of it: KVCacheEventManager of cpp/tensorrt_llm/batch_manager
// (kvCacheEventManager.cpp), whose buffer forgets the oldest events, and the tree of reusable blocks, which loses leaves first.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>

#include "settings.h"
#include "tensorrt_llm/executor/executor.h"

namespace standin {

class KvCache {
 public:
  KvCache(Settings const& settings, size_t event_buffer);

  /// Counts the blocks at the beginning of a prompt that are cached, and caches the others. The last token is evaluated in any
  /// case, for its logits.
  int32_t look_up(te::VecTokens const& tokens, uint64_t salt, te::Request const& request);
  /// Hands over what has happened since the last call; waits for it.
  std::deque<te::KVCacheEvent> take(std::optional<std::chrono::milliseconds> timeout);
  bool tells() const { return event_buffer_ > 0; }
  /// Wakes who waits.
  void stop();

 private:
  struct Block {
    std::optional<uint64_t> parent;
    int32_t children = 0;
    uint64_t order = 0;
  };

  void tell(te::KVCacheEventData data);
  void evict();

  size_t block_tokens_;
  size_t capacity_;
  int32_t window_;
  size_t event_buffer_;
  std::map<uint64_t, Block> blocks_;
  uint64_t order_ = 0;
  uint64_t next_event_ = 0;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<te::KVCacheEvent> events_;
  bool stopped_ = false;
};

}  // namespace standin
