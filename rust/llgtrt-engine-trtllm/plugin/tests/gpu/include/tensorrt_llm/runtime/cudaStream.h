// The stand-in's stream with CUDA's own behind it: for the tests that run on a GPU.
#pragma once

#include <cuda_runtime_api.h>

#include <stdexcept>

namespace tensorrt_llm::runtime {

class CudaStream {
 public:
  CudaStream() {
    if (cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking) != cudaSuccess)
      throw std::runtime_error("cudaStreamCreateWithFlags");
  }
  ~CudaStream() { (void)cudaStreamDestroy(stream_); }
  CudaStream(CudaStream const&) = delete;
  CudaStream& operator=(CudaStream const&) = delete;

  cudaStream_t get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

}  // namespace tensorrt_llm::runtime
