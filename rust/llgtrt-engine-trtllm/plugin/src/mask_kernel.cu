// The kernel of mask_kernel.h for NVIDIA GPUs: one launch for all rows of a step.
//
// Grid: chunks x rows. A block reads 16 bytes per thread and load. Where a row only has a mask, forbidden logits are
// not read but written, and a group of allowed ones is left alone, so that it moves fewer bytes than a copy does.
// The last block of a row to finish combines what the others learnt, which spares a second launch.
#include "mask_kernel.h"

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <stdexcept>
#include <string>

namespace llgtrt {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarps = kThreads / 32;
// Below every finite float and yet finite, so that differences of two of them are no NaN.
constexpr float kLowest = -3.4e38F;

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

__device__ __forceinline__ float minus_infinity() { return __int_as_float(static_cast<int>(0xff800000U)); }

/// A running maximum with the sums of exp(x - max) over all and over the allowed elements.
struct Sums {
  float max = kLowest;
  float sum = 0.0F;
  float allowed_sum = 0.0F;
  float allowed_max = kLowest;

  __device__ __forceinline__ void add(float x, bool allowed) {
    float const high = fmaxf(max, x);
    float const scale = __expf(max - high);
    float const term = __expf(x - high);
    sum = sum * scale + term;
    allowed_sum = allowed_sum * scale + (allowed ? term : 0.0F);
    max = high;
  }

  __device__ __forceinline__ void merge(MaskPartial const& other) {
    float const high = fmaxf(max, other.max);
    float const mine = __expf(max - high);
    float const theirs = __expf(other.max - high);
    sum = sum * mine + other.sum * theirs;
    allowed_sum = allowed_sum * mine + other.allowed_sum * theirs;
    allowed_max = fmaxf(allowed_max, other.allowed_max);
    max = high;
  }

  __device__ __forceinline__ MaskPartial partial() const { return {max, sum, allowed_sum, allowed_max}; }
};

/// Combines the sums of all threads of a block; the result is thread 0's.
__device__ void reduce(Sums& sums) {
  __shared__ MaskPartial warps[kWarps];
  for (int distance = 16; distance > 0; distance /= 2) {
    MaskPartial const other{__shfl_down_sync(0xffffffffU, sums.max, distance),
                            __shfl_down_sync(0xffffffffU, sums.sum, distance),
                            __shfl_down_sync(0xffffffffU, sums.allowed_sum, distance),
                            __shfl_down_sync(0xffffffffU, sums.allowed_max, distance)};
    sums.merge(other);
  }
  __syncthreads();  // `warps` may still be read from an earlier call
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = sums.partial();
  __syncthreads();
  if (threadIdx.x == 0)
    for (uint32_t warp = 1; warp < kWarps; ++warp) sums.merge(warps[warp]);
}

/// 16 bytes of logits.
template <class T>
struct alignas(16) Pack {
  static constexpr uint32_t kSize = 16 / sizeof(T);
  T values[kSize];
};

/// The elements `first` to `first + Size - 1`: bit i says whether element i is allowed. `first` is a multiple of
/// `Size`, which divides 32, so one word holds all bits.
template <uint32_t Size>
__device__ __forceinline__ uint32_t allowed_bits(MaskRow const& row, uint32_t const* masks, uint32_t first) {
  constexpr uint32_t kAll = (1U << Size) - 1U;
  uint32_t bits = kAll;
  if ((row.flags & kApplyMask) != 0)
    bits = first < row.vocab ? (masks[row.mask_offset + first / 32] >> (first % 32)) & kAll : 0U;
  if (first + Size > row.vocab) bits &= first < row.vocab ? (1U << (row.vocab - first)) - 1U : 0U;
  return bits;
}

/// One element; whether it was changed.
template <class T>
__device__ __forceinline__ bool update(MaskRow const& row, T& value, bool allowed, bool token, bool measure,
                                       Sums& sums) {
  float const raw = to_float(value);
  if (measure && token) sums.add(raw, allowed);
  if (!allowed) {
    value = from_float<T>(minus_infinity());
    return true;
  }
  if ((row.flags & kScale) != 0) value = from_float<T>(raw * row.inverse_temperature);
  if (measure) sums.allowed_max = fmaxf(sums.allowed_max, to_float(value));
  return (row.flags & kScale) != 0;
}

template <class T>
__device__ void apply_chunk(MaskRow const& row, uint32_t const* masks, uint32_t begin, uint32_t end, Sums& sums) {
  T* const logits = static_cast<T*>(row.logits);
  bool const measure = (row.flags & (kReportRemovedMass | kMinP)) != 0;
  bool const must_read = measure || (row.flags & kScale) != 0;
  constexpr uint32_t kSize = Pack<T>::kSize;
  constexpr uint32_t kAll = (1U << kSize) - 1U;
  // A row is aligned unless its width is odd and another row lies before it.
  bool const aligned = reinterpret_cast<uintptr_t>(logits) % 16 == 0;
  uint32_t const packed_end = aligned ? begin + (end - begin) / kSize * kSize : begin;

  for (uint32_t first = begin + threadIdx.x * kSize; first < packed_end; first += kThreads * kSize) {
    uint32_t const bits = allowed_bits<kSize>(row, masks, first);
    auto* const place = reinterpret_cast<Pack<T>*>(logits + first);
    if (!must_read && bits == kAll) continue;
    Pack<T> pack;
    if (!must_read && bits == 0) {
#pragma unroll
      for (uint32_t i = 0; i < kSize; ++i) pack.values[i] = from_float<T>(minus_infinity());
      *place = pack;
      continue;
    }
    pack = *place;
    bool changed = false;
#pragma unroll
    for (uint32_t i = 0; i < kSize; ++i)
      changed |= update(row, pack.values[i], (bits >> i & 1U) != 0, first + i < row.vocab, measure, sums);
    if (changed) *place = pack;
  }
  for (uint32_t i = packed_end + threadIdx.x; i < end; i += kThreads) {
    bool const allowed = allowed_bits<1>(row, masks, i) != 0;
    T value = logits[i];
    if (update(row, value, allowed, i < row.vocab, measure, sums)) logits[i] = value;
  }
}

/// What the row's last block does: the removed mass, and min_p over the whole row.
template <class T>
__device__ void finish_row(MaskRow const& row, MaskPartial const* partials, uint32_t chunks, float* removed) {
  Sums sums;
  for (uint32_t i = threadIdx.x; i < chunks; i += kThreads) {
    // Other blocks wrote these: past the first-level cache.
    MaskPartial partial;
    partial.max = __ldcg(&partials[i].max);
    partial.sum = __ldcg(&partials[i].sum);
    partial.allowed_sum = __ldcg(&partials[i].allowed_sum);
    partial.allowed_max = __ldcg(&partials[i].allowed_max);
    sums.merge(partial);
  }
  reduce(sums);
  __shared__ float floor;
  if (threadIdx.x == 0) {
    bool const sound = sums.max > kLowest && sums.max < __int_as_float(0x7f800000) && sums.sum > 0.0F;
    if ((row.flags & kReportRemovedMass) != 0) {
      bool const masked = (row.flags & kApplyMask) != 0;
      float const mass = masked ? 1.0F - sums.allowed_sum / sums.sum : 0.0F;
      *removed = sound ? fminf(fmaxf(mass, 0.0F), 1.0F) : __int_as_float(0x7fc00000);
    }
    floor = sums.allowed_max + row.log_min_p;
  }
  __syncthreads();
  if ((row.flags & kMinP) == 0) return;
  T* const logits = static_cast<T*>(row.logits);
  for (uint32_t i = threadIdx.x; i < row.columns; i += kThreads) {
    if (to_float(__ldcg(logits + i)) < floor) logits[i] = from_float<T>(minus_infinity());
  }
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    mask_rows(MaskRow const* __restrict__ rows, uint32_t const* __restrict__ masks, MaskWorkspace workspace) {
  MaskRow const row = rows[blockIdx.y];
  uint32_t const begin = blockIdx.x * kChunk;
  if (row.flags == 0 || begin >= row.columns) return;
  Sums sums;
  apply_chunk<T>(row, masks, begin, min(begin + kChunk, row.columns), sums);
  if ((row.flags & (kReportRemovedMass | kMinP)) == 0) return;

  uint32_t const chunks = (row.columns + kChunk - 1) / kChunk;
  MaskPartial* const partials = workspace.partials + static_cast<size_t>(blockIdx.y) * gridDim.x;
  reduce(sums);
  // Every thread's logits and thread 0's partial are visible before the ticket is taken.
  if (threadIdx.x == 0) partials[blockIdx.x] = sums.partial();
  __threadfence();
  __syncthreads();
  __shared__ bool last;
  // Wraps to zero at the last one: the tickets are ready for the next launch.
  if (threadIdx.x == 0) last = atomicInc(&workspace.tickets[blockIdx.y], chunks - 1) == chunks - 1;
  __syncthreads();
  if (!last) return;
  __threadfence();
  finish_row<T>(row, partials, chunks, &workspace.removed[blockIdx.y]);
}

}  // namespace

void apply_masks(MaskRow const* rows, uint32_t count, uint32_t columns, LogitsType type, uint32_t const* masks,
                 MaskWorkspace const& workspace, void* stream) {
  if (count == 0 || columns == 0) return;
  dim3 const grid((columns + kChunk - 1) / kChunk, count);
  auto* const queue = static_cast<cudaStream_t>(stream);
  switch (type) {
    case LogitsType::kFP32: mask_rows<float><<<grid, kThreads, 0, queue>>>(rows, masks, workspace); break;
    case LogitsType::kFP16: mask_rows<__half><<<grid, kThreads, 0, queue>>>(rows, masks, workspace); break;
    case LogitsType::kBF16: mask_rows<__nv_bfloat16><<<grid, kThreads, 0, queue>>>(rows, masks, workspace); break;
  }
  if (auto const error = cudaGetLastError(); error != cudaSuccess)
    throw std::runtime_error(std::string("the mask kernel did not start: ") + cudaGetErrorString(error));
}

}  // namespace llgtrt
