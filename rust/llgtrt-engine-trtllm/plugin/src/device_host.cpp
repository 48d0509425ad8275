// device.h in the host's memory, where everything is done when the call returns.
#include <algorithm>
#include <cstring>
#include <new>

#include "device.h"

namespace llgtrt {

void* raw_stream(tensorrt_llm::executor::StreamPtr const& /*stream*/) { return nullptr; }

Buffer::~Buffer() { release(); }

void Buffer::release() noexcept {
  ::operator delete(data_);
  data_ = nullptr;
  size_ = 0;
}

void* Buffer::reserve(size_t bytes) {
  if (bytes <= size_) return data_;
  size_t const size = std::max(bytes, size_ * 2);
  release();
  data_ = ::operator new(size);
  std::memset(data_, 0, size);
  size_ = size;
  return data_;
}

Marker::Marker() = default;
Marker::~Marker() = default;
void Marker::record(void* /*stream*/) { recorded_ = true; }
void Marker::wait() {}

void copy_to_device(void* target, void const* source, size_t bytes, void* /*stream*/) {
  std::memcpy(target, source, bytes);
}

void copy_to_host(void* target, void const* source, size_t bytes, void* /*stream*/) {
  std::memcpy(target, source, bytes);
}

}  // namespace llgtrt
