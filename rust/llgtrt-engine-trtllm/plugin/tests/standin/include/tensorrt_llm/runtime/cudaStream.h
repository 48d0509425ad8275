// Stand-in: a stream on which everything is done at once, of the device that was current when it was made.
#pragma once

#include "standin/device.h"

namespace tensorrt_llm::runtime {

class CudaStream {
 public:
  // A handle that is not null, as a stream's, and that only device_host.cpp looks into.
  void* get() const { return const_cast<int*>(&device_); }
  int getDevice() const { return device_; }

 private:
  int device_ = standin::current_device();
};

}  // namespace tensorrt_llm::runtime
