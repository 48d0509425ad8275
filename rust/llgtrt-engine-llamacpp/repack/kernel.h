// Products of packed weights and a tile of activations.
//
// The order in which a column's floats are added depends on K alone: it does not matter how many columns a tile has.
#pragma once

#include "tile.h"

namespace llgtrt::repack {
namespace {

// Whether sums of products have nothing taken off for an offset.
template <class Format, class Isa>
constexpr bool WITHOUT_OFFSET = Format::MINIMUM || (FACTOR_BITS<Format> == 8 && Isa::SIGNED_BYTES);

// How many bytes before their use weights are asked for. Hardware does that by itself, but begins anew at every page and
// where the parts of a block do not follow each other.
constexpr int AHEAD      = 4096;
constexpr int CACHE_LINE = 64;

// Asks for `bytes` bytes of packed weights; what lies behind the last of them does no harm.
inline void prefetch(const uint8_t * weights, int bytes) {
    for (int i = 0; i < bytes; i += CACHE_LINE) {
        __builtin_prefetch(weights + i);
    }
}

// The integer products of the G groups at `u` with C columns: `y` are the first one's elements, `totals` what Tile has of them.
// Always inline, as what it is called by and calls: as a call, which GCC makes of it in a file of many types, it would pass its
// vectors through memory.
template <class Format, class Isa, int C, int G>
__attribute__((always_inline)) inline void products_together(
    const typename Isa::Ints * u, const uint8_t * totals, const uint8_t * y, typename Isa::Ints * sums) {
#pragma GCC unroll 16
    for (int i = 0; i < C; i++) {
        sums[i] = Isa::set1(WITHOUT_OFFSET<Format, Isa> ? 0 : four_bytes(totals + 4 * i));
    }
    Isa::template dots<FACTOR_BITS<Format>, G, C>(sums, u, y, BLOCK);
}

// The integer products of the G groups at `u`, those of a block's part, with column `c` of N: `q` are the columns' elements in
// the block, `totals` what Tile has of the part. For one column after the other: `sums` keeps those of TOGETHER<N> columns.
template <class Format, class Isa, int N, int G>
__attribute__((always_inline)) inline typename Isa::Ints integer_products(
    int c, int part, const typename Isa::Ints * u, const uint8_t * totals, const uint8_t * q, typename Isa::Ints * sums) {
    constexpr int TOGETHER = Isa::template TOGETHER<N>;
    q += BLOCK * c;
    totals += 4 * c;
    if (c % TOGETHER == 0) {
        if constexpr (N >= Isa::PAIRED_FROM) {
            const bool alone = c + 1 == N;
            const auto start = WITHOUT_OFFSET<Format, Isa> ? Isa::set1(0)
                               : alone                     ? Isa::set1(four_bytes(totals))
                                                           : Isa::set2(totals);
            Isa::template dots_of_pair<FACTOR_BITS<Format>, G>(start, u, q + (alone ? 4 : 8) * G * part, alone, sums);
        } else if (c + TOGETHER <= N) {
            products_together<Format, Isa, TOGETHER, G>(u, totals, q + 4 * G * part, sums);
        } else if constexpr (N % TOGETHER != 0) {
            products_together<Format, Isa, N % TOGETHER, G>(u, totals, q + 4 * G * part, sums);
        }
    }
    return sums[c % TOGETHER];
}

// The numbers of block `b` of a packed block as integer_products() takes them for N columns.
template <class Format, class Isa, int N> inline void unpack_for(const uint8_t * packed, int b, typename Isa::Ints * u) {
    unpack<Format, Isa>(packed, b, u);
    if constexpr (N >= Isa::PAIRED_FROM) {
        Isa::template pair_up<GROUPS>(u);
    }
}

// The products of ROWS rows of `blocks` packed blocks each with a tile of N columns, for each column the rows'.
template <class Format, class Isa, int N>
void multiply_blocks(const uint8_t * weights, int64_t blocks, const uint8_t * tile, typename Isa::Floats * sums) {
    using At = Layout<Format, Isa>;
    typename Isa::Floats result[N];
#pragma GCC unroll 16
    for (int c = 0; c < N; c++) {
        result[c] = Isa::zero();
    }
    for (int64_t b = 0; b < blocks; b++, weights += At::SIZE, tile += Tile<Format>::size(N)) {
        prefetch(weights + AHEAD, At::SIZE);
        typename Isa::Ints u[GROUPS];
        unpack_for<Format, Isa, N>(weights, 0, u);
        const auto d = block_scales<Format, Isa>(weights);
        const uint8_t * const scales = tile + Tile<Format>::scale(N);
        const uint8_t * const totals = tile + Tile<Format>::sum(N, 0);
        typename Isa::Ints integers[Isa::template TOGETHER<N>];
#pragma GCC unroll 16
        for (int c = 0; c < N; c++) {
            const auto sum = integer_products<Format, Isa, N, GROUPS>(c, 0, u, totals, tile, integers);
            result[c] = Isa::fma(Isa::to_float(sum), Isa::mul(d, Isa::template one_of<N>(scales, c)), result[c]);
            if constexpr (Format::MINIMUM) {
                result[c] = Isa::fma(Isa::halves(weights + At::MINIMA), Isa::template one_of<N>(totals, c), result[c]);
            }
        }
    }
#pragma GCC unroll 16
    for (int c = 0; c < N; c++) {
        sums[c] = result[c];
    }
}

// The integer scales of a superblock's parts, of which vector i has those of 4 * i to 4 * i + 3 as bytes, and its minima in the order
// of Tile's pairs.
template <class Format, class Isa>
inline void read_scale_bytes(const uint8_t * packed, typename Isa::Ints * scales, typename Isa::Ints * minima) {
    using At = Layout<Format, Isa>;
    const auto word = [&](int i) { return Isa::load(packed + At::SCALE + i * At::VECTOR); };
    if constexpr (Format::BITS == 2) {
        // Nibbles: the lower one is a scale, the upper one a minimum.
#pragma GCC unroll 4
        for (int i = 0; i < At::SCALES; i++) {
            const auto both   = word(i);
            scales[i]         = Isa::bits(both, 0x0f0f0f0f);
            minima[2 * i]     = Isa::bits(Isa::right(both, 4), 0x000f000f);
            minima[2 * i + 1] = Isa::bits(Isa::right(both, 12), 0x000f000f);
        }
    } else if constexpr (Format::BITS == 3) {
        // Six bits each: nibbles of words 0 and 1 with two bits of word 2.
#pragma GCC unroll 4
        for (int i = 0; i < 4; i++) {
            const auto lower = Isa::bits(Isa::right(word(i % 2), i / 2 * 4), 0x0f0f0f0f);
            scales[i]        = Isa::either(lower, Isa::left(Isa::bits(Isa::right(word(2), 2 * i), 0x03030303), 4));
        }
    } else if constexpr (Format::MINIMUM) {
        // Six bits each: the lower bytes of words 0 and 1, and nibbles of word 2 with upper bits of words 0 and 1.
        const auto both = [&](int i, int shift) {
            return Isa::either(
                Isa::bits(Isa::right(word(2), shift), 0x0f0f0f0f), Isa::bits(Isa::right(word(i), 2), 0x30303030));
        };
        scales[0] = Isa::bits(word(0), 0x3f3f3f3f);
        scales[1] = both(0, 0);

        const typename Isa::Ints m[2] = {Isa::bits(word(1), 0x3f3f3f3f), both(1, 4)};
#pragma GCC unroll 2
        for (int i = 0; i < 2; i++) {
            minima[2 * i]     = Isa::bits(m[i], 0x00ff00ff);
            minima[2 * i + 1] = Isa::bits(Isa::right(m[i], 8), 0x00ff00ff);
        }
    } else {
#pragma GCC unroll 4
        for (int i = 0; i < At::SCALES; i++) {
            scales[i] = word(i);
        }
    }
}

template <class Format, class Isa> inline typename Isa::Floats superblock_scale(const uint8_t * packed) {
    const auto d = Isa::halves(packed);
    return Format::BITS == 3 ? Isa::mul(d, Isa::set1(0.25F)) : d;
}

// The integer scales of a superblock's parts, and its minima in the order of Tile's pairs.
template <class Format, class Isa>
inline void read_integer_scales(const uint8_t * packed, typename Isa::Ints * scales, typename Isa::Ints * minima) {
    using At = Layout<Format, Isa>;
    if constexpr (SPLIT_SCALES<Format>) {
        // Six bits each, less 32.
        const auto lower = Isa::load(packed + At::SCALE);
        const auto upper = Isa::shorts(packed + At::UPPER);
#pragma GCC unroll 8
        for (int i = 0; i < Format::PARTS; i++) {
            const auto high = Isa::left(Isa::bits(Isa::right(upper, 2 * i), 3), 4);
            const auto part = Isa::either(Isa::bits(Isa::right(lower, 4 * i), 15), high);
            scales[i]       = Isa::plus(part, Isa::set1(-32));
        }
    } else {
        typename Isa::Ints bytes[Format::PARTS / 4];
        read_scale_bytes<Format, Isa>(packed, bytes, minima);
#pragma GCC unroll 16
        for (int i = 0; i < Format::PARTS; i++) {
            const int k = i % 4;
            if constexpr (Format::BITS == 6) {
                scales[i] = Isa::right_signed(Isa::left(bytes[i / 4], 24 - 8 * k), 24);
            } else {
                const auto part = Isa::bits(Isa::right(bytes[i / 4], 8 * k), 0xff);
                scales[i]       = Format::BITS == 3 ? Isa::plus(part, Isa::set1(-32)) : part;
            }
        }
    }
}

// The scales of a superblock's parts, and its integer minima in the order of Tile's pairs.
template <class Format, class Isa>
inline void read_scales(const uint8_t * packed, typename Isa::Floats * scales, typename Isa::Ints * minima) {
    typename Isa::Ints integers[Format::PARTS];
    read_integer_scales<Format, Isa>(packed, integers, minima);
    const auto d = superblock_scale<Format, Isa>(packed);
#pragma GCC unroll 16
    for (int i = 0; i < Format::PARTS; i++) {
        scales[i] = Isa::mul(d, Isa::to_float(integers[i]));
    }
}

// The products of a superblock with column `c` of `n`, less those of its minima: `m` times the integer ones. Always inline, as
// products_together().
template <class Format, class Isa>
__attribute__((always_inline)) inline typename Isa::Floats less_minima(
    typename Isa::Floats products, typename Isa::Floats m, const typename Isa::Ints * minima, const uint8_t * tile, int64_t n,
    int64_t c) {
    if constexpr (!Format::MINIMUM) {
        return products;
    } else {
        auto sum = Isa::set1(0);
#pragma GCC unroll 4
        for (int i = 0; i < Tile<Format>::SUMS; i++) {
            sum = Isa::dot_pairs(sum, minima[i], four_bytes(tile + Tile<Format>::sum(n, i) + 4 * c));
        }
        return Isa::minus_product(Isa::to_float(sum), m, products);
    }
}

// How the products of a superblock's parts, which are integers, are multiplied with their scales and added up: in floats, with scales
// that are floats, and else exactly. Then the superblock's scale comes last, and sums are integers, or floats where these hold them: the
// products of half of the parts stay below 2^24.
enum class Sums { ROUNDED, EXACT_FLOATS, INTEGERS };

template <class Format, class Isa>
constexpr Sums SUMS = !Isa::INTEGER_SCALES                     ? Sums::ROUNDED
                      : Format::BITS <= 4 && !IN_TABLE<Format> ? Sums::EXACT_FLOATS
                                                               : Sums::INTEGERS;
static_assert(QK_K / 2 * 15 * 127 * 63 < 1 << 24, "Q4_K: numbers below 16, scales below 64");
static_assert(QK_K / 2 * 16 * 127 * 32 < 1 << 24, "Q3_K: numbers up to 16, scales up to 32");

// What they are added up in.
template <class Isa, Sums HOW> struct SumOf {
    using Type = typename Isa::Floats;
};
template <class Isa> struct SumOf<Isa, Sums::INTEGERS> {
    using Type = typename Isa::Ints;
};

// The same for superblocks.
template <class Format, class Isa, int N>
void multiply_superblocks(const uint8_t * weights, int64_t blocks, const uint8_t * tile, typename Isa::Floats * sums) {
    using At             = Layout<Format, Isa>;
    constexpr int  BLOCKS = QK_K / BLOCK, PARTS = Format::PARTS / BLOCKS;  // of a superblock; of a block
    constexpr auto HOW    = SUMS<Format, Isa>;
    constexpr int  TURNS  = HOW == Sums::EXACT_FLOATS ? 2 : 1;
    using Sum = typename SumOf<Isa, HOW>::Type;
    for (int64_t b = 0; b < blocks; b++, weights += At::SIZE, tile += Tile<Format>::size(N)) {
        Sum                scales[Format::PARTS];
        typename Isa::Ints minima[Format::PARTS / 2];
        if constexpr (HOW == Sums::ROUNDED) {
            read_scales<Format, Isa>(weights, scales, minima);
        } else {
            typename Isa::Ints integers[Format::PARTS];
            read_integer_scales<Format, Isa>(weights, integers, minima);
#pragma GCC unroll 16
            for (int i = 0; i < Format::PARTS; i++) {
                if constexpr (HOW == Sums::INTEGERS) {
                    scales[i] = integers[i];
                } else {
                    scales[i] = Isa::to_float(integers[i]);
                }
            }
        }
        Sum result[N], first[N];
#pragma GCC unroll 16
        for (int c = 0; c < N; c++) {
            result[c] = Sum{};
        }
#pragma GCC unroll 2
        for (int turn = 0; turn < TURNS; turn++) {
#pragma GCC unroll 16
            for (int c = 0; turn > 0 && c < N; c++) {
                first[c]  = result[c];
                result[c] = Sum{};
            }
#pragma GCC unroll 1
            for (int block = turn * BLOCKS / TURNS; block < (turn + 1) * BLOCKS / TURNS; block++) {
                prefetch(weights + AHEAD + block * (At::SIZE / BLOCKS), At::SIZE / BLOCKS);
                typename Isa::Ints u[GROUPS];
                unpack_for<Format, Isa, N>(weights, block, u);
                typename Isa::Ints integers[PARTS][Isa::template TOGETHER<N>];
#pragma GCC unroll 16
                for (int c = 0; c < N; c++) {
#pragma GCC unroll 2
                    for (int part = 0; part < PARTS; part++) {
                        const int  at     = block * PARTS + part;
                        const auto totals = tile + Tile<Format>::sum(N, at);
                        const auto sum    = integer_products<Format, Isa, N, GROUPS / PARTS>(
                            c, part, u + GROUPS / PARTS * part, totals, tile + BLOCK * block * N, integers[part]);
                        if constexpr (HOW == Sums::INTEGERS) {
                            result[c] = Isa::plus_product(result[c], sum, scales[at]);
                        } else {
                            result[c] = Isa::fma(Isa::to_float(sum), scales[at], result[c]);
                        }
                    }
                }
            }
        }
        const auto d = superblock_scale<Format, Isa>(weights);
        const auto m = Isa::halves(weights + At::MINIMA);  // of those that have one
#pragma GCC unroll 16
        for (int c = 0; c < N; c++) {
            typename Isa::Floats products;
            if constexpr (HOW == Sums::ROUNDED) {
                products = result[c];
            } else if constexpr (HOW == Sums::INTEGERS) {
                products = Isa::mul(Isa::to_float(result[c]), d);
            } else {
                products = Isa::mul(Isa::plus(first[c], result[c]), d);
            }
            products = less_minima<Format, Isa>(products, m, minima, tile, N, c);
            sums[c]  = Isa::fma(products, Isa::template one_of<N>(tile + Tile<Format>::scale(N), c), sums[c]);
        }
    }
}

// Groups of ROWS rows of `blocks` packed blocks each, times a tile of 1 to N columns. Column c's floats go to `out[c] + at`.
template <class Format, class Isa, int N = Isa::COLUMNS>
void multiply(
    const uint8_t * weights, int64_t groups, int64_t blocks, const uint8_t * tile, int64_t n, float * const * out,
    int64_t at) {
    if (n == N) {
        for (int64_t group = 0; group < groups; group++) {
            typename Isa::Floats sums[N];
            for (int c = 0; c < N; c++) {
                sums[c] = Isa::zero();
            }
            if constexpr (SUPER<Format>) {
                multiply_superblocks<Format, Isa, N>(weights, blocks, tile, sums);
            } else {
                multiply_blocks<Format, Isa, N>(weights, blocks, tile, sums);
            }
            for (int c = 0; c < N; c++) {
                Isa::store(out[c] + at, sums[c]);
            }
            weights += blocks * Layout<Format, Isa>::SIZE;
            at += Isa::ROWS;
        }
    } else if constexpr (N > 1) {
        multiply<Format, Isa, N - 1>(weights, groups, blocks, tile, n, out, at);
    }
}

}  // namespace
}  // namespace llgtrt::repack
