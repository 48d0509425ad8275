// Weights of ggml's types of 32-element blocks, rearranged so that a multiplication with several activations unpacks
// each weight once and multiplies ROWS rows by one instruction.
//
// A packed block holds 32 elements (K) of ROWS rows, in as many bytes as ggml's own blocks take:
//
//     d[ROWS]          scales, half
//     m[ROWS]          minima, half           (types with a minimum)
//     high[8][ROWS/2]  the fifth bits         (5-bit types); bit 4 * row + k of group g belongs to element 4 * g + k
//     q[4][4 * ROWS]   nibbles                byte 4 * row + k of vector j: elements 4 * j + k and, high, 16 + 4 * j + k
//     q[8][4 * ROWS]   or bytes (Q8_0)        byte 4 * row + k of vector g: element 4 * g + k, 128 added
//
// Every element is an unsigned number u then, and its value is d * (u - OFFSET), or d * u + m. Activations are
// quantized by ggml's own functions, as for its own kernels; only the order in which floats are added differs. That
// order depends on K alone: a column of the result does not depend on which others are computed with it.
#pragma once

#define GGML_COMMON_DECL_CPP
#include "ggml-common.h"
#include "isa.h"

namespace llgtrt::repack {

constexpr int BLOCK  = 32;
constexpr int GROUPS = BLOCK / 4;

// Quantized activations of a tile of n columns: for each block q[n][BLOCK] (int8), scale[n] (float) and sum[n]. A sum
// is that of the block's values (float), to be multiplied with a minimum, or of its q (int32), with an offset.
struct Tile {
    static constexpr int64_t COLUMN = BLOCK + 2 * sizeof(float);  // bytes of one column's block

    static constexpr int64_t size(int64_t n) { return n * COLUMN; }
    static constexpr int64_t scale(int64_t n) { return n * BLOCK; }
    static constexpr int64_t sum(int64_t n) { return n * (BLOCK + sizeof(float)); }
};

struct Q4_1 {
    using Block = block_q4_1;
    static constexpr bool NIBBLES = true, MINIMUM = true, FIFTH_BIT = false;
    static constexpr int  OFFSET = 0;
};

struct Q5_0 {
    using Block = block_q5_0;
    static constexpr bool NIBBLES = true, MINIMUM = false, FIFTH_BIT = true;
    static constexpr int  OFFSET = 16;
};

struct Q5_1 {
    using Block = block_q5_1;
    static constexpr bool NIBBLES = true, MINIMUM = true, FIFTH_BIT = true;
    static constexpr int  OFFSET = 0;
};

struct Q8_0 {
    using Block = block_q8_0;
    static constexpr bool NIBBLES = false, MINIMUM = false, FIFTH_BIT = false;
    static constexpr int  OFFSET = 128;
};

// Where the parts of a packed block are, in bytes.
template <class Format, class Isa> struct Layout {
    static constexpr int HALVES = 2 * Isa::ROWS;
    static constexpr int BITS   = Isa::ROWS / 2;  // of one group
    static constexpr int MINIMA = HALVES;
    static constexpr int HIGH   = MINIMA + (Format::MINIMUM ? HALVES : 0);
    static constexpr int Q      = HIGH + (Format::FIFTH_BIT ? GROUPS * BITS : 0);
    static constexpr int VECTOR = 4 * Isa::ROWS;
    static constexpr int SIZE   = Q + (Format::NIBBLES ? GROUPS / 2 : GROUPS) * VECTOR;
    static_assert(SIZE == Isa::ROWS * static_cast<int>(sizeof(typename Format::Block)));
};

// Rearranges the block at the same place of ROWS rows; `rows` are the first one's blocks, `stride` blocks apart.
template <class Format, class Isa>
void pack(const typename Format::Block * rows, int64_t stride, uint8_t * to) {
    using At = Layout<Format, Isa>;
    std::memset(to, 0, At::SIZE);
    for (int row = 0; row < Isa::ROWS; row++) {
        const auto & block = rows[row * stride];
        const auto * halves = reinterpret_cast<const uint8_t *>(&block);
        std::memcpy(to + 2 * row, halves, 2);
        if constexpr (Format::MINIMUM) {
            std::memcpy(to + At::MINIMA + 2 * row, halves + 2, 2);
        }
        if constexpr (Format::FIFTH_BIT) {
            for (int element = 0; element < BLOCK; element++) {
                const int bit = 4 * row + element % 4;
                const int set = block.qh[element / 8] >> (element % 8) & 1;
                to[At::HIGH + element / 4 * At::BITS + bit / 8] |= static_cast<uint8_t>(set << bit % 8);
            }
        }
        for (int i = 0; i < static_cast<int>(sizeof block.qs); i++) {
            const auto byte = static_cast<uint8_t>(block.qs[i]);
            to[At::Q + i / 4 * At::VECTOR + 4 * row + i % 4] =
                Format::NIBBLES ? byte : static_cast<uint8_t>(byte ^ 0x80);
        }
    }
}

template <class Format, class Isa> inline void unpack(const uint8_t * block, typename Isa::Ints * u) {
    using At = Layout<Format, Isa>;
    if constexpr (Format::NIBBLES) {
#pragma GCC unroll 4
        for (int j = 0; j < GROUPS / 2; j++) {
            const auto q      = Isa::load(block + At::Q + j * At::VECTOR);
            u[j]              = Isa::low_nibbles(q);
            u[j + GROUPS / 2] = Isa::high_nibbles(q);
        }
    } else {
#pragma GCC unroll 8
        for (int g = 0; g < GROUPS; g++) {
            u[g] = Isa::load(block + At::Q + g * At::VECTOR);
        }
    }
    if constexpr (Format::FIFTH_BIT) {
#pragma GCC unroll 8
        for (int g = 0; g < GROUPS; g++) {
            u[g] = Isa::add_fifth_bit(u[g], block + At::HIGH + g * At::BITS);
        }
    }
}

// ROWS rows of `blocks` packed blocks each, times a tile of N columns. Column c's ROWS floats go to `out + c * stride`
// bytes.
template <class Format, class Isa, int N>
void multiply(const uint8_t * weights, int64_t blocks, const uint8_t * tile, char * out, int64_t stride) {
    using At = Layout<Format, Isa>;
    typename Isa::Floats result[N];
#pragma GCC unroll 16
    for (int c = 0; c < N; c++) {
        result[c] = Isa::zero();
    }
    for (int64_t b = 0; b < blocks; b++, weights += At::SIZE, tile += Tile::size(N)) {
        typename Isa::Ints u[GROUPS];
        unpack<Format, Isa>(weights, u);
        const auto d = Isa::halves(weights);
#pragma GCC unroll 16
        for (int c = 0; c < N; c++) {
            const uint8_t * scale = tile + Tile::scale(N) + c * sizeof(float);
            const uint8_t * total = tile + Tile::sum(N) + c * sizeof(float);
            auto sum = Isa::set1(Format::OFFSET == 0 ? 0 : -Format::OFFSET * four_bytes(total));
#pragma GCC unroll 8
            for (int g = 0; g < GROUPS; g++) {
                sum = Isa::dot(sum, u[g], four_bytes(tile + BLOCK * c + 4 * g));
            }
            result[c] = Isa::fma(Isa::to_float(sum), Isa::mul(d, Isa::set1(a_float(scale))), result[c]);
            if constexpr (Format::MINIMUM) {
                result[c] = Isa::fma(Isa::halves(weights + At::MINIMA), Isa::set1(a_float(total)), result[c]);
            }
        }
    }
#pragma GCC unroll 16
    for (int c = 0; c < N; c++) {
        Isa::store(out + c * stride, result[c]);
    }
}

// The same for a tile of 1 to N columns.
template <class Format, class Isa, int N = Isa::COLUMNS>
void multiply(const uint8_t * weights, int64_t blocks, const uint8_t * tile, int64_t n, char * out, int64_t stride) {
    if (n == N) {
        multiply<Format, Isa, N>(weights, blocks, tile, out, stride);
    } else if constexpr (N > 1) {
        multiply<Format, Isa, N - 1>(weights, blocks, tile, n, out, stride);
    }
}

}  // namespace llgtrt::repack
