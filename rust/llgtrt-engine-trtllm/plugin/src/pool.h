// Pinned buffers that go back to where they came from: allocating one takes as long as a step, and freeing one waits for the
// device.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "device.h"

namespace llgtrt {

/// Any thread may take a buffer and any other drop it. The device may still write to one that was dropped: its next user
/// writes from the same stream, later.
class PinnedPool : public std::enable_shared_from_this<PinnedPool> {
 public:
  /// A buffer of at least `bytes`, with whatever is in it.
  std::shared_ptr<Buffer> take(size_t bytes) {
    std::unique_ptr<Buffer> buffer;
    {
      std::lock_guard const lock(mutex_);
      if (!free_.empty()) {
        buffer = std::move(free_.back());
        free_.pop_back();
      }
    }
    if (!buffer) buffer = std::make_unique<Buffer>(Place::kPinned);
    buffer->reserve(bytes);
    return {buffer.release(), [pool = shared_from_this()](Buffer* used) { pool->give_back(used); }};
  }

 private:
  void give_back(Buffer* buffer) {
    std::lock_guard const lock(mutex_);
    free_.emplace_back(buffer);
  }

  std::mutex mutex_;
  std::vector<std::unique_ptr<Buffer>> free_;
};

}  // namespace llgtrt
