// The vector instructions that the kernels are written in, chosen by the compiler's flags.
//
// Names of this and of the files that include it are local to a translation unit: there is one per set of instructions.
//
// One vector holds four bytes of K from each of ROWS rows of a weight matrix, so that one dot instruction
// multiplies them with the same four bytes of an activation and adds up per row.
#pragma once

#include <cstdint>
#include <cstring>

namespace llgtrt::repack {
namespace {

inline int32_t two_bytes(const void * from) {
    uint16_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

inline int32_t four_bytes(const void * from) {
    int32_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

inline float a_float(const void * from) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

}  // namespace
}  // namespace llgtrt::repack

#if defined(__aarch64__)
#    include "isa_neon.h"
#else
#    include "isa_x86.h"
#endif
