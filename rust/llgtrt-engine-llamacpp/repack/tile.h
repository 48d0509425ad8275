// Activations of a few columns, quantized as ggml's own kernels for the same weights do it, so that products differ
// from ggml's in the order of additions alone.
#pragma once

#include "pack.h"

namespace llgtrt::repack {
namespace {

// Whether weights are multiplied as words.
template <class Format> constexpr bool IN_WORDS = FACTOR_BITS<Format> > Isa::MOST_BITS;

// Where the parts of one block of n quantized columns are, in bytes:
//
//     q[n][32]            int8; superblocks: eight of these, or four of q[n][64]. Columns that are multiplied in pairs: by turns
//                         eight of one and eight of the other. int16 where they are multiplied as words: of each four by turns
//                         numbers 0 and 2, and 1 and 3
//     scale[n]            float
//     sums[SUMS][n]       blocks: the sum of the values (float), to be multiplied with a minimum; superblocks: the sums
//                         of the parts' q (int16), in pairs of parts (0, 2), (1, 3), (4, 6), (5, 7) and so on
//                         or, without a minimum, the sum of the q times -OFFSET (int32), of a superblock's part where
//                         its offset is taken off by itself
template <class Format> struct Tile {
    static constexpr bool    PAIRS  = SUPER<Format> && (Format::MINIMUM || (Isa::OFFSET_AT_ONCE && !IN_WORDS<Format>));
    static constexpr int     SUMS   = !SUPER<Format> ? 1 : PAIRS ? Format::PARTS / 2 : Format::PARTS;
    static constexpr int     NUMBER = IN_WORDS<Format> ? 2 : 1;  // bytes of q
    static constexpr int64_t BLOCK_SIZE = BLOCK * NUMBER;
    static constexpr int64_t COLUMN = ELEMENTS<Format> * NUMBER + 4 * (1 + SUMS);  // bytes of one column's block

    static constexpr int64_t size(int64_t n) { return n * COLUMN; }
    static constexpr int64_t scale(int64_t n) { return n * ELEMENTS<Format> * NUMBER; }
    static constexpr int64_t sum(int64_t n, int64_t i) { return scale(n) + 4 * n * (1 + i); }
};

// Where element `i` of a block of column `c` of `n` is, in bytes from the first column's.
template <class Isa> inline int64_t place(int64_t c, int64_t n, int64_t i) {
    const bool alone = n < Isa::PAIRED_FROM || (c | 1) == n;
    return alone ? BLOCK * c + i : BLOCK * (c & ~1) + i / 8 * 16 + c % 2 * 8 + i % 8;
}

constexpr int LONG = 2 * BLOCK;  // elements of a superblock's column that may lie side by side

// Stores elements `i` and the next ones of a block or superblock of column `c` of `n`, which begins at `block`.
template <class Format, class Isa>
inline void store_numbers(uint8_t * block, int64_t c, int64_t n, int64_t i, typename Isa::Ints q) {
    if (SUPER<Format> && n >= Isa::LONG_FROM) {
        Isa::store_bytes(block + i / LONG * LONG * n + LONG * c + i % LONG, q);
        return;
    }
    block += i / BLOCK * Tile<Format>::BLOCK_SIZE * n;
    i %= BLOCK;
    if constexpr (IN_WORDS<Format>) {
        Isa::store_words(block + 2 * (BLOCK * c + i), q);
    } else {
        Isa::store_bytes(block + place<Isa>(c, n, i), q);
    }
}

template <class T> inline void put(uint8_t * at, T value) {
    static_assert(sizeof value == 4);
    std::memcpy(at, &value, sizeof value);
}

// Quantizes a superblock into column `c` of `n`, to the numbers that ggml's Q8_K has, all signs perhaps turned: its
// scale is negative where the number with the largest absolute value is positive.
template <class Format, class Isa> void quantize_super(const float * from, uint8_t * tile, int64_t c, int64_t n) {
    auto largest = Isa::zero();
    for (int i = 0; i < QK_K; i += Isa::ROWS) {
        largest = Isa::larger_absolute(largest, Isa::load_floats(from + i));
    }
    const float absolute = Isa::largest(largest);
    const float inverse  = absolute > 0 ? 127.0F / absolute : 0.0F;
    constexpr int PART = QK_K / Format::PARTS;
    int32_t       sums[Format::PARTS];
    for (int part = 0; part < Format::PARTS; part++) {
        auto sum = Isa::set1(0);
#pragma GCC unroll 4
        for (int i = part * PART; i < (part + 1) * PART; i += Isa::ROWS) {
            const auto q = Isa::round(Isa::mul(Isa::load_floats(from + i), Isa::set1(inverse)));
            sum          = Isa::plus(sum, q);
            store_numbers<Format, Isa>(tile, c, n, i, q);
        }
        sums[part] = Isa::total(sum);
    }

    put(tile + Tile<Format>::scale(n) + 4 * c, absolute > 0 ? 1.0F / inverse : 0.0F);
    for (int i = 0; i < Tile<Format>::SUMS; i++) {
        uint8_t * const at = tile + Tile<Format>::sum(n, i) + 4 * c;
        if constexpr (Tile<Format>::PAIRS) {
            const int low = i / 2 * 4 + i % 2;
            put(at, static_cast<uint32_t>(sums[low] & 0xffff) | static_cast<uint32_t>(sums[low + 2]) << 16);
        } else {
            put(at, -Format::OFFSET * sums[i]);
        }
    }
}

// Quantizes N blocks into column `c` of `n`, to the numbers that ggml's Q8_0 and Q8_1 have on x86. Each step is done for all
// blocks before the next one begins: a block alone would wait for every one of them. What there is one of for each block stays out
// of vectors: put together in memory, they would be waited for until all that was stored before is there.
template <class Format, class Isa, int N>
void quantize_blocks(const float * from, uint8_t * tile, int64_t c, int64_t n) {
    constexpr int VECTORS = BLOCK / Isa::ROWS;
    float         absolute[N], inverse[N];
    int32_t       sum[N];

    const auto numbers = [&](int b, int i) { return Isa::load_floats(from + b * BLOCK + i * Isa::ROWS); };
#pragma GCC unroll 8
    for (int b = 0; b < N; b++) {
        auto largest = Isa::zero();
#pragma GCC unroll 8
        for (int i = 0; i < VECTORS; i++) {
            largest = Isa::larger_absolute(largest, numbers(b, i));
        }
        absolute[b] = Isa::largest(largest);
    }
#pragma GCC unroll 8
    for (int b = 0; b < N; b++) {
        inverse[b] = absolute[b] > 0 ? 127.0F / absolute[b] : 0.0F;
    }
#pragma GCC unroll 8
    for (int b = 0; b < N; b++) {
        auto total = Isa::set1(0);
#pragma GCC unroll 8
        for (int i = 0; i < VECTORS; i++) {
            const auto q = Isa::round(Isa::mul(numbers(b, i), Isa::set1(inverse[b])));
            total        = Isa::plus(total, q);
            store_numbers<Format, Isa>(tile + b * Tile<Format>::size(n), c, n, i * Isa::ROWS, q);
        }
        sum[b] = Isa::total(total);
    }
#pragma GCC unroll 8
    for (int b = 0; b < N; b++) {
        const float     scale = absolute[b] / 127.0F;
        uint8_t * const to    = tile + b * Tile<Format>::size(n) + 4 * c;
        put(to + Tile<Format>::scale(n), Isa::through_half(scale));
        if constexpr (Format::MINIMUM) {
            put(to + Tile<Format>::sum(n, 0), Isa::through_half(scale * static_cast<float>(sum[b])));
        } else {
            put(to + Tile<Format>::sum(n, 0), -Format::OFFSET * sum[b]);
        }
    }
}

// The same for 0 to N blocks.
template <class Format, class Isa, int N>
void quantize_last(const float * from, int64_t count, uint8_t * tile, int64_t c, int64_t n) {
    if (count == N) {
        quantize_blocks<Format, Isa, N>(from, tile, c, n);
    } else if constexpr (N > 1) {
        quantize_last<Format, Isa, N - 1>(from, count, tile, c, n);
    }
}

// Quantizes `count` blocks of column `c` of `n`; `tile` is the first one's.
template <class Format, class Isa>
void quantize(const float * from, int64_t count, uint8_t * tile, int64_t c, int64_t n) {
    if constexpr (SUPER<Format>) {
        for (int64_t i = 0; i < count; i++, from += ELEMENTS<Format>, tile += Tile<Format>::size(n)) {
            quantize_super<Format, Isa>(from, tile, c, n);
        }
    } else {
        constexpr int MANY = 8;
        for (; count >= MANY; count -= MANY, from += MANY * BLOCK, tile += MANY * Tile<Format>::size(n)) {
            quantize_blocks<Format, Isa, MANY>(from, tile, c, n);
        }
        quantize_last<Format, Isa, MANY - 1>(from, count, tile, c, n);
    }
}

}  // namespace
}  // namespace llgtrt::repack
