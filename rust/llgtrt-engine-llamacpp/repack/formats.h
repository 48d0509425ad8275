// ggml's quantized types, as the kernel wants to know them.
//
// A weight is an unsigned number u of BITS bits, times a scale, less OFFSET times the scale or plus a minimum. A block
// is 32 weights with one scale and perhaps a minimum, both halves; the scale of MXFP4 is a power of two, of which a byte is the
// exponent. A superblock of the K types is 256 weights in PARTS parts; a part's scale is the superblock's times a small integer, its
// minimum likewise. The numbers of the IQ4 types and of MXFP4 stand for those of a table.
#pragma once

#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace llgtrt::repack {
namespace {

constexpr int BLOCK = 32;

// u[i] and u[i + n] of the two halves of n bytes.
template <int n> inline void read_nibbles(const uint8_t * q, uint8_t * u) {
    for (int i = 0; i < n; i++) {
        u[i]     = q[i] & 15;
        u[i + n] = q[i] >> 4;
    }
}

// Adds bit `bit` of each byte, as number 16.
template <int n> inline void read_fifth_bits(const uint8_t * bytes, int bit, uint8_t * u) {
    for (int i = 0; i < n; i++) {
        u[i] |= static_cast<uint8_t>((bytes[i] >> bit & 1) << 4);
    }
}

struct Q4_0 {
    using Block = block_q4_0;
    static constexpr int  BITS = 4, OFFSET = 8, PARTS = 1;
    static constexpr bool MINIMUM = false;
    static void           read(const Block & block, uint8_t * u) { read_nibbles<16>(block.qs, u); }
};

struct Q4_1 {
    using Block = block_q4_1;
    static constexpr int  BITS = 4, OFFSET = 0, PARTS = 1;
    static constexpr bool MINIMUM = true;
    static void           read(const Block & block, uint8_t * u) { read_nibbles<16>(block.qs, u); }
};

template <class B, int offset> struct FiveBits {
    using Block = B;
    static constexpr int  BITS = 5, OFFSET = offset, PARTS = 1;
    static constexpr bool MINIMUM = offset == 0;

    static void read(const Block & block, uint8_t * u) {
        read_nibbles<16>(block.qs, u);
        uint32_t high;
        std::memcpy(&high, block.qh, sizeof high);
        for (int i = 0; i < BLOCK; i++) {
            u[i] |= static_cast<uint8_t>((high >> i & 1) << 4);
        }
    }
};

using Q5_0 = FiveBits<block_q5_0, 16>;
using Q5_1 = FiveBits<block_q5_1, 0>;

struct Q8_0 {
    using Block = block_q8_0;
    static constexpr int  BITS = 8, OFFSET = 128, PARTS = 1;
    static constexpr bool MINIMUM = false;

    static void read(const Block & block, uint8_t * u) {
        for (int i = 0; i < BLOCK; i++) {
            u[i] = static_cast<uint8_t>(block.qs[i]) ^ 0x80;
        }
    }
};

// u[i] of 128 numbers, 32 of which are two bits of each of 32 bytes.
inline void read_two_bits(const uint8_t * q, uint8_t * u) {
    for (int i = 0; i < 128; i++) {
        u[i] = q[i % 32] >> 2 * (i / 32) & 3;
    }
}

struct Q2_K {
    using Block = block_q2_K;
    static constexpr int  BITS = 2, OFFSET = 0, PARTS = 16;
    static constexpr bool MINIMUM = true;

    static void read(const Block & block, uint8_t * u) {
        for (int half = 0; half < 2; half++) {
            read_two_bits(block.qs + 32 * half, u + 128 * half);
        }
    }
};

// Its numbers are multiplied four times as large, and the scales by a quarter.
struct Q3_K {
    using Block = block_q3_K;
    static constexpr int  BITS = 3, OFFSET = 4 * 4, PARTS = 16;
    static constexpr bool MINIMUM = false;

    static void read(const Block & block, uint8_t * u) {
        for (int half = 0; half < 2; half++) {
            read_two_bits(block.qs + 32 * half, u + 128 * half);
        }
        for (int i = 0; i < QK_K; i++) {
            u[i] |= static_cast<uint8_t>((block.hmask[i % 32] >> i / 32 & 1) << 2);
        }
    }
};

struct Q4_K {
    using Block = block_q4_K;
    static constexpr int  BITS = 4, OFFSET = 0, PARTS = 8;
    static constexpr bool MINIMUM = true;

    static void read(const Block & block, uint8_t * u) {
        for (int i = 0; i < 4; i++) {
            read_nibbles<32>(block.qs + 32 * i, u + 64 * i);
        }
    }
};

struct Q5_K {
    using Block = block_q5_K;
    static constexpr int  BITS = 5, OFFSET = 0, PARTS = 8;
    static constexpr bool MINIMUM = true;

    static void read(const Block & block, uint8_t * u) {
        for (int i = 0; i < 4; i++) {
            read_nibbles<32>(block.qs + 32 * i, u + 64 * i);
            read_fifth_bits<32>(block.qh, 2 * i, u + 64 * i);
            read_fifth_bits<32>(block.qh, 2 * i + 1, u + 64 * i + 32);
        }
    }
};

struct Q6_K {
    using Block = block_q6_K;
    static constexpr int  BITS = 6, OFFSET = 32, PARTS = 16;
    static constexpr bool MINIMUM = false;

    static void read(const Block & block, uint8_t * u) {
        for (int half = 0; half < 2; half++, u += 128) {
            read_nibbles<64>(block.ql + 64 * half, u);
            for (int i = 0; i < 128; i++) {
                u[i] |= static_cast<uint8_t>((block.qh[32 * half + i % 32] >> 2 * (i / 32) & 3) << 4);
            }
        }
    }
};

struct IQ4_NL {
    using Block = block_iq4_nl;
    static constexpr int  BITS = 4, OFFSET = 128, PARTS = 1;
    static constexpr bool MINIMUM = false;
    static void           read(const Block & block, uint8_t * u) { read_nibbles<16>(block.qs, u); }
};

struct IQ4_XS {
    using Block = block_iq4_xs;
    static constexpr int  BITS = 4, OFFSET = 128, PARTS = 8;
    static constexpr bool MINIMUM = false;

    static void read(const Block & block, uint8_t * u) {
        for (int i = 0; i < PARTS; i++) {
            read_nibbles<16>(block.qs + 16 * i, u + 32 * i);
        }
    }
};

struct MXFP4 {
    using Block = block_mxfp4;
    static constexpr int  BITS = 4, OFFSET = 12, PARTS = 1;
    static constexpr bool MINIMUM = false;
    static void           read(const Block & block, uint8_t * u) { read_nibbles<16>(block.qs, u); }
};

template <class Format> constexpr bool SUPER = Format::PARTS > 1;
// Whether the numbers are places in a table: TABLE[u] is what stands there, plus OFFSET. ggml's kvalues_iq4nl, and its kvalues_mxfp4,
// which are twice what they stand for.
template <class Format> constexpr bool IN_TABLE = false;
template <> constexpr bool             IN_TABLE<IQ4_NL> = true;
template <> constexpr bool             IN_TABLE<IQ4_XS> = true;
template <> constexpr bool             IN_TABLE<MXFP4>  = true;
template <class Format>
constexpr uint8_t TABLE[16] = {1, 24, 45, 63, 79, 93, 106, 118, 129, 141, 153, 166, 181, 197, 217, 241};
template <>
constexpr uint8_t TABLE<MXFP4>[16] = {12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0};
// Bits of the numbers that are multiplied.
template <class Format> constexpr int FACTOR_BITS = IN_TABLE<Format> ? 8 : Format::BITS <= 3 ? 5 : Format::BITS;
template <> constexpr int             FACTOR_BITS<MXFP4> = 5;
// Whether the scales of the parts have four bits, and the two upper ones of all are in a half behind the superblock's scale.
template <class Format> constexpr bool SPLIT_SCALES = false;
template <> constexpr bool             SPLIT_SCALES<IQ4_XS> = true;

// Four bytes each, of the integer scales of a superblock's parts.
template <class Format> constexpr int SCALE_WORDS = 0;
template <> constexpr int             SCALE_WORDS<Q2_K> = sizeof block_q2_K::scales / 4;
template <> constexpr int             SCALE_WORDS<Q3_K> = sizeof block_q3_K::scales / 4;
template <> constexpr int             SCALE_WORDS<Q4_K> = sizeof block_q4_K::scales / 4;
template <> constexpr int             SCALE_WORDS<Q5_K> = sizeof block_q5_K::scales / 4;
template <> constexpr int             SCALE_WORDS<Q6_K> = sizeof block_q6_K::scales / 4;
template <> constexpr int             SCALE_WORDS<IQ4_XS> = sizeof block_iq4_xs::scales_l / 4;

// The integer scales of a superblock's parts.
template <class Block> const uint8_t * scales_of(const Block & block) {
    return reinterpret_cast<const uint8_t *>(block.scales);
}
inline const uint8_t * scales_of(const block_iq4_xs & block) { return block.scales_l; }

// Where a block's scale is, in bytes, and how many it has; its minimum follows. One byte is the exponent of a power of two.
template <class Format> constexpr int SCALE_BYTES = 2;
template <> constexpr int             SCALE_BYTES<MXFP4> = 1;
template <class Format> constexpr int SCALE_AT = 0;
template <> constexpr int             SCALE_AT<Q2_K> = sizeof(block_q2_K) - 4;
template <> constexpr int             SCALE_AT<Q3_K> = offsetof(block_q3_K, d);
template <> constexpr int             SCALE_AT<Q6_K> = offsetof(block_q6_K, d);

template <class Format> constexpr int ELEMENTS = SUPER<Format> ? QK_K : BLOCK;

}  // namespace
}  // namespace llgtrt::repack
