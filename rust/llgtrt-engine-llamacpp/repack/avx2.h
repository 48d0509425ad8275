// Products of packed weights and a tile of activations by AVX2 alone, whose instruction for bytes adds up two products in 16 bits.
//
// Of numbers of up to six bits so many pairs as have room are added up in 16 bits. These sums are multiplied with the integer scales of
// superblocks' parts, or with 1, and added up in 32 bits. Numbers of eight bits, of which no pair has room, are multiplied as words:
// columns are quantized to words for them.
//
// The number of instructions is what limits it. So weights are unpacked to memory once for all columns of a tile, and the rows of two
// vectors are multiplied with up to four columns at a time: more have no room in the registers. These rows are one group, whose packed
// block is one of each half behind the other.
//
// As in kernel.h, the order in which a column's floats are added depends on K alone.
#pragma once

#include <array>
#include <type_traits>

#include "avx2_steps.h"
#include "kernel.h"

namespace llgtrt::repack {
namespace {

constexpr int TILE_COLUMNS = 32;
constexpr int HALVES       = 2;  // of a group of rows
constexpr int GROUP_ROWS   = HALVES * Isa::ROWS;
// Whether numbers are packed in the order in which they are multiplied, as signed bytes: nothing unpacks them but the multiplication.
template <class Format> constexpr bool IN_ORDER = Format::BITS == 8;
// So few columns take less time where the numbers are not written to memory first.
template <class Format> constexpr int NARROW = IN_ORDER<Format> ? 0 : IN_WORDS<Format> ? 1 : 2;
// What is multiplied at a time of more.
constexpr int COLUMNS_TOGETHER = 4;
constexpr int BLOCKS_TOGETHER  = QK_K / BLOCK;

// Calls `f` with `n` of 1 to N, as a constant.
template <int N, class F> inline void with_constant(int64_t n, const F & f) {
    if constexpr (N > 0) {
        n == N ? f(std::integral_constant<int, N>()) : with_constant<N - 1>(n, f);
    }
}

// Parts of a block, and groups of a part.
template <class Format> constexpr int PARTS_OF_BLOCK = SUPER<Format> ? Format::PARTS / BLOCKS_TOGETHER : 1;
template <class Format> constexpr int GROUPS_OF_PART = GROUPS / PARTS_OF_BLOCK<Format>;
// Vectors of a block's numbers, of one half of the rows.
template <class Format> constexpr int VECTORS = IN_WORDS<Format> ? 2 * GROUPS : GROUPS;

// Groups whose pairs of products have room in 16 bits together.
template <class Format> constexpr int groups_together() {
    constexpr int BITS = FACTOR_BITS<Format>, MOST = BITS == 6 ? 2 : BITS == 5 ? 4 : 8;
    static_assert(IN_WORDS<Format> || MOST * 2 * ((1 << BITS) - 1) * 128 < 1 << 15);
    return MOST < GROUPS_OF_PART<Format> ? MOST : GROUPS_OF_PART<Format>;
}

// Numbers out of a table become words that are 256 times as large, which takes fewer instructions than to extend their signs. The sums of
// a block have room in 32 bits, and what they are multiplied with is a 256th of the scale.
constexpr float OF_SCALE = 0x1p-8F;

// What stands in the table, as signed bytes.
template <class Format> constexpr auto SIGNED_TABLE = [] {
    std::array<uint8_t, sizeof TABLE<Format>> table{};
    for (size_t i = 0; i < table.size(); i++) {
        table[i] = static_cast<uint8_t>(TABLE<Format>[i] - Format::OFFSET);
    }
    return table;
}();

// Calls `take` with each group of a block's numbers out of a table, of each half of the rows, as words: of each four bytes 0 and 2, and 1
// and 3, see Tile. `q` is where they are packed.
template <class Format, class Take> __attribute__((always_inline)) inline void for_each_words(const uint8_t * q, const Take & take) {
    static_assert(IN_TABLE<Format> && IN_WORDS<Format>);
    using At = Layout<Format, Isa>;
#pragma GCC unroll 4
    for (int g = 0; g < GROUPS / 2; g++) {
#pragma GCC unroll 2
        for (int half = 0; half < HALVES; half++) {
            const auto both    = Isa::load(q + half * At::SIZE + g * At::VECTOR);
            const auto numbers = [&](int group, Isa::Ints places) __attribute__((always_inline)) {
                const auto bytes = Isa::look_up(SIGNED_TABLE<Format>.data(), places);
                take(group, half, _mm256_slli_epi16(bytes, 8), Isa::bits(bytes, static_cast<int32_t>(0xff00ff00)));
            };
            numbers(g, Isa::bits(both, 0x0f0f0f0f));
            numbers(GROUPS / 2 + g, Isa::upper_nibbles(both));
        }
    }
}

// The numbers of block `b` of a packed block, of both halves by turns, as they are multiplied.
template <class Format> __attribute__((always_inline)) inline void unpack_halves(const uint8_t * packed, int b, Isa::Ints * to) {
    using At = Layout<Format, Isa>;
    if constexpr (IN_WORDS<Format>) {
        const auto take = [&](int group, int half, Isa::Ints even, Isa::Ints odd) __attribute__((always_inline)) {
            to[2 * group * HALVES + half]       = even;
            to[(2 * group + 1) * HALVES + half] = odd;
        };
        for_each_words<Format>(packed + At::Q + b * At::Q_SIZE, take);
    } else {
#pragma GCC unroll 2
        for (int half = 0; half < HALVES; half++) {
            Isa::Ints u[GROUPS];
            unpack<Format, Isa>(packed + half * At::SIZE, b, u);
#pragma GCC unroll 8
            for (int g = 0; g < GROUPS; g++) {
                to[g * HALVES + half] = u[g];
            }
        }
    }
}

// The scale of a superblock, the integer ones of its parts, each in both halves of 32 bits, and by pairs of parts as Tile has them its
// minima, or else these scales once more.
template <class Format> inline Isa::Floats read_factors(const uint8_t * packed, Isa::Ints * factors, Isa::Ints * less) {
    constexpr bool SIGNED = Format::BITS == 6;
    Isa::Ints      bytes[Format::PARTS / 4];
    read_scale_bytes<Format, Isa>(packed, bytes, less);
#pragma GCC unroll 16
    for (int i = 0; i < Format::PARTS; i++) {
        // To the lower bytes of words, or where there is a sign to the upper ones.
        constexpr char NONE  = -1;
        const char     k     = static_cast<char>(i % 4), low = SIGNED ? NONE : k, high = SIGNED ? k : NONE;
        const auto     place = _mm_or_si128(
            _mm_setr_epi8(0, 0, 0, 0, 4, 4, 4, 4, 8, 8, 8, 8, 12, 12, 12, 12),
            _mm_setr_epi8(low, high, low, high, low, high, low, high, low, high, low, high, low, high, low, high));
        const auto words = _mm256_shuffle_epi8(bytes[i / 4], _mm256_broadcastsi128_si256(place));
        factors[i]       = SIGNED               ? _mm256_srai_epi16(words, 8)
                           : Format::BITS == 3 ? _mm256_sub_epi16(words, _mm256_set1_epi16(32))
                                               : words;
    }
    if constexpr (!Format::MINIMUM) {
#pragma GCC unroll 8
        for (int i = 0; i < Format::PARTS / 2; i++) {
            const int low = i / 2 * 4 + i % 2;
            less[i]       = _mm256_blend_epi16(factors[low], factors[low + 2], 0xaa);
        }
    }
    return superblock_scale<Format, Isa>(packed);
}

// What a span has beside numbers: a superblock, or blocks that are multiplied at a time. The last index is the half of the rows.
template <class Format> struct Scales {
    static constexpr int BLOCKS = SUPER<Format> ? 1 : BLOCKS_TOGETHER;
    // Whether the scales of parts are multiplied as integers. Where they are not they are floats, as those of blocks.
    static constexpr bool INTEGERS = SUPER<Format> && !IN_WORDS<Format>;
    static constexpr int  FLOATS   = SUPER<Format> && !INTEGERS ? Format::PARTS : BLOCKS;

    Isa::Floats d[FLOATS][HALVES], m[BLOCKS][HALVES];
    Isa::Ints   factors[Format::PARTS][HALVES], less[Format::PARTS][HALVES];

    // Of `count` packed blocks.
    __attribute__((always_inline)) Scales(const uint8_t * weights, int64_t count) {
        constexpr int SIZE = Layout<Format, Isa>::SIZE;
#pragma GCC unroll 2
        for (int half = 0; half < HALVES; half++, weights += SIZE) {
            if constexpr (INTEGERS) {
                Isa::Ints f[Format::PARTS], l[Format::PARTS / 2];
                d[0][half] = read_factors<Format>(weights, f, l);
#pragma GCC unroll 16
                for (int i = 0; i < Format::PARTS; i++) {
                    factors[i][half] = f[i];
                }
#pragma GCC unroll 8
                for (int i = 0; i < Format::PARTS / 2; i++) {
                    less[i][half] = l[i];
                }
            } else if constexpr (SUPER<Format>) {
                Isa::Floats scales[Format::PARTS];
                read_scales<Format, Isa>(weights, scales, nullptr);
#pragma GCC unroll 8
                for (int i = 0; i < Format::PARTS; i++) {
                    d[i][half] = Isa::mul(scales[i], Isa::set1(OF_SCALE));
                }
            } else {
                factors[0][half] = _mm256_set1_epi16(1);
                for (int64_t b = 0; b < count; b++) {
                    const auto scale = block_scales<Format, Isa>(weights + b * HALVES * SIZE);
                    d[b][half]       = IN_WORDS<Format> && !IN_ORDER<Format> ? Isa::mul(scale, Isa::set1(OF_SCALE)) : scale;
                }
            }
            if constexpr (Format::MINIMUM) {
                for (int64_t b = 0; b < count; b++) {
                    m[b][half] = Isa::halves(weights + b * HALVES * SIZE + Layout<Format, Isa>::MINIMA);
                }
            }
        }
    }
};

// What FromMemory does, for numbers that are in registers: by what the compiler makes of it.
template <int C> struct FromRegisters {
    template <int STEPS>
    __attribute__((always_inline)) static void add_products(
        const Isa::Ints * u, const uint8_t * q, const Isa::Ints * factors, Isa::Ints * sums) {
#pragma GCC unroll 4
        for (int i = 0; i < C * HALVES; i++) {
            auto pairs = _mm256_setzero_si256();
#pragma GCC unroll 8
            for (int step = 0; step < STEPS; step++) {
                const auto four = Isa::set1(four_bytes(q + BLOCK * (i / HALVES) + 4 * step));
                pairs           = _mm256_add_epi16(pairs, _mm256_maddubs_epi16(u[step * HALVES + i % HALVES], four));
            }
            sums[i] = Isa::plus(sums[i], _mm256_madd_epi16(pairs, factors[i % HALVES]));
        }
    }
};

// The same of words out of a table, with one column. Registers have no room for a block of them: they are unpacked as they are multiplied.
template <class Format> struct FromPacked {
    __attribute__((always_inline)) static void multiply_words(const uint8_t * packed, const uint8_t * q, Isa::Ints * sums) {
        sums[0] = sums[1] = Isa::set1(0);
        for_each_words<Format>(packed, [&](int group, int half, Isa::Ints even, Isa::Ints odd) __attribute__((always_inline)) {
            sums[half] = Isa::dot_pairs(sums[half], even, four_bytes(q + 8 * group));
            sums[half] = Isa::dot_pairs(sums[half], odd, four_bytes(q + 8 * group + 4));
        });
    }
};

// Adds to `sums`, by column and half of the rows, the products of a span with C of the `n` columns of a tile, from column `first` on.
// `numbers` has the numbers of each of its `blocks`.
template <class Format, class Products, int C, class Numbers>
__attribute__((always_inline)) inline void add_span(
    Isa::Floats * sums, const Scales<Format> & scales, int64_t blocks, const Numbers & numbers, const uint8_t * tile, int64_t n,
    int64_t first) {
    constexpr int  G = groups_together<Format>(), R = HALVES;
    constexpr bool IN_MEMORY = std::is_same_v<Products, FromMemory<C>>;
    using At                 = Tile<Format>;
    Isa::Ints  products[C * R];
    const auto number = [&](const uint8_t * of_all, int c) { return four_bytes(of_all + 4 * (first + c)); };
    const auto real   = [&](const uint8_t * of_all, int c) { return Isa::set1(a_float(of_all + 4 * (first + c))); };
    if constexpr (Scales<Format>::INTEGERS) {
#pragma GCC unroll 8
        for (auto & sum : products) {
            sum = Isa::set1(0);
        }
#pragma GCC unroll 1
        for (int b = 0; b < BLOCKS_TOGETHER; b++) {
            const Isa::Ints * const u = numbers(b);
            const uint8_t * const   q = tile + At::BLOCK_SIZE * (b * n + first);
#pragma GCC unroll 4
            for (int g = 0; g < GROUPS; g += G) {
                const int part = b * PARTS_OF_BLOCK<Format> + g / GROUPS_OF_PART<Format>;
                Products::template add_products<G>(u + g * R, q + 4 * g, scales.factors[part], products);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < C * R; i++) {
            auto less = Isa::set1(0);
#pragma GCC unroll 8
            for (int k = 0; k < At::SUMS; k++) {
                less = Isa::dot_pairs(less, scales.less[k][i % R], number(tile + At::sum(n, k), i / R));
            }
            auto result = Isa::zero();
            if constexpr (Format::MINIMUM) {
                result = Isa::mul(Isa::to_float(products[i]), scales.d[0][i % R]);
                result = Isa::minus_product(Isa::to_float(less), scales.m[0][i % R], result);
            } else {
                const auto offset = _mm256_mullo_epi32(less, Isa::set1(Format::OFFSET));
                result            = Isa::mul(Isa::to_float(_mm256_sub_epi32(products[i], offset)), scales.d[0][i % R]);
            }
            sums[i] = Isa::fma(result, real(tile + At::scale(n), i / R), sums[i]);
        }
    } else if constexpr (SUPER<Format>) {
        Isa::Floats result[C * R];
#pragma GCC unroll 8
        for (auto & sum : result) {
            sum = Isa::zero();
        }
#pragma GCC unroll 1
        for (int b = 0; b < BLOCKS_TOGETHER; b++) {
            Products::multiply_words(numbers(b), tile + At::BLOCK_SIZE * (b * n + first), products);
#pragma GCC unroll 8
            for (int i = 0; i < C * R; i++) {
                result[i] = Isa::fma(Isa::to_float(products[i]), scales.d[b][i % R], result[i]);
            }
        }
#pragma GCC unroll 8
        for (int i = 0; i < C * R; i++) {
            sums[i] = Isa::fma(result[i], real(tile + At::scale(n), i / R), sums[i]);
        }
    } else {
#pragma GCC unroll 1
        for (int64_t b = 0; b < blocks; b++, tile += At::size(n)) {
            const auto * const    u = numbers(b);
            const uint8_t * const q = tile + At::BLOCK_SIZE * first;
            if constexpr (IN_MEMORY && (IN_WORDS<Format> || G == GROUPS)) {
                const Ends ends = {
                    scales.d[b], scales.m[b], tile + At::scale(n) + 4 * first, tile + At::sum(n, 0) + 4 * first};
                if constexpr (IN_ORDER<Format>) {
                    Products::template add_bytes<Layout<Format, Isa>::SIZE>(u, q, ends, sums);
                } else if constexpr (IN_WORDS<Format>) {
                    Products::add_words(u, q, ends, sums);
                } else {
                    Products::template add_nibbles<Format::MINIMUM>(u, q, scales.factors[0], ends, sums);
                }
            } else {
                if constexpr (IN_WORDS<Format>) {
                    Products::multiply_words(u, q, products);
                } else {
#pragma GCC unroll 8
                    for (int i = 0; i < C * R; i++) {
                        products[i] = Isa::set1(Format::MINIMUM ? 0 : number(tile + At::sum(n, 0), i / R));
                    }
#pragma GCC unroll 2
                    for (int g = 0; g < GROUPS; g += G) {
                        Products::template add_products<G>(u + g * R, q + 4 * g, scales.factors[0], products);
                    }
                }
#pragma GCC unroll 8
                for (int i = 0; i < C * R; i++) {
                    const auto d = Isa::mul(scales.d[b][i % R], real(tile + At::scale(n), i / R));
                    sums[i]      = Isa::fma(Isa::to_float(products[i]), d, sums[i]);
                    if constexpr (Format::MINIMUM) {
                        sums[i] = Isa::fma(scales.m[b][i % R], real(tile + At::sum(n, 0), i / R), sums[i]);
                    }
                }
            }
        }
    }
}

// multiply() for 1 to TILE_COLUMNS columns.
template <class Format>
void multiply_groups(
    const uint8_t * weights, int64_t groups, int64_t blocks, const uint8_t * tile, int64_t n, float * const * out,
    int64_t at) {
    constexpr int SIZE   = HALVES * Layout<Format, Isa>::SIZE, UNPACKED = VECTORS<Format> * HALVES;
    constexpr int BYTES  = SUPER<Format> ? SIZE / BLOCKS_TOGETHER : SIZE;  // of a block
    const int64_t parts  = (n + COLUMNS_TOGETHER - 1) / COLUMNS_TOGETHER;
    for (int64_t group = 0; group < groups; group++, at += GROUP_ROWS) {
        const uint8_t * columns = tile;
        Isa::Floats     sums[TILE_COLUMNS * HALVES];
        for (int64_t i = 0; i < n * HALVES; i++) {
            sums[i] = Isa::zero();
        }
        for (int64_t left = blocks, some; left > 0; left -= some) {
            some = left < Scales<Format>::BLOCKS ? left : Scales<Format>::BLOCKS;
            const Scales<Format> scales(weights, some);

            const auto unpack_block = [&](int64_t b, Isa::Ints * to) __attribute__((always_inline)) {
                if constexpr (!IN_ORDER<Format>) {
                    const uint8_t * const packed = SUPER<Format> ? weights : weights + b * BYTES;
                    unpack_halves<Format>(packed, SUPER<Format> ? static_cast<int>(b) : 0, to);
                }
            };
            if (n <= NARROW<Format>) {
                with_constant<NARROW<Format>>(n, [&](auto c) {
                    Isa::Ints  u[UNPACKED];
                    const auto numbers = [&](int64_t b) __attribute__((always_inline)) {
                        prefetch(weights + AHEAD + b * BYTES, BYTES);
                        if constexpr (IN_WORDS<Format>) {
                            return weights + Layout<Format, Isa>::Q + b * (SUPER<Format> ? Layout<Format, Isa>::Q_SIZE : BYTES);
                        } else {
                            unpack_block(b, u);
                            return u;
                        }
                    };
                    using Products = std::conditional_t<IN_WORDS<Format>, FromPacked<Format>, FromRegisters<c.value>>;
                    add_span<Format, Products, c.value>(sums, scales, some, numbers, columns, c.value, 0);
                });
            } else {
                Isa::Ints u[IN_ORDER<Format> ? 1 : BLOCKS_TOGETHER * UNPACKED];
                for (int64_t b = 0; !IN_ORDER<Format> && b < (SUPER<Format> ? BLOCKS_TOGETHER : some); b++) {
                    unpack_block(b, u + b * UNPACKED);
                }
                for (int64_t i = 0; i < parts; i++) {  // evenly
                    const int64_t first = n * i / parts, last = n * (i + 1) / parts;
                    const auto    numbers = [&](int64_t b) {
                        // Memory is to have something to do all the time.
                        for (int64_t at = i * CACHE_LINE; at < BYTES; at += parts * CACHE_LINE) {
                            __builtin_prefetch(weights + AHEAD + b * BYTES + at);
                        }
                        if constexpr (IN_ORDER<Format>) {
                            return weights + b * BYTES + Layout<Format, Isa>::Q;
                        } else {
                            return u + b * UNPACKED;
                        }
                    };
                    with_constant<COLUMNS_TOGETHER>(last - first, [&](auto c) {
                        add_span<Format, FromMemory<c.value>, c.value>(
                            sums + first * HALVES, scales, some, numbers, columns, n, first);
                    });
                }
            }
            weights += some * SIZE;
            columns += some * Tile<Format>::size(n);
        }
        for (int64_t c = 0; c < n; c++) {
            for (int half = 0; half < HALVES; half++) {
                Isa::store(out[c] + at + half * Isa::ROWS, sums[c * HALVES + half]);
            }
        }
    }
}

// pack() for a group of rows.
template <class Format> void pack_group(const typename Format::Block * rows, int64_t stride, uint8_t * to) {
    using At = Layout<Format, Isa>;
    for (int half = 0; half < HALVES; half++, rows += Isa::ROWS * stride, to += At::SIZE) {
        pack<Format, Isa>(rows, stride, to);
        if constexpr (IN_ORDER<Format>) {
            // Of each four numbers 0 and 2 of all rows, and behind them 1 and 3.
            Isa::Ints u[GROUPS];
            unpack<Format, Isa>(to, 0, u);
            for (int g = 0; g < GROUPS; g++) {
                for (int row = 0; row < Isa::ROWS; row++) {
                    for (int i = 0; i < 4; i++) {
                        const uint8_t number = reinterpret_cast<const uint8_t *>(u + g)[4 * row + i];
                        to[At::Q + At::VECTOR * g + 16 * (i % 2) + 2 * row + i / 2] = number ^ 0x80;
                    }
                }
            }
        }
    }
}

}  // namespace
}  // namespace llgtrt::repack
