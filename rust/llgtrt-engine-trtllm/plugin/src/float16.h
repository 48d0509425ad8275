// Sixteen-bit floats on the host: rounding to nearest, ties to even, as the GPU does it.
#pragma once

#include <cstdint>
#include <cstring>

namespace llgtrt {

inline uint32_t float_bits(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

inline float bits_float(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline float bf16_to_float(uint16_t value) { return bits_float(static_cast<uint32_t>(value) << 16); }

inline uint16_t float_to_bf16(float value) {
  uint32_t const bits = float_bits(value);
  if ((bits & 0x7fffffffU) > 0x7f800000U) return static_cast<uint16_t>((bits >> 16) | 0x40U);
  return static_cast<uint16_t>((bits + 0x7fffU + ((bits >> 16) & 1U)) >> 16);
}

inline float fp16_to_float(uint16_t value) {
  uint32_t const sign = static_cast<uint32_t>(value & 0x8000U) << 16;
  uint32_t const exponent = (value >> 10) & 0x1fU;
  uint32_t const fraction = value & 0x3ffU;
  if (exponent == 0x1f) return bits_float(sign | 0x7f800000U | (fraction << 13));
  if (exponent != 0) return bits_float(sign | ((exponent + 112) << 23) | (fraction << 13));
  // Subnormal: fraction times 2^-24.
  float const magnitude = static_cast<float>(fraction) * 5.9604644775390625e-8F;
  return sign != 0 ? -magnitude : magnitude;
}

inline uint16_t float_to_fp16(float value) {
  uint32_t const bits = float_bits(value);
  auto const sign = static_cast<uint16_t>((bits >> 16) & 0x8000U);
  uint32_t const magnitude = bits & 0x7fffffffU;
  if (magnitude > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U);
  if (magnitude >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U);
  if (magnitude >= 0x38800000U) {
    uint32_t const rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U);
    return static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
  }
  // Subnormal: adding 0.5 leaves the rounded fraction in the low bits.
  float const shifted = bits_float(magnitude) + 0.5F;
  return static_cast<uint16_t>(sign | (float_bits(shifted) - 0x3f000000U));
}

}  // namespace llgtrt
