// The kernels of mask_kernel.h for NVIDIA GPUs: one launch for all rows of a step, and a second one if a row has its mass
// reported or has a min_p, for which all of the row has to be known first.
//
// Grid: chunks x rows. A thread has all that it reads of its chunk on the way at once, 16 bytes per load. Where a row only has a
// mask, forbidden logits are not read but written, and a group of allowed ones is left alone, so that it moves fewer bytes than
// a copy does.
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
constexpr uint32_t kLanes = 0xffffffffU;
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

/// A maximum with the sums of exp(x - max) over all and over the allowed elements.
using Sums = MaskPartial;

/// Combines the sums of all threads of a block; the result is every thread's.
__device__ Sums reduce(Sums const& mine) {
  __shared__ float maxima[kWarps];
  __shared__ Sums warps[kWarps];
  uint32_t const warp = threadIdx.x / 32;
  bool const first_lane = threadIdx.x % 32 == 0;
  float max = mine.max;
  for (int distance = 16; distance > 0; distance /= 2) max = fmaxf(max, __shfl_down_sync(kLanes, max, distance));
  if (first_lane) maxima[warp] = max;
  __syncthreads();
  max = maxima[0];
  for (uint32_t i = 1; i < kWarps; ++i) max = fmaxf(max, maxima[i]);
  float const scale = __expf(mine.max - max);
  Sums sums{max, mine.sum * scale, mine.allowed_sum * scale, mine.allowed_max};
  for (int distance = 16; distance > 0; distance /= 2) {
    sums.sum += __shfl_down_sync(kLanes, sums.sum, distance);
    sums.allowed_sum += __shfl_down_sync(kLanes, sums.allowed_sum, distance);
    sums.allowed_max = fmaxf(sums.allowed_max, __shfl_down_sync(kLanes, sums.allowed_max, distance));
  }
  if (first_lane) warps[warp] = sums;
  __syncthreads();
  sums = warps[0];
  for (uint32_t i = 1; i < kWarps; ++i) {
    sums.sum += warps[i].sum;
    sums.allowed_sum += warps[i].allowed_sum;
    sums.allowed_max = fmaxf(sums.allowed_max, warps[i].allowed_max);
  }
  return sums;
}

/// 16 bytes of logits.
template <class T>
struct alignas(16) Pack {
  static constexpr uint32_t kSize = 16 / sizeof(T);
  T values[kSize];
};

/// Packs of a thread in a chunk.
template <class T>
constexpr uint32_t kPacks = kChunk / (kThreads * Pack<T>::kSize);

/// First element of a thread's pack.
template <class T>
__device__ __forceinline__ uint32_t first_of(uint32_t begin, uint32_t pack) {
  return begin + (pack * kThreads + threadIdx.x) * Pack<T>::kSize;
}

/// A row's logits, of which packs are read and written. Packs may end past the row's end.
template <class T>
struct Logits {
  T* data;
  uint32_t columns;
  // A row is aligned unless its width is odd and another row lies before it.
  bool aligned;

  __device__ explicit Logits(MaskRow const& row)
      : data(static_cast<T*>(row.logits)),
        columns(row.columns),
        aligned(reinterpret_cast<uintptr_t>(row.logits) % 16 == 0) {}

  __device__ __forceinline__ bool is_whole(uint32_t first) const { return aligned && first + Pack<T>::kSize <= columns; }

  __device__ __forceinline__ void read(uint32_t first, Pack<T>& pack) const {
    if (is_whole(first)) {
      pack = *reinterpret_cast<Pack<T> const*>(data + first);
      return;
    }
#pragma unroll
    for (uint32_t i = 0; i < Pack<T>::kSize; ++i)
      if (first + i < columns) pack.values[i] = data[first + i];
  }

  __device__ __forceinline__ void write(uint32_t first, Pack<T> const& pack) const {
    if (is_whole(first)) {
      *reinterpret_cast<Pack<T>*>(data + first) = pack;
      return;
    }
#pragma unroll
    for (uint32_t i = 0; i < Pack<T>::kSize; ++i)
      if (first + i < columns) data[first + i] = pack.values[i];
  }
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

/// What the thread's elements, as the model made them, say of the row; the maximum of the allowed ones is left out.
template <class T>
__device__ __forceinline__ Sums sums_of(MaskRow const& row, uint32_t begin, Pack<T> const* packs, uint32_t const* bits) {
  constexpr uint32_t kSize = Pack<T>::kSize;
  Sums sums{kLowest, 0.0F, 0.0F, kLowest};
#pragma unroll
  for (uint32_t p = 0; p < kPacks<T>; ++p)
#pragma unroll
    for (uint32_t i = 0; i < kSize; ++i)
      if (first_of<T>(begin, p) + i < row.vocab) sums.max = fmaxf(sums.max, to_float(packs[p].values[i]));
#pragma unroll
  for (uint32_t p = 0; p < kPacks<T>; ++p)
#pragma unroll
    for (uint32_t i = 0; i < kSize; ++i) {
      if (first_of<T>(begin, p) + i >= row.vocab) continue;
      float const term = __expf(to_float(packs[p].values[i]) - sums.max);
      sums.sum += term;
      if ((bits[p] >> i & 1U) != 0) sums.allowed_sum += term;
    }
  return sums;
}

/// `Reads`: some row needs more than its mask.
template <class T, bool Reads>
__global__ void __launch_bounds__(kThreads)
    mask_rows(MaskRow const* __restrict__ rows, uint32_t const* __restrict__ masks, MaskPartial* partials) {
  constexpr uint32_t kSize = Pack<T>::kSize;
  constexpr uint32_t kAll = (1U << kSize) - 1U;
  MaskRow const row = rows[blockIdx.y];
  uint32_t const begin = blockIdx.x * kChunk;
  if (row.flags == 0 || begin >= row.columns) return;
  bool const scale = Reads && (row.flags & kScale) != 0;
  bool const measure = Reads && (row.flags & (kReportRemovedMass | kMinP)) != 0;
  bool const read_all = scale || measure;
  Logits<T> const logits(row);
  uint32_t bits[kPacks<T>];
  Pack<T> packs[kPacks<T>];
#pragma unroll
  for (uint32_t p = 0; p < kPacks<T>; ++p) bits[p] = allowed_bits<kSize>(row, masks, first_of<T>(begin, p));
#pragma unroll
  for (uint32_t p = 0; p < kPacks<T>; ++p)
    if (read_all || (bits[p] != 0 && bits[p] != kAll)) logits.read(first_of<T>(begin, p), packs[p]);
  Sums sums{};
  if (measure) sums = sums_of(row, begin, packs, bits);

#pragma unroll
  for (uint32_t p = 0; p < kPacks<T>; ++p) {
    if (!scale && !measure && bits[p] == kAll) continue;
#pragma unroll
    for (uint32_t i = 0; i < kSize; ++i) {
      T& value = packs[p].values[i];
      if ((bits[p] >> i & 1U) == 0) {
        value = from_float<T>(minus_infinity());
        continue;
      }
      if (scale) value = from_float<T>(to_float(value) * row.inverse_temperature);
      if (measure) sums.allowed_max = fmaxf(sums.allowed_max, to_float(value));
    }
    if (scale || bits[p] != kAll) logits.write(first_of<T>(begin, p), packs[p]);
  }
  // The same for all threads of a block.
  if (!measure) return;
  sums = reduce(sums);
  if (threadIdx.x == 0) partials[static_cast<size_t>(blockIdx.y) * gridDim.x + blockIdx.x] = sums;
}

/// What needs the whole row: the removed mass, which a row's first block reports, and min_p. `stride`: partials of a row.
template <class T>
__global__ void __launch_bounds__(kThreads)
    finish_rows(MaskRow const* __restrict__ rows, MaskPartial const* __restrict__ partials, uint32_t stride, float* removed) {
  constexpr uint32_t kSize = Pack<T>::kSize;
  MaskRow const row = rows[blockIdx.y];
  uint32_t const begin = blockIdx.x * kChunk;
  bool const report = blockIdx.x == 0 && (row.flags & kReportRemovedMass) != 0;
  bool const min_p = (row.flags & kMinP) != 0 && begin < row.columns;
  if (!report && !min_p) return;
  Sums sums{kLowest, 0.0F, 0.0F, kLowest};
  uint32_t const chunks = (row.columns + kChunk - 1) / kChunk;
  for (uint32_t i = threadIdx.x; i < chunks; i += kThreads) {
    Sums const other = partials[static_cast<size_t>(blockIdx.y) * stride + i];
    float const high = fmaxf(sums.max, other.max);
    float const mine = __expf(sums.max - high);
    float const theirs = __expf(other.max - high);
    sums.sum = sums.sum * mine + other.sum * theirs;
    sums.allowed_sum = sums.allowed_sum * mine + other.allowed_sum * theirs;
    sums.allowed_max = fmaxf(sums.allowed_max, other.allowed_max);
    sums.max = high;
  }
  sums = reduce(sums);
  if (report && threadIdx.x == 0) {
    bool const sound = sums.max > kLowest && sums.max < __int_as_float(0x7f800000) && sums.sum > 0.0F;
    bool const masked = (row.flags & kApplyMask) != 0;
    float const mass = masked ? 1.0F - sums.allowed_sum / sums.sum : 0.0F;
    removed[blockIdx.y] = sound ? fminf(fmaxf(mass, 0.0F), 1.0F) : __int_as_float(0x7fc00000);
  }
  if (!min_p) return;
  float const floor = sums.allowed_max + row.log_min_p;
  Logits<T> const logits(row);
  Pack<T> packs[kPacks<T>];
#pragma unroll
  for (uint32_t p = 0; p < kPacks<T>; ++p) logits.read(first_of<T>(begin, p), packs[p]);
#pragma unroll
  for (uint32_t p = 0; p < kPacks<T>; ++p) {
    bool changed = false;
#pragma unroll
    for (uint32_t i = 0; i < kSize; ++i) {
      float const value = to_float(packs[p].values[i]);
      if (!(value < floor) || value == minus_infinity()) continue;
      packs[p].values[i] = from_float<T>(minus_infinity());
      changed = true;
    }
    if (changed) logits.write(first_of<T>(begin, p), packs[p]);
  }
}

template <class T>
void launch(MaskRow const* rows, uint32_t count, uint32_t columns, uint32_t flags, uint32_t const* masks,
            MaskWorkspace const& workspace, cudaStream_t queue) {
  uint32_t const chunks = (columns + kChunk - 1) / kChunk;
  dim3 const grid(chunks, count);
  if ((flags & ~kApplyMask) == 0) {
    mask_rows<T, false><<<grid, kThreads, 0, queue>>>(rows, masks, workspace.partials);
  } else {
    mask_rows<T, true><<<grid, kThreads, 0, queue>>>(rows, masks, workspace.partials);
  }
  if ((flags & (kReportRemovedMass | kMinP)) == 0) return;
  dim3 const rest((flags & kMinP) != 0 ? chunks : 1, count);
  finish_rows<T><<<rest, kThreads, 0, queue>>>(rows, workspace.partials, chunks, workspace.removed);
}

}  // namespace

void apply_masks(MaskRow const* rows, uint32_t count, uint32_t columns, LogitsType type, uint32_t flags,
                 uint32_t const* masks, MaskWorkspace const& workspace, void* stream) {
  if (count == 0 || columns == 0) return;
  auto* const queue = static_cast<cudaStream_t>(stream);
  switch (type) {
    case LogitsType::kFP32: launch<float>(rows, count, columns, flags, masks, workspace, queue); break;
    case LogitsType::kFP16: launch<__half>(rows, count, columns, flags, masks, workspace, queue); break;
    case LogitsType::kBF16: launch<__nv_bfloat16>(rows, count, columns, flags, masks, workspace, queue); break;
  }
  if (auto const error = cudaGetLastError(); error != cudaSuccess)
    throw std::runtime_error(std::string("the mask kernel did not start: ") + cudaGetErrorString(error));
}

}  // namespace llgtrt
