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
#include <utility>

#include "kernel.h"
#include "tile_registers.h"

namespace llgtrt::repack {
namespace {

constexpr int AMX_COLUMNS = 128;  // of a tile of activations, for which weights are unpacked once
constexpr int PAGE        = 4096;

// Adds to register `TO` the products of activations with weights, which have a sign or not.
template <int TO, int ACTIVATIONS, int WEIGHTS, bool SIGNED> inline void multiply_tiles() {
    if constexpr (SIGNED) {
        asm volatile("tdpbssd %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(TO), "i"(ACTIVATIONS), "i"(WEIGHTS));
    } else {
        asm volatile("tdpbsud %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(TO), "i"(ACTIVATIONS), "i"(WEIGHTS));
    }
}

// The columns of a tile are multiplied in parts of one width, each of what a register holds or less. Columns that two parts have are
// multiplied twice.
struct Parts {
    explicit Parts(int64_t n) : count((n + TILE_ROWS - 1) / TILE_ROWS), width((n + count - 1) / count), columns(n) {}

    int64_t first(int64_t part) const { return part + 1 < count ? part * width : columns - width; }

    int64_t count, width, columns;
};

// So many columns take less time without AMX.
template <class Format> constexpr int NARROW = SUPER<Format> ? Isa::LONG_FROM - 1 : 16;

// Products of up to CHUNK blocks with up to TOGETHER parts at a time. Then these are multiplied with their scales.
template <class Format> class BlockProducts {
    using At = Layout<Format, Isa>;
    using In = Tile<Format>;

  public:
    explicit BlockProducts(const Parts & parts) : parts_(parts), registers_(parts.width, BLOCK) {}

    // Adds those of a group of rows with all columns of a tile to `sums`, which have room for TILE_ROWS of each part.
    void add(const uint8_t * weights, int64_t blocks, const uint8_t * tile, Isa::Floats * sums) {
        for (int64_t left = blocks, count; left > 0; left -= count) {
            count = left < CHUNK ? left : CHUNK;
            unpack_chunk(weights, count);
            for (int64_t part = 0, some; part < parts_.count; part += some) {
                some = together(parts_.count - part);
                some == 2 ? multiply_parts<2>(tile, part, count) : multiply_parts<3>(tile, part, count);
                for (int64_t i = 0; i < some; i++) {
                    // The usual number is unrolled.
                    const uint8_t * const of_columns = tile + 4 * parts_.first(part + i);
                    Isa::Floats * const   to         = sums + (part + i) * TILE_ROWS;
                    count == CHUNK ? add_scaled(of_columns, CHUNK, i, to) : add_scaled(of_columns, count, i, to);
                }
            }
            weights += count * At::SIZE;
            tile += count * size();
        }
    }

  private:
    static constexpr int CHUNK = 4, TOGETHER = 3;

    // How many of so many parts are next: two at a time, and three once if their number is odd.
    static_assert(NARROW<Format> >= TILE_ROWS, "one part would be alone");
    static int64_t together(int64_t left) { return left % 2 == 0 ? 2 : 3; }

    // The registers of sums that so many parts take turns in, and after how many turns what is in one of them is stored.
    template <int PARTS> static constexpr int RING = PARTS == 2 ? 4 : 3;
    template <int PARTS> static constexpr int LATER = RING<PARTS> - 1;

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

    // The integer products of `count` blocks with so many parts from `part` on, in turns of a block and a part.
    template <int PARTS> void multiply_parts(const uint8_t * tile, int64_t part, int64_t count) {
        const uint8_t * q[PARTS];
        for (int i = 0; i < PARTS; i++) {
            q[i] = tile + BLOCK * parts_.first(part + i);
        }
        multiply_all<PARTS>(q, count, std::make_integer_sequence<int, CHUNK * PARTS>());
    }

    template <int PARTS, int... TURN>
    void multiply_all(const uint8_t * const * q, int64_t count, std::integer_sequence<int, TURN...>) {
        (multiply_part<PARTS, TURN>(q, count), ...);
        (store_last<PARTS, TURN>(count), ...);
    }

    // Those of one block with one part, if it is one of `count`. What is in another register is stored only now, when it is there: a core
    // waits with all that comes behind.
    template <int PARTS, int TURN>
    __attribute__((always_inline)) void multiply_part(const uint8_t * const * q, int64_t count) {
        constexpr int B = TURN / PARTS, I = TURN % PARTS, TO = 4 + TURN % RING<PARTS>;
        if (B < count) {
            if constexpr (I == 0) {
                load_tile<0>(numbers_[B], sizeof(Isa::Ints));
            }
            load_tile<2>(q[I] + B * size(), BLOCK);
            zero_tile<TO>();
            multiply_tiles<TO, 2, 0, !Format::MINIMUM>();
            store_products<PARTS, TURN - LATER<PARTS>>();
        }
    }

    // What is not stored yet behind the last block.
    template <int PARTS, int TURN> __attribute__((always_inline)) void store_last(int64_t count) {
        if (TURN / PARTS < count && TURN + LATER<PARTS> >= count * PARTS) {
            store_products<PARTS, TURN>();
        }
    }

    template <int PARTS, int TURN> __attribute__((always_inline)) void store_products() {
        if constexpr (TURN >= 0) {
            store_tile<4 + TURN % RING<PARTS>>(products_[TURN / PARTS][TURN % PARTS], sizeof(Isa::Ints));
        }
    }

    // Adds the products of part `i` times their scales. `tile` is where the chunk's first block would begin if the part's first column were
    // that of the tile, for what there are four bytes of for each column.
    __attribute__((always_inline)) void add_scaled(const uint8_t * tile, int64_t count, int64_t i, Isa::Floats * sums) const {
        constexpr int AT_ONCE = 4;  // columns: each waits for what is added to it before
        int64_t       c       = 0;
        for (; c + AT_ONCE <= parts_.width; c += AT_ONCE) {
            add_columns<AT_ONCE>(tile + 4 * c, count, i, c, sums + c);
        }
        for (; c < parts_.width; c++) {
            add_columns<1>(tile + 4 * c, count, i, c, sums + c);
        }
    }

    template <int COLUMNS>
    __attribute__((always_inline)) void add_columns(
        const uint8_t * tile, int64_t count, int64_t i, int64_t c, Isa::Floats * sums) const {
        const uint8_t * scale = tile + In::scale(parts_.columns);
        const uint8_t * total = tile + In::sum(parts_.columns, 0);
        Isa::Floats     results[COLUMNS];
        std::copy_n(sums, COLUMNS, results);
#pragma GCC unroll 4
        for (int64_t b = 0; b < count; b++, scale += size(), total += size()) {
#pragma GCC unroll 4
            for (int k = 0; k < COLUMNS; k++) {
                const auto scaled = Isa::mul(d_[b], Isa::set1(a_float(scale + 4 * k)));
                results[k]        = Isa::fma(Isa::to_float(products_[b][i][c + k]), scaled, results[k]);
                if constexpr (Format::MINIMUM) {
                    results[k] = Isa::fma(m_[b], Isa::set1(a_float(total + 4 * k)), results[k]);
                }
            }
        }
        std::copy_n(results, COLUMNS, sums);
    }

    const Parts &       parts_;
    const TileRegisters registers_;
    Isa::Ints           numbers_[CHUNK][GROUPS], products_[CHUNK][TOGETHER][TILE_ROWS];
    Isa::Floats         d_[CHUNK], m_[CHUNK];
};

// Products of a superblock with up to two parts at a time. They are multiplied with its scale and the columns' while the next ones are
// made.
template <class Format> class SuperblockProducts {
    using At = Layout<Format, Isa>;
    using In = Tile<Format>;

  public:
    explicit SuperblockProducts(const Parts & parts) : parts_(parts), registers_(parts.width, LONG) {}

    // As BlockProducts::add().
    void add(const uint8_t * weights, int64_t blocks, const uint8_t * tile, Isa::Floats * sums) {
        Done before = {};
        for (int64_t b = 0; b < blocks; b++, weights += At::SIZE, tile += In::size(parts_.columns)) {
            Scales & scales = scales_[b % 2];
            unpack_superblock(weights, scales);
            for (int64_t part = 0; part < parts_.count; part += before.parts) {
                const int some = part + 1 < parts_.count ? 2 : 1;
                some == 2 ? multiply_parts<2>(tile, part, before) : multiply_parts<1>(tile, part, before);
                before         = {&scales, some, {}};
                for (int i = 0; i < some; i++) {
                    before.of[i] = {tile + 4 * parts_.first(part + i), sums + (part + i) * TILE_ROWS};
                }
            }
        }
        for (int i = 0; i < before.parts; i++) {
            add_scaled(before, i, 0, parts_.width);
        }
    }

  private:
    static constexpr int STEPS = QK_K / LONG;

    // What a superblock is multiplied with last.
    struct Scales {
        Isa::Floats d, m;
        Isa::Ints   minima[Format::PARTS / 2];
    };

    // Products in `products_`, of so many parts.
    struct Done {
        const Scales * scales;
        int            parts;
        struct {
            const uint8_t * tile;  // as that of BlockProducts::add_scaled()
            Isa::Floats *   sums;
        } of[2];
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

    // The integer products of the superblock with so many parts from `part` on, and meanwhile what is left to do for those before, if there
    // are any.
    template <int PARTS> void multiply_parts(const uint8_t * tile, int64_t part, const Done & before) {
        const uint8_t * first  = tile + LONG * parts_.first(part);
        const uint8_t * second = tile + LONG * parts_.first(part + PARTS - 1);
        zero_tile<4>();
        zero_tile<6>();
        if constexpr (PARTS == 2) {
            zero_tile<5>();
            zero_tile<7>();
        }
#pragma GCC unroll 1
        for (int step = 0; step < STEPS; step++, first += LONG * parts_.columns, second += LONG * parts_.columns) {
            load_tile<0>(lower_ + LONG / 4 * step, sizeof(Isa::Ints));
            load_tile<1>(upper_ + LONG / 4 * step, sizeof(Isa::Ints));
            load_tile<2>(first, LONG);
            multiply_tiles<4, 2, 0, false>();
            multiply_tiles<6, 2, 1, true>();
            if constexpr (PARTS == 2) {
                load_tile<2>(second, LONG);
                multiply_tiles<5, 2, 0, false>();
                multiply_tiles<7, 2, 1, true>();
            }
            if (before.parts == 2) {
                constexpr int HALF = STEPS / 2;
                const int     of   = step % HALF;
                add_scaled(before, step / HALF, parts_.width * of / HALF, parts_.width * (of + 1) / HALF);
            } else if (before.parts == 1) {
                add_scaled(before, 0, parts_.width * step / STEPS, parts_.width * (step + 1) / STEPS);
            }
        }
        store_tile<4>(products_[0][0], sizeof(Isa::Ints));
        store_tile<6>(products_[0][1], sizeof(Isa::Ints));
        if constexpr (PARTS == 2) {
            store_tile<5>(products_[1][0], sizeof(Isa::Ints));
            store_tile<7>(products_[1][1], sizeof(Isa::Ints));
        }
    }

    // Adds the products of some of a part's columns.
    __attribute__((always_inline)) void add_scaled(const Done & done, int part, int64_t begin, int64_t end) const {
        const int64_t         n      = parts_.columns;
        const Scales &        scales = *done.scales;
        const uint8_t * const tile   = done.of[part].tile;
        Isa::Floats * const   sums   = done.of[part].sums;
        for (int64_t c = begin; c < end; c++) {
            const auto total  = Isa::plus(products_[part][0][c], Isa::left(products_[part][1][c], 8));
            auto       result = Isa::mul(Isa::to_float(total), scales.d);
            result            = less_minima<Format, Isa>(result, scales.m, scales.minima, tile, n, c);
            sums[c]           = Isa::fma(result, Isa::set1(a_float(tile + In::scale(n) + 4 * c)), sums[c]);
        }
    }

    const Parts &           parts_;
    const TileRegisters     registers_;
    alignas(PAGE) Isa::Ints lower_[QK_K / 4];
    Isa::Ints               upper_[QK_K / 4], products_[2][2][TILE_ROWS];  // by part
    Scales                  scales_[2];                                    // of the superblock before as well
};

// multiply() for more than NARROW columns. No part of its caller: as one function GCC 12 makes few columns of Q4_K take twice the time.
template <class Format>
__attribute__((noinline)) void multiply_wide(
    const uint8_t * weights, int64_t groups, int64_t blocks, const uint8_t * tile, int64_t n, float * const * out,
    int64_t at) {
    // Groups whose sums are stored at a time: each column's are in another page.
    constexpr int64_t TOGETHER = 2;
    using Products             = std::conditional_t<SUPER<Format>, SuperblockProducts<Format>, BlockProducts<Format>>;
    const Parts parts(n);
    Products    products(parts);
    for (int64_t left = groups, count; left > 0; left -= count, at += count * Isa::ROWS) {
        count = std::min(TOGETHER, left);
        // Half a page further than what SuperblockProducts loads: a core takes what it loads for what it has just stored at the same place of
        // another page, and waits.
        struct alignas(PAGE) {
            uint8_t     before[PAGE / 2];
            Isa::Floats of[TOGETHER][AMX_COLUMNS];
        } sums;
        for (int64_t i = 0; i < count; i++, weights += blocks * Layout<Format, Isa>::SIZE) {
            std::fill_n(sums.of[i], parts.count * TILE_ROWS, Isa::zero());
            products.add(weights, blocks, tile, sums.of[i]);
        }
        for (int64_t part = 0; part < parts.count; part++) {
            for (int64_t c = 0; c < parts.width; c++) {
                for (int64_t i = 0; i < count; i++) {
                    Isa::store(out[parts.first(part) + c] + at + i * Isa::ROWS, sums.of[i][part * TILE_ROWS + c]);
                }
            }
        }
    }
}

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
