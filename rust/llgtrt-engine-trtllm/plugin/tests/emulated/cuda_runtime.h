// As much of CUDA as the mask kernel and its test use, on the host and without a GPU: for checking the kernel's logic.
//
// The blocks of a launch run one after the other, in random order. The threads of a block are fibers; each runs to its
// next barrier or shuffle, in random order, so that a missing barrier shows. Timing means nothing here, and neither
// does what only a GPU has: its caches, its order of memory, its fast exponential.
#pragma once

#include <ucontext.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <random>
#include <utility>
#include <vector>

#define __device__
#define __global__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define __shared__ static

struct dim3 {
  uint32_t x;
  uint32_t y;
  explicit dim3(uint32_t x_size = 1, uint32_t y_size = 1) : x(x_size), y(y_size) {}
};

namespace emulated {

inline constexpr uint32_t kMostThreads = 256;
inline constexpr size_t kStackBytes = 64 * 1024;

struct Fiber {
  ucontext_t context;
  std::vector<char> stack = std::vector<char>(kStackBytes);
  bool finished = false;
};

inline std::vector<Fiber> fibers(kMostThreads);
inline ucontext_t scheduler;
inline std::function<void()> work;
inline std::vector<float> shuffled(kMostThreads);
inline std::mt19937 random_order(3);

}  // namespace emulated

inline dim3 threadIdx(0, 0);
inline dim3 blockIdx(0, 0);
inline dim3 gridDim;

namespace emulated {

/// Lets every other thread of the block come as far. All threads pass the same barriers.
inline void barrier() { swapcontext(&fibers[threadIdx.x].context, &scheduler); }

inline void fiber_main() {
  work();
  fibers[threadIdx.x].finished = true;
  barrier();
}

inline void run_block(uint32_t threads) {
  std::vector<uint32_t> order;
  for (uint32_t thread = 0; thread < threads; ++thread) {
    auto& fiber = fibers[thread];
    fiber.finished = false;
    getcontext(&fiber.context);
    fiber.context.uc_stack.ss_sp = fiber.stack.data();
    fiber.context.uc_stack.ss_size = fiber.stack.size();
    fiber.context.uc_link = nullptr;
    makecontext(&fiber.context, fiber_main, 0);
    order.push_back(thread);
  }
  while (!order.empty()) {
    std::shuffle(order.begin(), order.end(), random_order);
    for (uint32_t const thread : order) {
      threadIdx.x = thread;
      swapcontext(&scheduler, &fibers[thread].context);
    }
    order.erase(std::remove_if(order.begin(), order.end(), [](uint32_t i) { return fibers[i].finished; }),
                order.end());
  }
}

/// What `kernel<<<grid, threads, 0, stream>>>(arguments...)` is replaced by.
template <class Kernel, class Stream, class... Arguments>
void launch(Kernel kernel, dim3 grid, uint32_t threads, Stream /*stream*/, Arguments... arguments) {
  if (threads > kMostThreads) std::abort();
  std::vector<std::pair<uint32_t, uint32_t>> blocks;
  for (uint32_t y = 0; y < grid.y; ++y)
    for (uint32_t x = 0; x < grid.x; ++x) blocks.emplace_back(x, y);
  std::shuffle(blocks.begin(), blocks.end(), random_order);
  gridDim = grid;
  work = [&] { kernel(arguments...); };
  for (auto const& [x, y] : blocks) {
    blockIdx.x = x;
    blockIdx.y = y;
    run_block(threads);
  }
}

}  // namespace emulated

inline void __syncthreads() { emulated::barrier(); }

inline float __shfl_down_sync(uint32_t /*lanes*/, float value, int distance) {
  uint32_t const thread = threadIdx.x;
  auto const other = thread + static_cast<uint32_t>(distance);
  emulated::shuffled[thread] = value;
  emulated::barrier();
  float const result = other / 32 == thread / 32 ? emulated::shuffled[other] : value;
  emulated::barrier();
  return result;
}

inline float __expf(float value) { return std::exp(value); }

inline float __int_as_float(int32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

using std::fmaxf;
using std::fminf;

using cudaError_t = int;
using cudaStream_t = void*;
using cudaEvent_t = void*;
using cudaGraph_t = void*;
using cudaGraphExec_t = void*;

enum : int {
  cudaSuccess = 0,
  cudaMemcpyHostToDevice = 1,
  cudaMemcpyDeviceToHost,
  cudaMemcpyDeviceToDevice,
  cudaStreamNonBlocking,
  cudaStreamCaptureModeThreadLocal,
  cudaDevAttrL2CacheSize,
};

inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline char const* cudaGetErrorString(cudaError_t /*error*/) { return "no memory"; }

inline cudaError_t cudaGetDeviceCount(int* count) {
  *count = 1;
  return cudaSuccess;
}

inline cudaError_t cudaDeviceGetAttribute(int* value, int /*attribute*/, int /*device*/) {
  *value = 1 << 12;
  return cudaSuccess;
}

inline cudaError_t cudaMalloc(void** place, size_t bytes) {
  *place = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  return *place != nullptr ? cudaSuccess : 2;
}

inline cudaError_t cudaFree(void* place) {
  std::free(place);
  return cudaSuccess;
}

inline cudaError_t cudaMemset(void* place, int value, size_t bytes) {
  std::memset(place, value, bytes);
  return cudaSuccess;
}

inline cudaError_t cudaMemcpy(void* target, void const* source, size_t bytes, int /*kind*/) {
  std::memcpy(target, source, bytes);
  return cudaSuccess;
}

inline cudaError_t cudaMemcpyAsync(void* target, void const* source, size_t bytes, int kind, cudaStream_t /*stream*/) {
  return cudaMemcpy(target, source, bytes, kind);
}

// Work is done when it is given: streams, events and graphs are nothing.
inline cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }
inline cudaError_t cudaStreamCreateWithFlags(cudaStream_t*, int) { return cudaSuccess; }
inline cudaError_t cudaStreamDestroy(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaStreamBeginCapture(cudaStream_t, int) { return cudaSuccess; }
inline cudaError_t cudaStreamEndCapture(cudaStream_t, cudaGraph_t*) { return cudaSuccess; }
inline cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t*, cudaGraph_t, int) { return cudaSuccess; }
inline cudaError_t cudaGraphDestroy(cudaGraph_t) { return cudaSuccess; }
inline cudaError_t cudaGraphExecDestroy(cudaGraphExec_t) { return cudaSuccess; }
inline cudaError_t cudaGraphLaunch(cudaGraphExec_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventCreate(cudaEvent_t*) { return cudaSuccess; }
inline cudaError_t cudaEventDestroy(cudaEvent_t) { return cudaSuccess; }
inline cudaError_t cudaEventRecord(cudaEvent_t, cudaStream_t) { return cudaSuccess; }
inline cudaError_t cudaEventSynchronize(cudaEvent_t) { return cudaSuccess; }

inline cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t, cudaEvent_t) {
  *milliseconds = 1.0F;
  return cudaSuccess;
}
