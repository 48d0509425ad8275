#include "row_results.h"

#include <limits>

#include "plain.h"

namespace llgtrt {

void RowResults::put(uint64_t request_id, Entry entry) {
  std::lock_guard const lock(mutex_);
  auto& queue = entries_[request_id];
  if (!queue.empty() && queue.back().token_count == entry.token_count)
    queue.back() = std::move(entry);
  else
    queue.push_back(std::move(entry));
}

bool RowResults::take(uint64_t request_id, size_t token_count, llgtrt_trtllm_row_result& result) {
  {
    std::lock_guard const lock(mutex_);
    auto const found = entries_.find(request_id);
    if (found == entries_.end()) return false;
    auto& queue = found->second;
    while (!queue.empty() && queue.front().token_count < token_count) queue.pop_front();
    if (queue.empty() || queue.front().token_count != token_count) return false;
    taken_ = std::move(queue.front());
    queue.pop_front();
  }
  // Long done: the token that was sampled afterwards has arrived.
  taken_.step->marker.wait();
  result = {};
  result.struct_size = sizeof(result);
  result.removed_mass = taken_.index < 0 ? std::numeric_limits<float>::quiet_NaN()
                                         : static_cast<float const*>(taken_.step->removed->data())[taken_.index];
  result.logits = no_tensor();
  if (taken_.logits) {
    result.logits.data = taken_.logits->data();
    result.logits.dtype = taken_.dtype;
    result.logits.rank = 1;
    result.logits.shape[0] = taken_.columns;
  }
  return true;
}

void RowResults::forget(uint64_t request_id) {
  std::lock_guard const lock(mutex_);
  entries_.erase(request_id);
}

}  // namespace llgtrt
