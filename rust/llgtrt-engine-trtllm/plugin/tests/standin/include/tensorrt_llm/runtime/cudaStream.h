// Stand-in: a stream on which everything is done at once.
#pragma once

namespace tensorrt_llm::runtime {

class CudaStream {
 public:
  void* get() const { return nullptr; }
};

}  // namespace tensorrt_llm::runtime
