// Activations of a few columns, quantized as ggml's own kernels for the same weights do it, so that products differ
// from ggml's in the order of additions alone.
#pragma once

#include <type_traits>

#include "ggml-cpu.h"
#include "pack.h"

namespace llgtrt::repack {
namespace {

// Where the parts of one block of n quantized columns are, in bytes:
//
//     q[n][32]            int8; superblocks: eight of these
//     scale[n]            float
//     sums[SUMS][n]       blocks: the sum of the values (float), to be multiplied with a minimum; superblocks: the sums
//                         of q (int16) over 32 elements, in pairs of parts (0, 2), (1, 3), (4, 6), (5, 7)
//                         or, without a minimum, the sum of the part's q times -OFFSET (int32)
template <class Format> struct Tile {
    static constexpr int     SUMS   = !SUPER<Format> ? 1 : Format::MINIMUM ? Format::PARTS / 2 : Format::PARTS;
    static constexpr int64_t COLUMN = ELEMENTS<Format> + 4 * (1 + SUMS);  // bytes of one column's block

    static constexpr int64_t size(int64_t n) { return n * COLUMN; }
    static constexpr int64_t scale(int64_t n) { return n * ELEMENTS<Format>; }
    static constexpr int64_t sum(int64_t n, int64_t i) { return scale(n) + 4 * n * (1 + i); }
};

inline int32_t sum_of(const int8_t * q, int count) {
    int32_t sum = 0;
    for (int i = 0; i < count; i++) {
        sum += q[i];
    }
    return sum;
}

template <class T> inline void put(uint8_t * at, T value) {
    static_assert(sizeof value == 4);
    std::memcpy(at, &value, sizeof value);
}

// Blocks of a column that a thread quantizes at a time.
template <class Format> constexpr int64_t QUANTIZED_AT_ONCE = SUPER<Format> ? 1 : 8;

// Quantizes a superblock into column `c` of `n`, to the numbers that ggml's Q8_K has, all signs perhaps turned: its
// scale is negative where the number with the largest absolute value is positive.
template <class Format, class Isa> void quantize_super(const float * from, uint8_t * tile, int64_t c, int64_t n) {
    auto largest = Isa::zero();
    for (int i = 0; i < QK_K; i += Isa::ROWS) {
        largest = Isa::larger_absolute(largest, Isa::load_floats(from + i));
    }
    const float absolute = Isa::largest(largest);
    const float inverse  = absolute > 0 ? 127.0F / absolute : 0.0F;
    int8_t      q[QK_K];
    for (int i = 0; i < QK_K; i += Isa::ROWS) {
        Isa::round_to_bytes(Isa::mul(Isa::load_floats(from + i), Isa::set1(inverse)), q + i);
    }
    constexpr int PART = QK_K / Format::PARTS;
    int32_t       sums[Format::PARTS];
    for (int part = 0; part < Format::PARTS; part++) {
        sums[part] = sum_of(q + part * PART, PART);
    }

    for (int b = 0; b < QK_K / BLOCK; b++) {
        std::memcpy(tile + BLOCK * (b * n + c), q + BLOCK * b, BLOCK);
    }
    put(tile + Tile<Format>::scale(n) + 4 * c, absolute > 0 ? 1.0F / inverse : 0.0F);
    for (int i = 0; i < Tile<Format>::SUMS; i++) {
        uint8_t * const at = tile + Tile<Format>::sum(n, i) + 4 * c;
        if constexpr (Format::MINIMUM) {
            const int low = i / 2 * 4 + i % 2;
            put(at, static_cast<uint32_t>(sums[low] & 0xffff) | static_cast<uint32_t>(sums[low + 2]) << 16);
        } else {
            put(at, -Format::OFFSET * sums[i]);
        }
    }
}

// Quantizes `count` blocks, at most QUANTIZED_AT_ONCE, of column `c` of `n`; `tile` is the first one's.
template <class Format, class Isa>
void quantize(const float * from, int64_t count, uint8_t * tile, int64_t c, int64_t n) {
    if constexpr (SUPER<Format>) {
        for (int64_t i = 0; i < count; i++) {
            quantize_super<Format, Isa>(from + i * QK_K, tile + i * Tile<Format>::size(n), c, n);
        }
    } else {
        using Quantized     = std::conditional_t<Format::MINIMUM, block_q8_1, block_q8_0>;
        constexpr auto TYPE = Format::MINIMUM ? GGML_TYPE_Q8_1 : GGML_TYPE_Q8_0;
        Quantized      quantized[QUANTIZED_AT_ONCE<Format>];
        ggml_get_type_traits_cpu(TYPE)->from_float(from, quantized, count * BLOCK);
        for (int64_t i = 0; i < count; i++, tile += Tile<Format>::size(n)) {
            const Quantized & source = quantized[i];
            std::memcpy(tile + BLOCK * c, source.qs, BLOCK);
            ggml_half halves[2];  // the scale; of block_q8_1 the sum as well
            std::memcpy(halves, &source, sizeof halves);
            put(tile + Tile<Format>::scale(n) + 4 * c, ggml_fp16_to_fp32(halves[0]));
            uint8_t * const sum = tile + Tile<Format>::sum(n, 0) + 4 * c;
            if constexpr (Format::MINIMUM) {
                put(sum, ggml_fp16_to_fp32(halves[1]));
            } else {
                put(sum, -Format::OFFSET * sum_of(source.qs, BLOCK));
            }
        }
    }
}

}  // namespace
}  // namespace llgtrt::repack
