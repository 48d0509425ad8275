// Rows of logits made at random, and how two results of masking them differ: what the host implementation is checked
// with, and the kernel on a GPU.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "mask_kernel.h"

namespace llgtrt {

/// Reported of a row that does not ask for its removed mass, and so is never written.
constexpr float kNotReported = -1.0F;

/// The rows of one step, which lie one after the other.
struct MaskCase {
  LogitsType type;
  uint32_t vocab;
  uint32_t columns;
  std::vector<unsigned char> logits;
  std::vector<uint32_t> masks;
  /// Without the address of their logits: see `rows_at`.
  std::vector<MaskRow> rows;
};

struct MaskResult {
  std::vector<unsigned char> logits;
  std::vector<float> removed;
};

/// The flags of the rows count up from `first_flags`. Masks allow one token, most, a random half, or runs of tokens.
MaskCase random_case(std::mt19937& random, LogitsType type, uint32_t count, uint32_t vocab, uint32_t columns,
                     uint32_t first_flags);

/// Rows that are all -inf, all NaN or all +inf, one with a single NaN, and one that allows no token.
MaskCase odd_case(LogitsType type);

/// The rows, with their logits at `base` and after it.
std::vector<MaskRow> rows_at(MaskCase const& mask_case, void* base);

/// What the host implementation makes of it.
MaskResult on_host(MaskCase const& mask_case);

/// Element `index` of all rows.
float logit_at(MaskCase const& mask_case, std::vector<unsigned char> const& logits, size_t index);
void set_logit(MaskCase const& mask_case, std::vector<unsigned char>& logits, size_t index, float value);

/// Where `got` is not what was wanted; empty if it is. Logits have to be equal, NaN to NaN; removed masses may differ
/// by `tolerance`.
std::string difference(MaskCase const& mask_case, MaskResult const& got, MaskResult const& want, float tolerance);

}  // namespace llgtrt
