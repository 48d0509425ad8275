// Products of packed weights and a wide tile of activations by AMX, to the same bits as those of kernel.h.
//
// One instruction makes the integer products of up to 64 elements of K for 16 rows of weights and 16 columns. Of a block, which has a
// scale of its own, it makes 32: the vectors of a packed block are the rows of its second factor as they are, and the quantized columns
// of a tile are the rows of its first. Of a superblock it makes 64, and adds them up over all parts, since numbers are multiplied with
// the integer scales of their parts beforehand. These products have up to 13 bits: two bytes, each of which is a factor.
//
// Integers are exact, and floats are added in the order of kernel.h.
#pragma once

#include <algorithm>
#include <type_traits>

#include "kernel.h"
#include "tile_registers.h"

namespace llgtrt::repack {
namespace {

constexpr int AMX_COLUMNS  = 128;        // of a tile of activations, for which weights are unpacked once
constexpr int PART_COLUMNS = 32;         // of these so many are multiplied at a time
constexpr int HALF         = TILE_ROWS;  // what one register holds of them

// Adds to register `TO` the products of activations with weights, which have a sign or not.
template <int TO, int ACTIVATIONS, int WEIGHTS, bool SIGNED> inline void multiply_tiles() {
    if constexpr (SIGNED) {
        asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(TO), "i"(ACTIVATIONS), "i"(WEIGHTS));
    } else {
        asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(TO), "i"(ACTIVATIONS), "i"(WEIGHTS));
    }
}

// The columns of a tile are multiplied in parts of one width. Columns that two parts have are multiplied twice.
struct Parts {
    explicit Parts(int64_t n) : count((n + PART_COLUMNS - 1) / PART_COLUMNS), width((n + count - 1) / count), columns(n) {}

    int64_t first(int64_t part) const { return part + 1 < count ? part * width : columns - width; }
    // Columns of a part in each of two registers.
    int64_t first_half() const { return std::min<int64_t>(width, HALF); }
    int64_t second_half() const { return width - first_half(); }

    int64_t count, width, columns;
};

// The sums of a group of rows, by part and column.
using PartSums = Isa::Floats[AMX_COLUMNS / PART_COLUMNS][PART_COLUMNS];

// Blocks whose integer products are made before they are multiplied with their scales.
constexpr int CHUNK = 4;

// Products of up to CHUNK blocks at a time.
template <class Format> class BlockProducts {
    using At = Layout<Format, Isa>;
    using In = Tile<Format>;

  public:
    explicit BlockProducts(const Parts & parts) :
        parts_(parts), registers_(parts.first_half(), parts.second_half(), BLOCK) {}

    // Adds those of a group of rows with all columns of a tile.
    void add(const uint8_t * weights, int64_t blocks, const uint8_t * tile, PartSums & sums) {
        for (int64_t left = blocks, count; left > 0; left -= count) {
            count = left < CHUNK ? left : CHUNK;
            unpack_chunk(weights, count);
            for (int64_t part = 0; part < parts_.count; part++) {
                const int64_t first = parts_.first(part);
                multiply_chunk(tile + BLOCK * first, count);
                // The usual number is unrolled.
                const uint8_t * const of_columns = tile + 4 * first;
                count == CHUNK ? add_scaled(of_columns, CHUNK, sums[part]) : add_scaled(of_columns, count, sums[part]);
            }
            weights += count * At::SIZE;
            tile += count * size();
        }
    }

  private:
    int64_t size() const { return In::size(parts_.columns); }

    // The numbers of blocks, less their offset.
    void unpack_chunk(const uint8_t * weights, int64_t count) {
#pragma GCC unroll 1
        for (int64_t b = 0; b < count; b++, weights += At::SIZE) {
            Isa::Ints u[GROUPS];
            unpack<Format, Isa>(weights, 0, u);
#pragma GCC unroll 8
            for (int g = 0; g < GROUPS; g++) {
                numbers_[b][g] = Format::MINIMUM ? u[g] : _mm512_sub_epi8(u[g], _mm512_set1_epi8(static_cast<char>(Format::OFFSET)));
            }
            d_[b] = block_scales<Format, Isa>(weights);
            if constexpr (Format::MINIMUM) {
                m_[b] = Isa::halves(weights + At::MINIMA);
            }
        }
    }

    // The integer products of blocks with a part's columns, whose elements are at `q`.
    void multiply_chunk(const uint8_t * q, int64_t count) {
        int64_t b = 0;
        for (; b + 1 < count; b += 2, q += 2 * size()) {
            multiply_block<4>(q, b);
            multiply_block<6>(q + size(), b + 1);
        }
        if (b < count) {
            multiply_block<4>(q, b);
            store_products<4>(b);
        } else {
            store_products<6>(b - 1);
        }
    }

    // Those of block `b`, to registers `TO`. What is in the other ones is stored only now, when it is there: a core waits with all that
    // comes behind.
    template <int TO> void multiply_block(const uint8_t * q, int64_t b) {
        load_tile<0>(numbers_[b], sizeof(Isa::Ints));
        load_tile<2>(q, BLOCK);
        zero_tile<TO>();
        multiply_tiles<TO, 2, 0, !Format::MINIMUM>();
        if (parts_.width > HALF) {
            load_tile<3>(q + HALF * BLOCK, BLOCK);
            zero_tile<TO + 1>();
            multiply_tiles<TO + 1, 3, 0, !Format::MINIMUM>();
        }
        if (b > 0) {
            store_products<10 - TO>(b - 1);
        }
    }

    template <int FROM> void store_products(int64_t b) {
        store_tile<FROM>(products_[b], sizeof(Isa::Ints));
        if (parts_.width > HALF) {
            store_tile<FROM + 1>(products_[b] + HALF, sizeof(Isa::Ints));
        }
    }

    // Adds the products times their scales. `tile` is where the chunk's first block would begin if the part's first column were that of the
    // tile, for what there are four bytes of for each column.
    __attribute__((always_inline)) void add_scaled(const uint8_t * tile, int64_t count, Isa::Floats * sums) const {
        const int64_t n = parts_.columns;
        for (int64_t c = 0; c < parts_.width; c++) {
            auto            result = sums[c];
            const uint8_t * scale  = tile + In::scale(n) + 4 * c;
            const uint8_t * total  = tile + In::sum(n, 0) + 4 * c;
#pragma GCC unroll 4
            for (int64_t b = 0; b < count; b++, scale += size(), total += size()) {
                result = Isa::fma(Isa::to_float(products_[b][c]), Isa::mul(d_[b], Isa::set1(a_float(scale))), result);
                if constexpr (Format::MINIMUM) {
                    result = Isa::fma(m_[b], Isa::set1(a_float(total)), result);
                }
            }
            sums[c] = result;
        }
    }

    const Parts &       parts_;
    const TileRegisters registers_;
    Isa::Ints           numbers_[CHUNK][GROUPS], products_[CHUNK][PART_COLUMNS];
    Isa::Floats         d_[CHUNK], m_[CHUNK];
};

// Products of a superblock at a time. They are multiplied with its scale and the columns' while those of the next part are made.
template <class Format> class SuperblockProducts {
    using At = Layout<Format, Isa>;
    using In = Tile<Format>;

  public:
    explicit SuperblockProducts(const Parts & parts) :
        parts_(parts), registers_(parts.first_half(), parts.second_half(), LONG) {}

    // Adds those of a group of rows with all columns of a tile.
    void add(const uint8_t * weights, int64_t blocks, const uint8_t * tile, PartSums & sums) {
        Done before = {};
        for (int64_t b = 0; b < blocks; b++, weights += At::SIZE, tile += In::size(parts_.columns)) {
            Scales & scales = scales_[b % 2];
            unpack_superblock(weights, scales);
            for (int64_t part = 0; part < parts_.count; part++) {
                multiply_part(tile + LONG * parts_.first(part), before);
                before = {&scales, tile + 4 * parts_.first(part), sums[part]};
            }
        }
        add_scaled(before, 0, parts_.width);
    }

  private:
    static constexpr int STEPS = QK_K / LONG;

    // What a superblock is multiplied with last.
    struct Scales {
        Isa::Floats d, m;
        Isa::Ints   minima[Format::PARTS / 2];
    };

    // A part's products of a superblock, in `products_`.
    struct Done {
        const Scales *  scales;
        const uint8_t * tile;  // as that of BlockProducts::add_scaled()
        Isa::Floats *   sums;
    };

    // The integer scale of a part, to multiply bytes of the first and of the second half of words with, and what its offset makes of it.
    struct PartScale {
        Isa::Ints first, second, less;
    };

    static void read_part_scales(const uint8_t * weights, Scales & scales, PartScale * parts) {
        Isa::Ints integers[Format::PARTS];
        read_integer_scales<Format, Isa>(weights, integers, scales.minima);
#pragma GCC unroll 16
        for (int i = 0; i < Format::PARTS; i++) {
            // To both halves of 32 bits.
            const auto words = Isa::either(Isa::bits(integers[i], 0xffff), Isa::left(integers[i], 16));
            parts[i].first   = Isa::bits(words, 0x00ff00ff);
            parts[i].second  = Isa::left(parts[i].first, 8);
            parts[i].less    = _mm512_mullo_epi16(words, _mm512_set1_epi16(Format::OFFSET));
        }
        scales.d = superblock_scale<Format, Isa>(weights);
        if constexpr (Format::MINIMUM) {
            scales.m = Isa::halves(weights + At::MINIMA);
        }
    }

    // The numbers times the integer scales of their parts: signed bytes, 256 times, and unsigned ones.
    void unpack_superblock(const uint8_t * weights, Scales & scales) {
        constexpr int BLOCKS = QK_K / BLOCK, GROUPS_OF_PART = GROUPS * BLOCKS / Format::PARTS;
        PartScale     parts[Format::PARTS];
        read_part_scales(weights, scales, parts);
#pragma GCC unroll 1
        for (int b = 0; b < BLOCKS; b++) {
            prefetch(weights + AHEAD + b * (At::SIZE / BLOCKS), At::SIZE / BLOCKS);
            Isa::Ints u[GROUPS];
            unpack<Format, Isa>(weights, b, u);
#pragma GCC unroll 8
            for (int g = 0; g < GROUPS; g++) {
                const PartScale & scale = parts[(b * GROUPS + g) / GROUPS_OF_PART];
                auto              even = _mm512_maddubs_epi16(u[g], scale.first), odd = _mm512_maddubs_epi16(u[g], scale.second);
                if constexpr (!Format::MINIMUM) {
                    even = _mm512_sub_epi16(even, scale.less);
                    odd  = _mm512_sub_epi16(odd, scale.less);
                }
                constexpr int AND_OR = 0xea, NOT_AND_OR = 0xae;  // a & b | c, ~a & b | c
                const auto    mask     = _mm512_set1_epi16(0x00ff);
                lower_[b * GROUPS + g] = _mm512_ternarylogic_epi32(mask, even, _mm512_slli_epi16(odd, 8), AND_OR);
                upper_[b * GROUPS + g] = _mm512_ternarylogic_epi32(mask, odd, _mm512_srli_epi16(even, 8), NOT_AND_OR);
            }
        }
    }

    // The integer products of the superblock with a part's columns, whose elements are at `q`, and meanwhile what is left to do for the
    // part before, if there is one.
    void multiply_part(const uint8_t * q, const Done & before) {
        const bool both = parts_.width > HALF;
        zero_tile<4>();
        zero_tile<6>();
        if (both) {
            zero_tile<5>();
            zero_tile<7>();
        }
#pragma GCC unroll 1
        for (int step = 0; step < STEPS; step++, q += LONG * parts_.columns) {
            load_tile<0>(lower_ + LONG / 4 * step, sizeof(Isa::Ints));
            load_tile<1>(upper_ + LONG / 4 * step, sizeof(Isa::Ints));
            load_tile<2>(q, LONG);
            multiply_tiles<4, 2, 0, false>();
            multiply_tiles<6, 2, 1, true>();
            if (both) {
                load_tile<3>(q + HALF * LONG, LONG);
                multiply_tiles<5, 3, 0, false>();
                multiply_tiles<7, 3, 1, true>();
            }
            if (before.sums != nullptr) {
                add_scaled(before, parts_.width * step / STEPS, parts_.width * (step + 1) / STEPS);
            }
        }
        store_tile<4>(products_[0], sizeof(Isa::Ints));
        store_tile<6>(products_[1], sizeof(Isa::Ints));
        if (both) {
            store_tile<5>(products_[0] + HALF, sizeof(Isa::Ints));
            store_tile<7>(products_[1] + HALF, sizeof(Isa::Ints));
        }
    }

    // Adds the products of some of a part's columns.
    __attribute__((always_inline)) void add_scaled(const Done & done, int64_t begin, int64_t end) const {
        const int64_t  n      = parts_.columns;
        const Scales & scales = *done.scales;
        for (int64_t c = begin; c < end; c++) {
            const auto total  = Isa::plus(products_[0][c], Isa::left(products_[1][c], 8));
            auto       result = Isa::mul(Isa::to_float(total), scales.d);
            result = less_minima<Format, Isa>(result, scales.m, scales.minima, done.tile, n, c);
            done.sums[c] = Isa::fma(result, Isa::set1(a_float(done.tile + In::scale(n) + 4 * c)), done.sums[c]);
        }
    }

    const Parts &       parts_;
    const TileRegisters registers_;
    Isa::Ints           lower_[QK_K / 4], upper_[QK_K / 4], products_[2][PART_COLUMNS];
    Scales              scales_[2];  // of the superblock before as well
};

// multiply() for more than NARROW columns. No part of its caller: as one function GCC 12 makes few columns of Q4_K take twice the time.
template <class Format>
__attribute__((noinline)) void multiply_wide(
    const uint8_t * weights, int64_t groups, int64_t blocks, const uint8_t * tile, int64_t n, float * const * out,
    int64_t at) {
    // Groups whose sums are stored at a time: each column's are in another page.
    constexpr int64_t TOGETHER = 2;
    const Parts       parts(n);
    std::conditional_t<SUPER<Format>, SuperblockProducts<Format>, BlockProducts<Format>> products(parts);
    for (int64_t left = groups, count; left > 0; left -= count, at += count * Isa::ROWS) {
        count = std::min(TOGETHER, left);
        PartSums sums[TOGETHER];
        for (int64_t i = 0; i < count; i++, weights += blocks * Layout<Format, Isa>::SIZE) {
            for (int64_t part = 0; part < parts.count; part++) {
                std::fill_n(sums[i][part], parts.width, Isa::zero());
            }
            products.add(weights, blocks, tile, sums[i]);
        }
        for (int64_t part = 0; part < parts.count; part++) {
            for (int64_t c = 0; c < parts.width; c++) {
                for (int64_t i = 0; i < count; i++) {
                    Isa::store(out[parts.first(part) + c] + at + i * Isa::ROWS, sums[i][part][c]);
                }
            }
        }
    }
}

// So many columns take less time without AMX.
template <class Format> constexpr int NARROW = SUPER<Format> ? Isa::LONG_FROM - 1 : 16;

// multiply() for 1 to AMX_COLUMNS columns. To set up the registers takes as long as the products of a few blocks.
template <class Format>
void multiply_amx(
    const uint8_t * weights, int64_t groups, int64_t blocks, const uint8_t * tile, int64_t n, float * const * out,
    int64_t at) {
    if (n <= NARROW<Format>) {
        multiply<Format, Isa, NARROW<Format>>(weights, groups, blocks, tile, n, out, at);
    } else {
        multiply_wide<Format>(weights, groups, blocks, tile, n, out, at);
    }
}

}  // namespace
}  // namespace llgtrt::repack
