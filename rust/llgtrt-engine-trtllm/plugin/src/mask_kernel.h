// All rows of logits of a step: mask, temperature, min_p, and the probability that the mask removed.
//
// The contract, which the CUDA kernel and the host implementation share. Of each row, with raw logits x:
//   removed mass  1 - sum over allowed t of softmax(x)[t], over the vocabulary without its padding; 0 without a mask;
//   result y[t]   -inf if t is padding or its bit is clear, else x[t] / temperature, rounded to the row's type;
//   min_p         afterwards y[t] < max(y) + log(min_p) becomes -inf. The best token always stays.
// A row that is all -inf, or holds NaN, is changed as far as the rules say and nothing is reported of it (NaN).
// Rows without flags are not touched at all, padding included.
#pragma once

#include <cstddef>
#include <cstdint>

namespace llgtrt {

/// Element type of the logits.
enum class LogitsType : int32_t { kFP32, kFP16, kBF16 };

enum MaskFlags : uint32_t {
  kApplyMask = 1,
  kScale = 2,
  kMinP = 4,
  kReportRemovedMass = 8,
};

/// What to do with one row. Lives in the device's memory while the kernel runs.
struct MaskRow {
  void* logits;
  /// First word of the row's bits.
  uint32_t mask_offset;
  /// Elements of the row, padding included.
  uint32_t columns;
  /// Elements that are tokens.
  uint32_t vocab;
  uint32_t flags;
  float inverse_temperature;
  float log_min_p;
};

/// Elements of a row that one block of the kernel handles.
constexpr uint32_t kChunk = 4096;

/// What a block learnt of its chunk. One per chunk of each row.
struct MaskPartial {
  float max;
  float sum;
  float allowed_sum;
  float allowed_max;
};

/// Memory of the device for a launch. `removed` has an element per row.
struct MaskWorkspace {
  MaskPartial* partials;
  float* removed;
};

/// Bytes of one logit.
constexpr size_t logit_size(LogitsType type) { return type == LogitsType::kFP32 ? 4 : 2; }

/// Applies `count` rows of `type`, none wider than `columns`, none with other flags than `flags`. `stream` is the device's queue
/// of work; null on a host. Throws std::runtime_error if the launch fails.
void apply_masks(MaskRow const* rows, uint32_t count, uint32_t columns, LogitsType type, uint32_t flags,
                 uint32_t const* masks, MaskWorkspace const& workspace, void* stream);

/// The same in the host's memory, one row after the other: what the kernel is checked against, and what the tests run.
void apply_masks_on_host(MaskRow const* rows, uint32_t count, LogitsType type, uint32_t const* masks, float* removed);

}  // namespace llgtrt
