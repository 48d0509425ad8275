// device.h and the mask kernel in the host's memory, where everything is done when the call returns. What is asked of the device is
// counted for the tests, and so is the time that it takes.
#include <algorithm>
#include <cstring>
#include <new>
#include <stdexcept>

#include "device.h"
#include "mask_kernel.h"
#include "standin/device.h"
#include "tensorrt_llm/runtime/cudaStream.h"

namespace llgtrt {
namespace {

using standin::counts;
using standin::DeviceTime;

void check_lost() {
  if (auto const error = standin::device_error(standin::current_device()); !error.empty())
    throw std::runtime_error(error);
}

}  // namespace

void* raw_stream(tensorrt_llm::executor::StreamPtr const& stream) { return stream->get(); }

int current_device() { return standin::current_device(); }
void use_device(int device) { standin::set_device(device); }

void check_device() { check_lost(); }

Buffer::~Buffer() { release(); }

void Buffer::release() noexcept {
  if (data_ != nullptr) standin::current_device();
  ::operator delete(data_);
  data_ = nullptr;
  size_ = 0;
}

void* Buffer::reserve(size_t bytes, void* stream) {
  if (bytes <= size_) return data_;
  DeviceTime const time;
  ++counts().allocations;
  if (place_ == Place::kDevice && stream == nullptr) throw std::runtime_error("device memory is allocated on a stream");
  // An allocation is made on the thread's device, and gives it a context.
  standin::current_device();
  size_t const size = std::max(bytes, size_ * 2);
  release();
  data_ = ::operator new(size);
  std::memset(data_, 0, size);
  size_ = size;
  return data_;
}

Marker::~Marker() { delete static_cast<int*>(event_); }

void Marker::record(void* stream) {
  if (event_ == nullptr) event_ = new int(standin::current_device());
  // As cudaEventRecord: the event has to be of the stream's device.
  if (*static_cast<int*>(event_) != *static_cast<int*>(stream))
    throw std::runtime_error("cudaEventRecord: invalid resource handle");
}

bool Marker::is_done() const {
  standin::current_device();
  return true;
}

void Marker::wait() const { standin::current_device(); }

void copy_to_device(void* target, void const* source, size_t bytes, void* /*stream*/) {
  DeviceTime const time;
  check_lost();
  ++counts().copies_to_device;
  counts().bytes_to_device += bytes;
  std::memcpy(target, source, bytes);
}

void copy_to_host(void* target, void const* source, size_t bytes, void* /*stream*/) {
  DeviceTime const time;
  check_lost();
  std::memcpy(target, source, bytes);
}

void apply_masks(MaskRow const* rows, uint32_t count, uint32_t /*columns*/, LogitsType type, uint32_t flags,
                 uint32_t const* masks, MaskWorkspace const& workspace, void* /*stream*/) {
  for (uint32_t i = 0; i < count; ++i)
    if ((rows[i].flags & ~flags) != 0) throw std::runtime_error("a row has flags that were not announced");
  DeviceTime const time;
  apply_masks_on_host(rows, count, type, masks, workspace.removed);
}

}  // namespace llgtrt
