#include "kv_cache.h"

#include "model.h"

namespace standin {

KvCache::KvCache(Settings const& settings, size_t event_buffer)
    : block_tokens_(static_cast<size_t>(settings.tokens_per_block)),
      capacity_(static_cast<size_t>(settings.cache_blocks)),
      window_(settings.max_seq_len),
      event_buffer_(event_buffer) {
  tell(te::KVCacheCreatedData{{settings.cache_blocks, 0}});
}

int32_t KvCache::look_up(te::VecTokens const& tokens, uint64_t salt, te::Request const& request) {
  auto const lora = request.getLoraConfig();
  auto const table = request.getPromptTuningConfig();
  auto const extra = table ? table->getInputTokenExtraIds() : std::nullopt;
  int32_t reused = 0;
  bool found = true;
  uint64_t hash = salt;
  std::optional<uint64_t> parent;
  te::KVCacheStoredData stored;
  for (size_t block = 0; (block + 1) * block_tokens_ < tokens.size(); ++block) {
    te::KVCacheStoredBlockData data{};
    for (size_t i = block * block_tokens_; i < (block + 1) * block_tokens_; ++i) {
      hash = mix(hash, static_cast<uint64_t>(tokens[i]));
      data.tokens.push_back({tokens[i], extra ? (*extra)[i] : 0});
    }
    found = found && blocks_.count(hash) > 0;
    if (found) {
      ++reused;
    } else if (blocks_.count(hash) == 0) {
      blocks_[hash] = {parent, 0, ++order_};
      if (parent) ++blocks_[*parent].children;
      data.blockHash = hash;
      if (lora) data.loraId = lora->getTaskId();
      if (stored.blocks.empty()) stored.parentHash = parent;
      stored.blocks.push_back(std::move(data));
    }
    parent = hash;
  }
  if (!stored.blocks.empty()) tell(std::move(stored));
  evict();
  return reused;
}

/// The oldest of the blocks that none stands on.
void KvCache::evict() {
  while (capacity_ > 0 && blocks_.size() > capacity_) {
    auto oldest = blocks_.end();
    for (auto block = blocks_.begin(); block != blocks_.end(); ++block)
      if (block->second.children == 0 && (oldest == blocks_.end() || block->second.order < oldest->second.order))
        oldest = block;
    if (oldest->second.parent) --blocks_[*oldest->second.parent].children;
    tell(te::KVCacheRemovedData{{oldest->first}});
    blocks_.erase(oldest);
  }
}

void KvCache::tell(te::KVCacheEventData data) {
  if (event_buffer_ == 0) return;
  std::lock_guard const lock(mutex_);
  events_.push_back({next_event_++, std::move(data), window_, std::nullopt});
  while (events_.size() > event_buffer_) events_.pop_front();
  changed_.notify_all();
}

std::deque<te::KVCacheEvent> KvCache::take(std::optional<std::chrono::milliseconds> timeout) {
  std::unique_lock lock(mutex_);
  auto const ready = [this] { return !events_.empty() || stopped_; };
  if (timeout)
    changed_.wait_for(lock, *timeout, ready);
  else
    changed_.wait(lock, ready);
  return std::exchange(events_, {});
}

void KvCache::stop() {
  std::lock_guard const lock(mutex_);
  stopped_ = true;
  changed_.notify_all();
}

}  // namespace standin
