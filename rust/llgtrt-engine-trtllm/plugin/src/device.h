// Memory and the order of work on the device that holds the logits: CUDA, or the host in the tests.
#pragma once

#include <cstddef>
#include <memory>

#include "tensorrt_llm/executor/types.h"

namespace llgtrt {

/// The device's queue behind the executor's stream; null on a host.
void* raw_stream(tensorrt_llm::executor::StreamPtr const& stream);

enum class Place {
  /// The device's own memory.
  kDevice,
  /// Host memory that the device copies from and to without help.
  kPinned,
};

/// Memory that only grows, freed with the object.
class Buffer {
 public:
  explicit Buffer(Place place) : place_(place) {}
  ~Buffer();
  Buffer(Buffer const&) = delete;
  Buffer& operator=(Buffer const&) = delete;

  /// At least `bytes`, zeroed when new. Old contents are lost if it grew.
  void* reserve(size_t bytes);

  void* data() const { return data_; }

 private:
  void release() noexcept;

  Place place_;
  void* data_ = nullptr;
  size_t size_ = 0;
};

/// A point in the queue of work that can be waited for.
class Marker {
 public:
  Marker();
  ~Marker();
  Marker(Marker const&) = delete;
  Marker& operator=(Marker const&) = delete;

  void record(void* stream);

  /// Blocks until the work before the mark is done; at once if nothing was recorded.
  void wait();

 private:
  void* event_ = nullptr;
  bool recorded_ = false;
};

void copy_to_device(void* target, void const* source, size_t bytes, void* stream);
void copy_to_host(void* target, void const* source, size_t bytes, void* stream);

}  // namespace llgtrt
