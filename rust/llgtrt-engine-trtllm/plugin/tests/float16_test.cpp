// Sixteen-bit floats: every value survives, and rounding is to the nearest.
#include "float16.h"

#include <cmath>

#include "check.h"

using namespace llgtrt;

void float16_test() {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    auto const half = static_cast<uint16_t>(bits);
    float const from_fp16 = fp16_to_float(half);
    float const from_bf16 = bf16_to_float(half);
    if (std::isnan(from_fp16))
      CHECK(std::isnan(fp16_to_float(float_to_fp16(from_fp16))));
    else
      CHECK(float_to_fp16(from_fp16) == half);
    if (std::isnan(from_bf16))
      CHECK(std::isnan(bf16_to_float(float_to_bf16(from_bf16))));
    else
      CHECK(float_to_bf16(from_bf16) == half);
  }
  CHECK(fp16_to_float(0x3c00) == 1.0F && fp16_to_float(0x0001) == std::ldexp(1.0F, -24));
  CHECK(fp16_to_float(float_to_fp16(1e6F)) == INFINITY);
  CHECK(fp16_to_float(float_to_fp16(1e-9F)) == 0.0F);
  // Half-way between two neighbours: to the even one.
  CHECK(float_to_fp16(1.0F + std::ldexp(1.0F, -11)) == 0x3c00);
  CHECK(float_to_fp16(1.0F + 3 * std::ldexp(1.0F, -11)) == 0x3c02);
  CHECK(float_to_bf16(1.0F + std::ldexp(1.0F, -8)) == 0x3f80);
  CHECK(float_to_bf16(1.0F + 3 * std::ldexp(1.0F, -8)) == 0x3f82);
}
