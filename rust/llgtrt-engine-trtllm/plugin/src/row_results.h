// What was measured of rows, kept until the token sampled from them is reported.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <unordered_map>

#include "llgtrt_trtllm.h"
#include "pool.h"

namespace llgtrt {

/// Results of one step, written by the device.
struct StepResults {
  /// The mass removed from each of the step's rows; null if nobody asked.
  std::shared_ptr<Buffer> removed;
  Marker marker;
};

/// Written by the executor's thread, read by whoever holds the engine.
class RowResults {
 public:
  struct Entry {
    size_t token_count = 0;
    std::shared_ptr<StepResults> step;
    /// Of the row in `step->removed`; negative: no mass was asked for.
    int64_t index = -1;
    /// The row as the model made it; null if it was not asked for.
    std::shared_ptr<Buffer> logits;
    int32_t dtype = 0;
    int32_t columns = 0;
  };

  /// A second entry of the same count replaces the first.
  void put(uint64_t request_id, Entry entry);

  /// Takes the entry for a token and drops the earlier ones. False: there is none. What the result points to is
  /// valid until the next call.
  bool take(uint64_t request_id, size_t token_count, llgtrt_trtllm_row_result& result);

  void forget(uint64_t request_id);

 private:
  std::mutex mutex_;
  std::unordered_map<uint64_t, std::deque<Entry>> entries_;
  Entry taken_;
};

}  // namespace llgtrt
