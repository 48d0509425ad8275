// mask_kernel.h in the host's memory.
#include <algorithm>
#include <cmath>
#include <limits>

#include "float16.h"
#include "mask_kernel.h"

namespace llgtrt {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Fp32 {
  using Element = float;
  static float load(Element value) { return value; }
  static Element store(float value) { return value; }
};

struct Fp16 {
  using Element = uint16_t;
  static float load(Element value) { return fp16_to_float(value); }
  static Element store(float value) { return float_to_fp16(value); }
};

struct Bf16 {
  using Element = uint16_t;
  static float load(Element value) { return bf16_to_float(value); }
  static Element store(float value) { return float_to_bf16(value); }
};

bool is_allowed(MaskRow const& row, uint32_t const* masks, uint32_t token) {
  if (token >= row.vocab) return false;
  if ((row.flags & kApplyMask) == 0) return true;
  return (masks[row.mask_offset + token / 32] >> (token % 32) & 1U) != 0;
}

template <class Type>
float removed_mass(MaskRow const& row, uint32_t const* masks) {
  auto const* logits = static_cast<typename Type::Element const*>(row.logits);
  uint32_t const tokens = std::min(row.vocab, row.columns);
  float max = -kInfinity;
  bool is_nan = false;
  for (uint32_t i = 0; i < tokens; ++i) {
    max = std::max(max, Type::load(logits[i]));
    is_nan |= std::isnan(Type::load(logits[i]));
  }
  if (is_nan || !std::isfinite(max)) return std::numeric_limits<float>::quiet_NaN();
  if ((row.flags & kApplyMask) == 0) return 0.0F;
  double sum = 0.0;
  double allowed = 0.0;
  for (uint32_t i = 0; i < tokens; ++i) {
    double const term = std::exp(static_cast<double>(Type::load(logits[i])) - max);
    sum += term;
    if (is_allowed(row, masks, i)) allowed += term;
  }
  return std::clamp(static_cast<float>(1.0 - allowed / sum), 0.0F, 1.0F);
}

template <class Type>
void apply_row(MaskRow const& row, uint32_t const* masks, float* removed) {
  if (row.flags == 0) return;
  if ((row.flags & kReportRemovedMass) != 0) *removed = removed_mass<Type>(row, masks);
  auto* logits = static_cast<typename Type::Element*>(row.logits);
  float best = -kInfinity;
  for (uint32_t i = 0; i < row.columns; ++i) {
    if (!is_allowed(row, masks, i)) {
      logits[i] = Type::store(-kInfinity);
      continue;
    }
    if ((row.flags & kScale) != 0) logits[i] = Type::store(Type::load(logits[i]) * row.inverse_temperature);
    best = std::max(best, Type::load(logits[i]));
  }
  if ((row.flags & kMinP) == 0) return;
  float const floor = best + row.log_min_p;
  for (uint32_t i = 0; i < row.columns; ++i)
    if (Type::load(logits[i]) < floor) logits[i] = Type::store(-kInfinity);
}

}  // namespace

void apply_masks_on_host(MaskRow const* rows, uint32_t count, LogitsType type, uint32_t const* masks, float* removed) {
  for (uint32_t i = 0; i < count; ++i) {
    switch (type) {
      case LogitsType::kFP32: apply_row<Fp32>(rows[i], masks, &removed[i]); break;
      case LogitsType::kFP16: apply_row<Fp16>(rows[i], masks, &removed[i]); break;
      case LogitsType::kBF16: apply_row<Bf16>(rows[i], masks, &removed[i]); break;
    }
  }
}

}  // namespace llgtrt
