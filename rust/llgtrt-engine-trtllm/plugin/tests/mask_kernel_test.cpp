// The host implementation of the mask kernel against its contract, spelled out in double precision.
#include "mask_kernel.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "check.h"
#include "float16.h"
#include "mask_cases.h"

using namespace llgtrt;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kTolerance = 1e-5F;

float rounded(float value, LogitsType type) {
  switch (type) {
    case LogitsType::kFP16: return fp16_to_float(float_to_fp16(value));
    case LogitsType::kBF16: return bf16_to_float(float_to_bf16(value));
    default: return value;
  }
}

/// What the header promises of one row.
void expect_row(MaskCase const& mask_case, size_t index, MaskResult& result) {
  MaskRow const& row = mask_case.rows[index];
  if (row.flags == 0) return;
  size_t const first = index * row.columns;
  auto const allowed = [&](size_t i) {
    return i < row.vocab && ((row.flags & kApplyMask) == 0 ||
                             (mask_case.masks[row.mask_offset + i / 32] >> (i % 32) & 1U) != 0);
  };
  double sum = 0;
  double kept = 0;
  float best = -kInfinity;
  for (size_t i = 0; i < row.columns; ++i) {
    float const raw = logit_at(mask_case, mask_case.logits, first + i);
    if (i < row.vocab) {
      double const term = std::exp(static_cast<double>(raw) - 20.0);
      sum += term;
      if (allowed(i)) kept += term;
    }
    float const scaled = (row.flags & kScale) != 0 ? raw * row.inverse_temperature : raw;
    float const value = allowed(i) ? rounded(scaled, mask_case.type) : -kInfinity;
    set_logit(mask_case, result.logits, first + i, value);
    best = std::max(best, value);
  }
  if ((row.flags & kReportRemovedMass) != 0) result.removed[index] = static_cast<float>(1.0 - kept / sum);
  if ((row.flags & kMinP) == 0) return;
  for (size_t i = 0; i < row.columns; ++i)
    if (logit_at(mask_case, result.logits, first + i) < best + row.log_min_p)
      set_logit(mask_case, result.logits, first + i, -kInfinity);
}

MaskResult expected(MaskCase const& mask_case) {
  MaskResult result{mask_case.logits, std::vector<float>(mask_case.rows.size(), kNotReported)};
  for (size_t row = 0; row < mask_case.rows.size(); ++row) expect_row(mask_case, row, result);
  return result;
}

void as_promised(std::mt19937& random, LogitsType type, uint32_t rows, uint32_t vocab, uint32_t columns) {
  auto const mask_case = random_case(random, type, rows, vocab, columns, 0);
  auto const text = difference(mask_case, on_host(mask_case), expected(mask_case), kTolerance);
  if (!text.empty()) std::fprintf(stderr, "%s\n", text.c_str());
  CHECK(text.empty());
}

/// Of a row that is all -inf, or holds NaN or +inf, nothing is reported.
void odd_rows(LogitsType type) {
  auto const mask_case = odd_case(type);
  auto const result = on_host(mask_case);
  for (size_t row = 0; row < mask_case.rows.size(); ++row) {
    bool const none_allowed = row + 1 == mask_case.rows.size();
    CHECK(none_allowed ? result.removed[row] == 1.0F : std::isnan(result.removed[row]));
    // Forbidden, and padding.
    CHECK(logit_at(mask_case, result.logits, row * mask_case.columns) == -kInfinity);
    CHECK(logit_at(mask_case, result.logits, (row + 1) * mask_case.columns - 1) == -kInfinity);
  }
}

/// The comparison sees one wrong element, and one wrong mass.
void differences_are_seen(std::mt19937& random, LogitsType type) {
  auto const mask_case = random_case(random, type, 16, 100, 101, 0);
  auto const want = on_host(mask_case);
  CHECK(difference(mask_case, want, want, 0.0F).empty());
  auto got = want;
  set_logit(mask_case, got.logits, 5 * 101 + 100, 3.0F);  // padding of row 5
  CHECK(difference(mask_case, got, want, 1.0F).find("row 5 with flags 5: logit 100 is 3.0") == 0);
  got = want;
  got.removed[15] += 0.01F;
  CHECK(difference(mask_case, got, want, 0.02F).empty());
  CHECK(difference(mask_case, got, want, 0.005F).find("row 15 with flags 15: the removed mass") == 0);
  got = want;
  got.removed[3] += 0.01F;  // asks for none
  CHECK(!difference(mask_case, got, want, 0.02F).empty());
  got = want;
  got.removed[8] = std::numeric_limits<float>::quiet_NaN();
  CHECK(!difference(mask_case, got, want, 1.0F).empty());
}

}  // namespace

void mask_kernel_test() {
  std::mt19937 random(7);
  for (auto type : {LogitsType::kFP32, LogitsType::kFP16, LogitsType::kBF16}) {
    as_promised(random, type, 48, 257, 320);
    as_promised(random, type, 16, 64, 64);
    as_promised(random, type, 16, 1000, 1003);
    odd_rows(type);
    differences_are_seen(random, type);
  }
}
