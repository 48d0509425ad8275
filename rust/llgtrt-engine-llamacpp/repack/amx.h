// Products of packed weights and a wide tile of activations by AMX, to the same bits as those of kernel.h.
//
// The vectors of a packed block are the rows of AMX's second factor as they are, and the quantized columns of a tile are
// the rows of its first: one instruction makes the integer products of 32 elements of K for 16 rows of weights and 16
// columns. Integers are exact, and floats are added in the order of kernel.h.
//
// The instructions are written out: with the compiler's own (GCC 12) it leaves out what is written to memory for them.
#pragma once

#include "kernel.h"

namespace llgtrt::repack {
namespace {

constexpr int AMX_COLUMNS = 32;  // of a tile of activations
constexpr int HALF        = 16;  // what one register holds of them

// The tile registers while products are made: 0 holds weights, 1 and 2 the activations of up to 16 columns each, 3 and 4
// their sums.
class TileRegisters {
  public:
    explicit TileRegisters(int64_t columns) {
        const auto shape = [this](int tile, int64_t rows, int bytes) {
            if (rows > 0) {
                config_.rows[tile]  = static_cast<uint8_t>(rows);
                config_.bytes[tile] = static_cast<uint16_t>(bytes);
            }
        };
        const int64_t first = columns < HALF ? columns : HALF;
        shape(0, GROUPS, sizeof(Isa::Ints));
        shape(1, first, BLOCK);
        shape(2, columns - first, BLOCK);
        shape(3, first, sizeof(Isa::Ints));
        shape(4, columns - first, sizeof(Isa::Ints));
        asm volatile("ldtilecfg %0" : : "m"(config_));
    }
    TileRegisters(const TileRegisters &)             = delete;
    TileRegisters & operator=(const TileRegisters &) = delete;
    ~TileRegisters() { asm volatile("tilerelease"); }

  private:
    // As the instruction reads it.
    struct alignas(64) {
        uint8_t  palette = 1, start = 0, unused[14] = {};
        uint16_t bytes[16] = {};  // of a row
        uint8_t  rows[16]  = {};
    } config_;
};

template <int T> inline void load_tile(const void * from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(T) : "memory");
}

template <int T> inline void store_tile(void * to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(T) : "memory");
}

// Register `SUMS` becomes the products of activations with weights, which have a sign or not.
template <int SUMS, int ACTIVATIONS, bool SIGNED> inline void multiply_tiles() {
    asm volatile("tilezero %%tmm%c0" : : "i"(SUMS));
    if constexpr (SIGNED) {
        asm volatile("tdpbssd %%tmm0, %%tmm%c1, %%tmm%c0" : : "i"(SUMS), "i"(ACTIVATIONS));
    } else {
        asm volatile("tdpbsud %%tmm0, %%tmm%c1, %%tmm%c0" : : "i"(SUMS), "i"(ACTIVATIONS));
    }
}

// The numbers of block `b` of a packed block, less their offset.
template <class Format> inline void unpack_rows(const uint8_t * weights, int b, Isa::Ints * rows) {
    Isa::Ints u[GROUPS];
    unpack<Format, Isa>(weights, b, u);
#pragma GCC unroll 8
    for (int g = 0; g < GROUPS; g++) {
        rows[g] = Format::MINIMUM ? u[g] : _mm512_sub_epi8(u[g], _mm512_set1_epi8(static_cast<char>(Format::OFFSET)));
    }
}

// The integer products of a block's numbers with the n columns at `q`: `sums[c]` are those of column c.
template <class Format>
inline void integer_products(const Isa::Ints * rows, const uint8_t * q, int64_t n, Isa::Ints * sums) {
    load_tile<0>(rows, sizeof *rows);
    load_tile<1>(q, BLOCK);
    multiply_tiles<3, 1, !Format::MINIMUM>();
    store_tile<3>(sums, sizeof *sums);
    if (n > HALF) {
        load_tile<2>(q + HALF * BLOCK, BLOCK);
        multiply_tiles<4, 2, !Format::MINIMUM>();
        store_tile<4>(sums + HALF, sizeof *sums);
    }
}

// Blocks that are done at a time. What is unpacked for AMX is read back some steps later than it is written, and so are its
// sums: read at once, they would be waited for.
constexpr int AT_ONCE = QK_K / BLOCK;

// multiply_blocks() for n columns.
template <class Format>
void multiply_blocks_amx(const uint8_t * weights, int64_t blocks, const uint8_t * tile, int64_t n, Isa::Floats * sums) {
    using At = Layout<Format, Isa>;
    while (blocks > 0) {
        const int64_t count = blocks < AT_ONCE ? blocks : AT_ONCE;
        Isa::Ints     rows[AT_ONCE * GROUPS], products[AT_ONCE * AMX_COLUMNS];
        Isa::Floats   d[AT_ONCE], m[AT_ONCE];
#pragma GCC unroll 1
        for (int64_t b = 0; b < count; b++) {
            const uint8_t * const packed = weights + b * At::SIZE;
            unpack_rows<Format>(packed, 0, rows + b * GROUPS);
            d[b] = block_scales<Format, Isa>(packed);
            if constexpr (Format::MINIMUM) {
                m[b] = Isa::halves(packed + At::MINIMA);
            }
        }
#pragma GCC unroll 1
        for (int64_t b = 0; b < count; b++) {
            integer_products<Format>(rows + b * GROUPS, tile + b * Tile<Format>::size(n), n, products + b * AMX_COLUMNS);
        }
        const auto add = [&](int64_t all) {
            for (int64_t c = 0; c < n; c++) {
                auto            result = sums[c];
                const uint8_t * scale  = tile + Tile<Format>::scale(n) + 4 * c;
                const uint8_t * total  = tile + Tile<Format>::sum(n, 0) + 4 * c;
#pragma GCC unroll 8
                for (int64_t b = 0; b < all; b++) {
                    const auto sum = Isa::to_float(products[b * AMX_COLUMNS + c]);
                    result         = Isa::fma(sum, Isa::mul(d[b], Isa::set1(a_float(scale))), result);
                    if constexpr (Format::MINIMUM) {
                        result = Isa::fma(m[b], Isa::set1(a_float(total)), result);
                    }
                    scale += Tile<Format>::size(n);
                    total += Tile<Format>::size(n);
                }
                sums[c] = result;
            }
        };
        // The usual number is unrolled.
        count == AT_ONCE ? add(AT_ONCE) : add(count);
        blocks -= count;
        weights += count * At::SIZE;
        tile += count * Tile<Format>::size(n);
    }
}

// multiply_superblocks() for n columns.
template <class Format>
void multiply_superblocks_amx(
    const uint8_t * weights, int64_t blocks, const uint8_t * tile, int64_t n, Isa::Floats * sums) {
    using At = Layout<Format, Isa>;
    static_assert(Format::PARTS == AT_ONCE, "a part is a block");
    for (int64_t b = 0; b < blocks; b++, weights += At::SIZE, tile += Tile<Format>::size(n)) {
        Isa::Ints rows[AT_ONCE * GROUPS], products[AT_ONCE * AMX_COLUMNS];
#pragma GCC unroll 1
        for (int part = 0; part < AT_ONCE; part++) {
            unpack_rows<Format>(weights, part, rows + part * GROUPS);
        }
#pragma GCC unroll 1
        for (int part = 0; part < AT_ONCE; part++) {
            integer_products<Format>(rows + part * GROUPS, tile + BLOCK * part * n, n, products + part * AMX_COLUMNS);
        }
        Isa::Floats scales[AT_ONCE];
        Isa::Ints   minima[AT_ONCE / 2];
        read_scales<Format, Isa>(weights, scales, minima);
        for (int64_t c = 0; c < n; c++) {
            auto result = Isa::zero();
#pragma GCC unroll 8
            for (int part = 0; part < AT_ONCE; part++) {
                result = Isa::fma(Isa::to_float(products[part * AMX_COLUMNS + c]), scales[part], result);
            }
            result  = less_minima<Format, Isa>(result, weights, minima, tile, n, c);
            sums[c] = Isa::fma(result, Isa::set1(a_float(tile + Tile<Format>::scale(n) + 4 * c)), sums[c]);
        }
    }
}

// So many columns take less time without AMX.
template <class Format> constexpr int NARROW = SUPER<Format> ? 8 : 16;

// multiply() for 1 to AMX_COLUMNS columns. To set up the registers takes as long as the products of a few blocks.
template <class Format>
void multiply_amx(
    const uint8_t * weights, int64_t groups, int64_t blocks, const uint8_t * tile, int64_t n, float * const * out,
    int64_t at) {
    if (n <= NARROW<Format>) {
        multiply<Format, Isa, NARROW<Format>>(weights, groups, blocks, tile, n, out, at);
        return;
    }
    const TileRegisters registers(n);
    for (int64_t group = 0; group < groups; group++) {
        Isa::Floats sums[AMX_COLUMNS];
        for (int64_t c = 0; c < n; c++) {
            sums[c] = Isa::zero();
        }
        if constexpr (SUPER<Format>) {
            multiply_superblocks_amx<Format>(weights, blocks, tile, n, sums);
        } else {
            multiply_blocks_amx<Format>(weights, blocks, tile, n, sums);
        }
        for (int64_t c = 0; c < n; c++) {
            Isa::store(out[c] + at, sums[c]);
        }
        weights += blocks * Layout<Format, Isa>::SIZE;
        at += Isa::ROWS;
    }
}

}  // namespace
}  // namespace llgtrt::repack
