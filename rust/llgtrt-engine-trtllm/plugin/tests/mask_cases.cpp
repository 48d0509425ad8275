#include "mask_cases.h"

#include <array>
#include <cmath>
#include <cstring>
#include <limits>

#include "float16.h"

namespace llgtrt {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

void store(LogitsType type, unsigned char* target, float value) {
  if (type == LogitsType::kFP32) {
    std::memcpy(target, &value, sizeof(value));
    return;
  }
  uint16_t const narrow = type == LogitsType::kFP16 ? float_to_fp16(value) : float_to_bf16(value);
  std::memcpy(target, &narrow, sizeof(narrow));
}

float load(LogitsType type, unsigned char const* source) {
  if (type == LogitsType::kFP32) {
    float value;
    std::memcpy(&value, source, sizeof(value));
    return value;
  }
  uint16_t narrow;
  std::memcpy(&narrow, source, sizeof(narrow));
  return type == LogitsType::kFP16 ? fp16_to_float(narrow) : bf16_to_float(narrow);
}

bool same(float a, float b) { return a == b || (std::isnan(a) && std::isnan(b)); }

uint32_t mask_word(std::mt19937& random, uint32_t kind) {
  auto const bits = static_cast<uint32_t>(random());
  switch (kind) {
    case 0: return 0U;
    case 1: return bits;
    case 2: return ~(1U << (bits % 32));
    default: return bits % 4 == 0 ? static_cast<uint32_t>(random()) : bits % 4 == 1 ? 0U : ~0U;
  }
}

}  // namespace

MaskCase random_case(std::mt19937& random, LogitsType type, uint32_t count, uint32_t vocab, uint32_t columns,
                     uint32_t first_flags) {
  MaskCase result{type, vocab, columns, {}, {}, {}};
  size_t const size = logit_size(type);
  // Drawing each logit would take most of the time of a large case: rows walk through one list in different ways.
  constexpr size_t kDrawn = 1U << 14;
  std::vector<unsigned char> drawn(kDrawn * size);
  std::normal_distribution<float> normal(0.0F, 4.0F);
  for (size_t i = 0; i < kDrawn; ++i) store(type, &drawn[i * size], i % 1021 == 5 ? -kInfinity : normal(random));
  result.logits.resize(static_cast<size_t>(count) * columns * size);
  uint32_t const words = (vocab + 31) / 32;
  result.masks.reserve(static_cast<size_t>(count) * words);
  for (uint32_t r = 0; r < count; ++r) {
    size_t const start = random();
    size_t const step = random() | 1U;
    unsigned char* const row = &result.logits[static_cast<size_t>(r) * columns * size];
    for (size_t i = 0; i < columns; ++i) std::memcpy(row + i * size, &drawn[(start + i * step) % kDrawn * size], size);
    auto const mask_offset = static_cast<uint32_t>(result.masks.size());
    uint32_t const kind = static_cast<uint32_t>(random()) % 4;
    for (uint32_t w = 0; w < words; ++w) result.masks.push_back(mask_word(random, kind));
    uint32_t const allowed = static_cast<uint32_t>(random()) % vocab;
    result.masks[mask_offset + allowed / 32] |= 1U << (allowed % 32);
    float const min_p = random() % 4 == 0 ? 1.0F : 0.05F;
    result.rows.push_back(
        {nullptr, mask_offset, columns, vocab, (first_flags + r) % 16, 1.0F / 0.7F, std::log(min_p)});
  }
  return result;
}

MaskCase odd_case(LogitsType type) {
  constexpr uint32_t kColumns = 5000;  // more than one block's
  MaskCase result{type, kColumns - 3, kColumns, {}, {}, {}};
  uint32_t const words = (result.vocab + 31) / 32;
  std::array<float, 5> const values{-kInfinity, kNan, kInfinity, 1.0F, 1.0F};
  result.logits.resize(values.size() * kColumns * logit_size(type));
  for (uint32_t r = 0; r < values.size(); ++r) {
    for (uint32_t i = 0; i < kColumns; ++i) set_logit(result, result.logits, r * kColumns + i, values[r]);
    bool const none_allowed = r + 1 == values.size();
    result.rows.push_back({nullptr, r * words, kColumns, result.vocab, kApplyMask | kReportRemovedMass | kMinP, 1.0F,
                           std::log(0.1F)});
    result.masks.insert(result.masks.end(), words, none_allowed ? 0U : 0xaaaaaaaaU);
  }
  set_logit(result, result.logits, 3 * kColumns + 4500, kNan);
  return result;
}

std::vector<MaskRow> rows_at(MaskCase const& mask_case, void* base) {
  auto rows = mask_case.rows;
  auto* place = static_cast<unsigned char*>(base);
  for (auto& row : rows) {
    row.logits = place;
    place += mask_case.columns * logit_size(mask_case.type);
  }
  return rows;
}

MaskResult on_host(MaskCase const& mask_case) {
  MaskResult result{mask_case.logits, std::vector<float>(mask_case.rows.size(), kNotReported)};
  auto const rows = rows_at(mask_case, result.logits.data());
  apply_masks_on_host(rows.data(), static_cast<uint32_t>(rows.size()), mask_case.type, mask_case.masks.data(),
                      result.removed.data());
  return result;
}

float logit_at(MaskCase const& mask_case, std::vector<unsigned char> const& logits, size_t index) {
  return load(mask_case.type, &logits[index * logit_size(mask_case.type)]);
}

void set_logit(MaskCase const& mask_case, std::vector<unsigned char>& logits, size_t index, float value) {
  store(mask_case.type, &logits[index * logit_size(mask_case.type)], value);
}

std::string difference(MaskCase const& mask_case, MaskResult const& got, MaskResult const& want, float tolerance) {
  auto const said = [&](size_t row, std::string const& what, float is, float should) {
    return "row " + std::to_string(row) + " with flags " + std::to_string(mask_case.rows[row].flags) + ": " + what +
           " is " + std::to_string(is) + ", not " + std::to_string(should);
  };
  if (got.logits.size() != want.logits.size() || got.removed.size() != want.removed.size())
    return "the results have different sizes";
  for (size_t row = 0; row < mask_case.rows.size(); ++row) {
    for (size_t column = 0; column < mask_case.columns; ++column) {
      size_t const index = row * mask_case.columns + column;
      float const is = logit_at(mask_case, got.logits, index);
      float const should = logit_at(mask_case, want.logits, index);
      if (!same(is, should)) return said(row, "logit " + std::to_string(column), is, should);
    }
    float const is = got.removed[row];
    float const should = want.removed[row];
    bool const reported = (mask_case.rows[row].flags & kReportRemovedMass) != 0;
    if (!same(is, should) && !(reported && std::abs(is - should) <= tolerance))
      return said(row, "the removed mass", is, should);
  }
  return "";
}

}  // namespace llgtrt
