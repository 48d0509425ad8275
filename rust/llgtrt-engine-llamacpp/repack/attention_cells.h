// The cells of the KV cache that attention goes over, a block at a time: as they lie in the cache, and unpacked for many rows.
#pragma once

#include "factors.h"
#include "isa.h"
#include "kernels.h"

namespace llgtrt::repack {
namespace {

// Cells of a block: a row's largest score is looked for, and its sums are scaled, once for each.
constexpr int CELLS = CELLS_OF_LOOK;

// A row as the kernels take it: with the factors of its query.
struct Row {
    const uint8_t *  factors;
    const uint16_t * mask;
    uint8_t *        looks;
    float *          partial;
    uint8_t          look;  // at the present block: LOOK_ALL and so on
};

// What a cell's elements are in the cache: bytes of so many, and ROWS of them from `d` on.
template <class Isa> struct HalfElements {
    static constexpr int64_t bytes(int64_t depth) { return 2 * depth; }
    static typename Isa::Floats load(const char * cell, int64_t d) { return Isa::halves(cell + bytes(d)); }
};

// ggml's Q8_0: a scale, half, and 32 signed bytes.
template <class Isa> struct Q8Elements {
    static constexpr int64_t BLOCK = 32, SIZE = 2 + BLOCK;
    static constexpr int64_t bytes(int64_t depth) { return depth / BLOCK * SIZE; }
    static typename Isa::Floats load(const char * cell, int64_t d) {
        const char * const block = cell + bytes(d);
        return Isa::mul(Isa::half(block), Isa::bytes(block + 2 + d % BLOCK));
    }
};

// A block's cells as they lie in the cache.
template <class Isa, class Elements> struct CachedCells {
    const char * keys;
    const char * values;
    int64_t      key_stride, value_stride;

    static constexpr int QUERIES = Isa::QUERIES;  // that attend at a time
    static constexpr int VECTORS = 1;             // of ROWS cells whose scores are computed at a time

    // Asks for the keys of ROWS cells. Cells lie apart, as those of other heads are between them, and a step over many
    // sequences reads all their caches once: they come from memory, and nothing but this asks for them early.
    void prefetch_keys(int cell, int64_t depth) const { prefetch(keys + cell * key_stride, key_stride, depth); }
    void prefetch_values(int cell, int64_t depth) const { prefetch(values + cell * value_stride, value_stride, depth); }

    // The scores of the ROWS cells from `cell` on: the products of `depth` elements with N queries, before the mask.
    template <int N>
    void scores(int cell, int64_t depth, const Row * rows, typename Isa::Floats (*result)[VECTORS]) const {
        typename Isa::Floats sums[N];
#pragma GCC unroll 8
        for (int r = 0; r < N; r++) {
            sums[r] = Isa::zero();
        }
        for (int64_t d = 0; d < depth; d += Isa::ROWS * Factors<Isa>::TOGETHER) {
            typename Isa::Floats elements[Isa::ROWS];
            load_turned(cell, d, depth, elements);
#pragma GCC unroll 16
            for (int i = 0; i < Isa::ROWS; i++) {
#pragma GCC unroll 8
                for (int r = 0; r < N; r++) {
                    sums[r] = Factors<Isa>::add(sums[r], elements[i], rows[r].factors + d * Factors<Isa>::BYTES + 4 * i);
                }
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < N; r++) {
            result[r][0] = sums[r];
        }
    }

    // ROWS elements from `d` on of the TOGETHER cells from `cell` on, one of which is seen at least: `seen` has a bit for
    // each cell. What nobody sees may hold anything, and is zero here.
    typename Isa::Floats value(int cell, int64_t d, uint64_t seen) const {
        const char * const from = values + cell * value_stride;
        if constexpr (Factors<Isa>::TOGETHER == 1) {
            return Elements::load(from, d);
        } else {
            const auto one = [&](int i) {
                return seen >> (cell + i) & 1 ? Elements::load(from + i * value_stride, d) : Isa::zero();
            };
            return Factors<Isa>::pairs(one(0), one(1));
        }
    }

    // ROWS * TOGETHER elements from `d` on of ROWS keys: vector i has TOGETHER of each. Those from `depth` on are zero.
    void load_turned(int cell, int64_t d, int64_t depth, typename Isa::Floats * elements) const {
        const char * const from = keys + cell * key_stride;
#pragma GCC unroll 16
        for (int i = 0; i < Isa::ROWS; i++) {
            const auto first = Elements::load(from + i * key_stride, d);
            if constexpr (Factors<Isa>::TOGETHER == 1) {
                elements[i] = first;
            } else {
                const bool more = d + Isa::ROWS < depth;
                elements[i]     = Factors<Isa>::neighbours(
                    first, more ? Elements::load(from + i * key_stride, d + Isa::ROWS) : Isa::zero());
            }
        }
        Isa::transpose(elements);
    }

  private:
    static void prefetch(const char * cells, int64_t stride, int64_t depth) {
        constexpr int64_t CACHE_LINE = 64;
        for (int i = 0; i < Isa::ROWS; i++, cells += stride) {
            for (int64_t at = 0; at < Elements::bytes(depth); at += CACHE_LINE) {
                __builtin_prefetch(cells + at);
            }
        }
    }
};

// The same cells as Factors::add takes them, for more rows than attend at a time.
template <class Isa> struct UnpackedCells {
    alignas(64) float keys[WIDEST_HEAD / Factors<Isa>::TOGETHER * CELLS];    // by element, TOGETHER of them in each number
    alignas(64) float values[CELLS / Factors<Isa>::TOGETHER * WIDEST_HEAD];  // by cell, likewise
    int64_t value_depth;

    static constexpr int VECTORS = Isa::VECTORS;
    static constexpr int QUERIES = Isa::SUMS / VECTORS;

    void prefetch_keys(int, int64_t) const {}
    void prefetch_values(int, int64_t) const {}

    // Unpacks `count` cells, a multiple of ROWS, of which `seen` has a bit each.
    template <class Cells>
    void unpack(const Cells & cells, int count, uint64_t seen, int64_t key_depth, int64_t values_depth) {
        value_depth = values_depth;
        for (int cell = 0; cell < count; cell += Isa::ROWS) {
            cells.prefetch_keys(cell + Isa::ROWS, key_depth);
            cells.prefetch_values(cell, value_depth);
            for (int64_t d = 0; d < key_depth; d += Isa::ROWS * Factors<Isa>::TOGETHER) {
                typename Isa::Floats elements[Isa::ROWS];
                cells.load_turned(cell, d, key_depth, elements);
#pragma GCC unroll 16
                for (int i = 0; i < Isa::ROWS; i++) {
                    Isa::store(keys + (d / Factors<Isa>::TOGETHER + i) * CELLS + cell, elements[i]);
                }
            }
        }
        for (int cell = 0; cell < count; cell += Factors<Isa>::TOGETHER) {
            for (int64_t d = 0; d < value_depth; d += Isa::ROWS) {
                Isa::store(values + cell / Factors<Isa>::TOGETHER * value_depth + d, cells.value(cell, d, seen));
            }
        }
    }

    template <int N>
    void scores(int cell, int64_t depth, const Row * rows, typename Isa::Floats (*result)[VECTORS]) const {
        typename Isa::Floats sums[N][VECTORS];
#pragma GCC unroll 8
        for (int r = 0; r < N; r++) {
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) {
                sums[r][v] = Isa::zero();
            }
        }
        for (int64_t i = 0; i < depth / Factors<Isa>::TOGETHER; i++) {
            typename Isa::Floats elements[VECTORS];
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) {
                elements[v] = Isa::load_floats(keys + i * CELLS + cell + v * Isa::ROWS);
            }
#pragma GCC unroll 8
            for (int r = 0; r < N; r++) {
#pragma GCC unroll 4
                for (int v = 0; v < VECTORS; v++) {
                    sums[r][v] = Factors<Isa>::add(sums[r][v], elements[v], rows[r].factors + 4 * i);
                }
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < N; r++) {
#pragma GCC unroll 4
            for (int v = 0; v < VECTORS; v++) {
                result[r][v] = sums[r][v];
            }
        }
    }

    typename Isa::Floats value(int cell, int64_t d, uint64_t) const {
        return Isa::load_floats(values + cell / Factors<Isa>::TOGETHER * value_depth + d);
    }
};

}  // namespace
}  // namespace llgtrt::repack
