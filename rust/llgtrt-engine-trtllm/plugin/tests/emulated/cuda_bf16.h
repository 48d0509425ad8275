// CUDA's bfloat16, on the host.
#pragma once

#include "float16.h"

struct __nv_bfloat16 {
  uint16_t bits;
};

inline float __bfloat162float(__nv_bfloat16 value) { return llgtrt::bf16_to_float(value.bits); }
inline __nv_bfloat16 __float2bfloat16_rn(float value) { return {llgtrt::float_to_bf16(value)}; }
