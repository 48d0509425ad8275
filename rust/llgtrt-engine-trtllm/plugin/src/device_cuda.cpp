// device.h on CUDA.
#include "device.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "tensorrt_llm/runtime/cudaStream.h"

namespace llgtrt {
namespace {

void check(cudaError_t error, char const* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

}  // namespace

void* raw_stream(tensorrt_llm::executor::StreamPtr const& stream) {
  return stream ? static_cast<void*>(stream->get()) : nullptr;
}

int current_device() {
  int device = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  return device;
}

void use_device(int device) { check(cudaSetDevice(device), "cudaSetDevice"); }

void check_device() {
  // Of a stream on which there is never any work, so that the answer is about the device: it comes at once, and an error
  // that stays is everybody's.
  auto const state = cudaStreamQuery(cudaStreamPerThread);
  if (state != cudaErrorNotReady) check(state, "the device is lost");
}

Buffer::~Buffer() { release(); }

void Buffer::release() noexcept {
  if (data_ == nullptr) return;
  // The process may be past CUDA's own end here; there is nobody to tell.
  (void)(place_ == Place::kDevice ? cudaFree(data_) : cudaFreeHost(data_));
  data_ = nullptr;
  size_ = 0;
}

void* Buffer::reserve(size_t bytes, void* stream) {
  if (bytes <= size_) return data_;
  size_t const size = std::max(bytes, size_ * 2);
  if (place_ == Place::kDevice) {
    auto* const queue = static_cast<cudaStream_t>(stream);
    // Behind the kernels that still read it.
    if (void* const old = std::exchange(data_, nullptr); old != nullptr) check(cudaFreeAsync(old, queue), "cudaFreeAsync");
    size_ = 0;
    check(cudaMallocAsync(&data_, size, queue), "allocating device memory for masks");
    size_ = size;
    check(cudaMemsetAsync(data_, 0, size, queue), "cudaMemsetAsync");
  } else {
    release();
    check(cudaMallocHost(&data_, size), "allocating pinned memory for masks");
    size_ = size;
    std::fill_n(static_cast<char*>(data_), size, '\0');
  }
  return data_;
}

Marker::~Marker() {
  if (event_ != nullptr) (void)cudaEventDestroy(static_cast<cudaEvent_t>(event_));
}

void Marker::record(void* stream) {
  if (event_ == nullptr) {
    cudaEvent_t event = nullptr;
    check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync), "cudaEventCreate");
    event_ = event;
  }
  check(cudaEventRecord(static_cast<cudaEvent_t>(event_), static_cast<cudaStream_t>(stream)), "cudaEventRecord");
}

bool Marker::is_done() const {
  if (event_ == nullptr) return true;
  auto const state = cudaEventQuery(static_cast<cudaEvent_t>(event_));
  if (state == cudaErrorNotReady) return false;
  check(state, "cudaEventQuery");
  return true;
}

void Marker::wait() const {
  if (event_ != nullptr) check(cudaEventSynchronize(static_cast<cudaEvent_t>(event_)), "cudaEventSynchronize");
}

void copy_to_device(void* target, void const* source, size_t bytes, void* stream) {
  check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyHostToDevice, static_cast<cudaStream_t>(stream)),
        "copying masks to the device");
}

void copy_to_host(void* target, void const* source, size_t bytes, void* stream) {
  check(cudaMemcpyAsync(target, source, bytes, cudaMemcpyDeviceToHost, static_cast<cudaStream_t>(stream)),
        "copying logits to the host");
}

}  // namespace llgtrt
