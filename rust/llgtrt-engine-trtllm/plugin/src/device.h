// Memory, events and copies of the device that the logits are on: CUDA's, or the host's own for the stand-in.
//
// Nothing here waits for the device but Marker::wait, and CUDA itself where pinned memory is allocated: Buffer::reserve, when
// it grows.
#pragma once

#include "tensorrt_llm/executor/executor.h"

#include <cstddef>

namespace llgtrt {

/// The queue of work behind a stream of the executor.
void* raw_stream(tensorrt_llm::executor::StreamPtr const& stream);

/// The calling thread's device. The executor's constructor sets it, and the executor's own thread has the same one.
int current_device();

/// Makes it the calling thread's. A thread that works with device 0 because nobody told it otherwise would take memory there.
void use_device(int device);

/// Throws with the reason if the calling thread's device is lost: after an error such as an illegal memory access every
/// call to it fails for as long as the process lives.
void check_device();

enum class Place { kDevice, kPinned };

/// Memory that only grows, and is freed by a thread that uses the same device. The device's own is allocated in the order of the
/// work on a stream, always the same one.
class Buffer {
 public:
  explicit Buffer(Place place) : place_(place) {}
  ~Buffer();
  Buffer(Buffer const&) = delete;
  Buffer& operator=(Buffer const&) = delete;

  /// At least `bytes`, zeroed when new. Old contents are lost if it grew.
  void* reserve(size_t bytes, void* stream = nullptr);

  void* data() const { return data_; }

 private:
  void release() noexcept;

  Place place_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

/// A point in the queue of work that can be waited for. It belongs to the device of the thread that records it first:
/// whoever makes a Marker need not know the device yet.
class Marker {
 public:
  Marker() = default;
  ~Marker();
  Marker(Marker const&) = delete;
  Marker& operator=(Marker const&) = delete;

  void record(void* stream);

  /// Whether the work before the mark is done; true if nothing was recorded.
  bool is_done() const;

  /// Blocks until it is.
  void wait() const;

 private:
  void* event_ = nullptr;
};

void copy_to_device(void* target, void const* source, size_t bytes, void* stream);
void copy_to_host(void* target, void const* source, size_t bytes, void* stream);

}  // namespace llgtrt
