#include "kv_events.h"

#include <algorithm>
#include <type_traits>
#include <variant>

namespace llgtrt {
namespace {

/// Later versions of the 1.2 line name the images of a block, and its salt.
template <class Block, class = void>
struct Extras {
  static bool any(Block const&) { return false; }
};

template <class Block>
struct Extras<Block, std::void_t<decltype(std::declval<Block const&>().mmKeys)>> {
  static bool any(Block const& block) { return !block.mmKeys.empty(); }
};

template <class Block, class = void>
struct Salt {
  static bool any(Block const&) { return false; }
};

template <class Block>
struct Salt<Block, std::void_t<decltype(std::declval<Block const&>().cacheSalt)>> {
  static bool any(Block const& block) { return block.cacheSalt.has_value(); }
};

template <class Block>
bool is_plain(Block const& block) {
  auto const foreign = [](auto const& token) { return token.tokenExtraId != 0; };
  return !block.loraId && !Extras<Block>::any(block) && !Salt<Block>::any(block) &&
         std::none_of(block.tokens.begin(), block.tokens.end(), foreign);
}

}  // namespace

KvEvents::KvEvents(te::Executor const& executor) {
  if (auto const manager = executor.getKVCacheEventManager()) manager_ = *manager;
}

std::vector<llgtrt_trtllm_kv_event> const& KvEvents::await(std::chrono::milliseconds timeout) {
  storage_.clear();
  plain_.clear();
  for (auto const& event : manager_->getLatestEvents(timeout)) plain_.push_back(convert(event));
  return plain_;
}

llgtrt_trtllm_kv_event KvEvents::convert(te::KVCacheEvent const& event) {
  llgtrt_trtllm_kv_event plain{};
  plain.struct_size = sizeof(plain);
  plain.number = event.eventId;
  plain.window = event.windowSize;
  auto& storage = storage_.emplace_back();
  if (std::holds_alternative<te::KVCacheCreatedData>(event.data)) {
    plain.kind = LLGTRT_KV_CREATED;
  } else if (auto const* stored = std::get_if<te::KVCacheStoredData>(&event.data)) {
    plain.kind = LLGTRT_KV_STORED;
    plain.has_parent = stored->parentHash ? 1 : 0;
    plain.parent = stored->parentHash.value_or(0);
    for (auto const& block : stored->blocks) {
      storage.hashes.push_back(block.blockHash);
      for (auto const& token : block.tokens) storage.tokens.push_back(token.tokenId);
      storage.ends.push_back(storage.tokens.size());
      storage.plain.push_back(is_plain(block) ? 1 : 0);
    }
  } else if (auto const* removed = std::get_if<te::KVCacheRemovedData>(&event.data)) {
    plain.kind = LLGTRT_KV_REMOVED;
    storage.hashes.assign(removed->blockHashes.begin(), removed->blockHashes.end());
  }
  plain.hashes = storage.hashes.data();
  plain.count = storage.hashes.size();
  plain.tokens = {sizeof(llgtrt_trtllm_lists), storage.tokens.data(), storage.ends.data(), storage.ends.size()};
  plain.plain = storage.plain.data();
  return plain;
}

}  // namespace llgtrt
