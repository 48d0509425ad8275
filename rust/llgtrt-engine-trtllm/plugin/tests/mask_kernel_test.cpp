// The host implementation of the mask kernel against its contract, spelled out in double precision.
#include "mask_kernel.h"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "check.h"
#include "float16.h"

using namespace llgtrt;

namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Row {
  std::vector<float> logits;
  std::vector<uint32_t> mask;
  uint32_t vocab;
  uint32_t flags;
  float temperature;
  float min_p;
};

float rounded(float value, LogitsType type) {
  switch (type) {
    case LogitsType::kFP16: return fp16_to_float(float_to_fp16(value));
    case LogitsType::kBF16: return bf16_to_float(float_to_bf16(value));
    default: return value;
  }
}

/// What the header promises.
std::vector<float> expected(Row const& row, LogitsType type, float& removed) {
  auto const allowed = [&](size_t i) {
    return i < row.vocab && ((row.flags & kApplyMask) == 0 || (row.mask[i / 32] >> (i % 32) & 1U) != 0);
  };
  double sum = 0;
  double kept = 0;
  std::vector<float> result = row.logits;
  if (row.flags == 0) return result;
  float best = -kInfinity;
  for (size_t i = 0; i < row.logits.size(); ++i) {
    if (i < row.vocab) {
      double const term = std::exp(static_cast<double>(row.logits[i]) - 20.0);
      sum += term;
      if (allowed(i)) kept += term;
    }
    bool const scaled = (row.flags & kScale) != 0;
    result[i] = allowed(i) ? rounded(scaled ? row.logits[i] * (1.0F / row.temperature) : row.logits[i], type)
                           : -kInfinity;
    best = std::max(best, result[i]);
  }
  removed = static_cast<float>(1.0 - kept / sum);
  if ((row.flags & kMinP) != 0)
    for (auto& value : result)
      if (value < best + std::log(row.min_p)) value = -kInfinity;
  return result;
}

void run(std::mt19937& random, LogitsType type, size_t rows, uint32_t vocab, uint32_t columns) {
  std::normal_distribution<float> normal(0.0F, 4.0F);
  std::vector<Row> inputs;
  std::vector<std::vector<float>> fp32(rows);
  std::vector<std::vector<uint16_t>> narrow(rows);
  std::vector<MaskRow> described;
  std::vector<uint32_t> masks;
  uint32_t const words = (vocab + 31) / 32;
  for (size_t r = 0; r < rows; ++r) {
    Row row;
    row.vocab = vocab;
    row.flags = static_cast<uint32_t>(r) % 16;
    row.temperature = 0.7F;
    row.min_p = r % 32 < 16 ? 0.05F : 1.0F;
    for (uint32_t i = 0; i < columns; ++i) row.logits.push_back(rounded(normal(random), type));
    for (uint32_t w = 0; w < words; ++w) row.mask.push_back(r % 3 == 0 ? 0U : static_cast<uint32_t>(random()));
    row.mask[words / 2] |= 2U;
    for (float value : row.logits) {
      fp32[r].push_back(value);
      narrow[r].push_back(type == LogitsType::kFP16 ? float_to_fp16(value) : float_to_bf16(value));
    }
    void* const data = type == LogitsType::kFP32 ? static_cast<void*>(fp32[r].data()) : narrow[r].data();
    described.push_back({data, static_cast<uint32_t>(masks.size()), columns, vocab, row.flags,
                         1.0F / row.temperature, std::log(row.min_p)});
    masks.insert(masks.end(), row.mask.begin(), row.mask.end());
    inputs.push_back(std::move(row));
  }
  std::vector<float> removed(rows, -1.0F);
  apply_masks(described.data(), static_cast<uint32_t>(rows), columns, type, masks.data(),
              {nullptr, nullptr, removed.data()}, nullptr);
  for (size_t r = 0; r < rows; ++r) {
    float mass = 0.0F;
    auto const want = expected(inputs[r], type, mass);
    for (size_t i = 0; i < columns; ++i) {
      float const got = type == LogitsType::kFP32    ? fp32[r][i]
                        : type == LogitsType::kFP16 ? fp16_to_float(narrow[r][i])
                                                     : bf16_to_float(narrow[r][i]);
      CHECK(got == want[i]);
    }
    if ((inputs[r].flags & kReportRemovedMass) != 0)
      CHECK(std::abs(removed[r] - mass) < 1e-5F);
    else
      CHECK(removed[r] == -1.0F);
  }
}

void odd_rows() {
  // All -inf, NaN: nothing is reported of them.
  for (float value : {-kInfinity, std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
    std::vector<float> logits{value, value, -1.0F * std::abs(value)};
    uint32_t const mask = 3;
    float removed = 0.0F;
    MaskRow const row{logits.data(), 0, 3, 3, kApplyMask | kReportRemovedMass | kMinP, 1.0F, std::log(0.1F)};
    apply_masks(&row, 1, 3, LogitsType::kFP32, &mask, {nullptr, nullptr, &removed}, nullptr);
    CHECK(std::isnan(removed));
    CHECK(logits[2] == -kInfinity);
  }
}

}  // namespace

void mask_kernel_test() {
  std::mt19937 random(7);
  for (auto type : {LogitsType::kFP32, LogitsType::kFP16, LogitsType::kBF16}) {
    run(random, type, 48, 257, 320);
    run(random, type, 16, 64, 64);
    run(random, type, 16, 1000, 1003);
  }
  odd_rows();
}
