// device.h and the mask kernel in the host's memory, where everything is done when the call returns.
#include <algorithm>
#include <cstring>
#include <new>

#include "device.h"
#include "mask_kernel.h"

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

void apply_masks(MaskRow const* rows, uint32_t count, uint32_t /*columns*/, LogitsType type, uint32_t const* masks,
                 MaskWorkspace const& workspace, void* /*stream*/) {
  apply_masks_on_host(rows, count, type, masks, workspace.removed);
}

}  // namespace llgtrt
