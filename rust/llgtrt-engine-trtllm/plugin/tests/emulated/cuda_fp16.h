// CUDA's half precision, on the host.
#pragma once

#include "float16.h"

struct __half {
  uint16_t bits;
};

inline float __half2float(__half value) { return llgtrt::fp16_to_float(value.bits); }
inline __half __float2half_rn(float value) { return {llgtrt::float_to_fp16(value)}; }
