// What the test programs for GPUs share.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>

#include "mask_kernel.h"

namespace llgtrt {

inline void check(cudaError_t error, char const* what) {
  if (error != cudaSuccess) throw std::runtime_error(std::string(what) + ": " + cudaGetErrorString(error));
}

/// Memory of the device, freed with the object.
class Memory {
 public:
  explicit Memory(size_t bytes) { check(cudaMalloc(&data_, std::max<size_t>(bytes, 1)), "cudaMalloc"); }
  ~Memory() { (void)cudaFree(data_); }
  Memory(Memory const&) = delete;
  Memory& operator=(Memory const&) = delete;

  template <class T = char>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  void* data_ = nullptr;
};

inline LogitsType type_named(std::string const& name) {
  if (name == "fp32") return LogitsType::kFP32;
  if (name == "fp16") return LogitsType::kFP16;
  if (name == "bf16") return LogitsType::kBF16;
  throw std::runtime_error("no type of logits: " + name);
}

/// Runs the command that the only argument names. The exit status: its own, 1 if it throws, 2 if there is no such command, 77 if
/// there is no usable GPU.
inline int run_command(int argc, char** argv, std::map<std::string, std::function<int()>> const& commands) {
  constexpr int kNoGpu = 77;
  auto const command = commands.find(argc == 2 ? argv[1] : "");
  if (command == commands.end()) {
    std::fprintf(stderr, "usage: %s", argv[0]);
    for (auto const& [name, run] : commands) std::fprintf(stderr, " [%s]", name.c_str());
    std::fprintf(stderr, "\n");
    return 2;
  }
  int count = 0;
  auto const error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    std::fprintf(stderr, "%s\n", error == cudaSuccess ? "no GPU" : cudaGetErrorString(error));
    return kNoGpu;
  }
  try {
    return command->second();
  } catch (std::exception const& failure) {
    std::fprintf(stderr, "%s\n", failure.what());
    return 1;
  }
}

}  // namespace llgtrt
