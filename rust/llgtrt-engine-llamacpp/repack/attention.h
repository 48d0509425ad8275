// Attention of some rows (queries of heads that share one head of the KV cache) over a run of its cells.
//
// What a row gets depends on its own query and the cells that it sees: cells are taken in blocks that begin at multiples
// of CELLS, and no sum crosses from one row to another. So it does not matter what else a batch holds.
#pragma once

#include <algorithm>
#include <cmath>

#include "isa.h"
#include "kernels.h"
#include "vec.h"

namespace llgtrt::repack {
namespace {

// Cells of a block: a row's largest score is looked for, and its sums are scaled, once for each.
constexpr int CELLS = 64;

// A block's cells as they lie in the cache.
template <class Isa> struct CachedCells {
    const char * keys;
    const char * values;
    int64_t      key_stride, value_stride;

    static constexpr int VECTORS = 1;  // of ROWS cells whose scores are computed at a time

    // Asks for the keys of ROWS cells. Cells lie apart, as those of other heads are between them, and a step over many
    // sequences reads all their caches once: they come from memory, and nothing but this asks for them early.
    void prefetch_keys(int cell, int64_t depth) const { prefetch(keys + cell * key_stride, key_stride, depth); }
    void prefetch_values(int cell, int64_t depth) const { prefetch(values + cell * value_stride, value_stride, depth); }

    // The scores of the ROWS cells from `cell` on: the products of `depth` elements with N queries, before scale and
    // mask.
    template <int N>
    void scores(int cell, int64_t depth, const AttentionRow * rows, typename Isa::Floats (*result)[VECTORS]) const {
        typename Isa::Floats sums[N];
#pragma GCC unroll 8
        for (int r = 0; r < N; r++) {
            sums[r] = Isa::zero();
        }
        for (int64_t d = 0; d < depth; d += Isa::ROWS) {
            typename Isa::Floats elements[Isa::ROWS];
            load_turned(keys + cell * key_stride, key_stride, d, elements);
#pragma GCC unroll 16
            for (int i = 0; i < Isa::ROWS; i++) {
#pragma GCC unroll 8
                for (int r = 0; r < N; r++) {
                    sums[r] = Isa::fma(Isa::set1(rows[r].query[d + i]), elements[i], sums[r]);
                }
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < N; r++) {
            result[r][0] = sums[r];
        }
    }

    typename Isa::Floats value(int cell, int64_t d) const { return Isa::halves(values + cell * value_stride + d * 2); }

    // The elements d to d + ROWS of ROWS keys, one vector per element.
    static void load_turned(const char * keys, int64_t stride, int64_t d, typename Isa::Floats * elements) {
#pragma GCC unroll 16
        for (int i = 0; i < Isa::ROWS; i++) {
            elements[i] = Isa::halves(keys + i * stride + d * 2);
        }
        Isa::transpose(elements);
    }

  private:
    static void prefetch(const char * cells, int64_t stride, int64_t depth) {
        constexpr int64_t CACHE_LINE = 64;
        for (int i = 0; i < Isa::ROWS; i++, cells += stride) {
            for (int64_t at = 0; at < 2 * depth; at += CACHE_LINE) {
                __builtin_prefetch(cells + at);
            }
        }
    }
};

// The same cells in floats, for more rows than attend at a time.
template <class Isa> struct UnpackedCells {
    alignas(64) float keys[WIDEST_HEAD * CELLS];    // by element
    alignas(64) float values[CELLS * WIDEST_HEAD];  // by cell
    int64_t value_depth;

    static constexpr int VECTORS = 2;

    void prefetch_keys(int, int64_t) const {}
    void prefetch_values(int, int64_t) const {}

    // Unpacks `count` cells, a multiple of ROWS.
    void unpack(const CachedCells<Isa> & cells, int count, int64_t key_depth, int64_t values_depth) {
        value_depth = values_depth;
        for (int cell = 0; cell < count; cell += Isa::ROWS) {
            for (int64_t d = 0; d < key_depth; d += Isa::ROWS) {
                typename Isa::Floats elements[Isa::ROWS];
                cells.load_turned(cells.keys + cell * cells.key_stride, cells.key_stride, d, elements);
#pragma GCC unroll 16
                for (int i = 0; i < Isa::ROWS; i++) {
                    Isa::store(keys + (d + i) * CELLS + cell, elements[i]);
                }
            }
        }
        for (int cell = 0; cell < count; cell++) {
            for (int64_t d = 0; d < value_depth; d += Isa::ROWS) {
                Isa::store(values + cell * value_depth + d, cells.value(cell, d));
            }
        }
    }

    template <int N>
    void scores(int cell, int64_t depth, const AttentionRow * rows, typename Isa::Floats (*result)[VECTORS]) const {
        typename Isa::Floats sums[N][VECTORS];
#pragma GCC unroll 8
        for (int r = 0; r < N; r++) {
#pragma GCC unroll 2
            for (int v = 0; v < VECTORS; v++) {
                sums[r][v] = Isa::zero();
            }
        }
        for (int64_t d = 0; d < depth; d++) {
            typename Isa::Floats elements[VECTORS];
#pragma GCC unroll 2
            for (int v = 0; v < VECTORS; v++) {
                elements[v] = Isa::load_floats(keys + d * CELLS + cell + v * Isa::ROWS);
            }
#pragma GCC unroll 8
            for (int r = 0; r < N; r++) {
                const auto query = Isa::set1(rows[r].query[d]);
#pragma GCC unroll 2
                for (int v = 0; v < VECTORS; v++) {
                    sums[r][v] = Isa::fma(query, elements[v], sums[r][v]);
                }
            }
        }
#pragma GCC unroll 8
        for (int r = 0; r < N; r++) {
#pragma GCC unroll 2
            for (int v = 0; v < VECTORS; v++) {
                result[r][v] = sums[r][v];
            }
        }
    }

    typename Isa::Floats value(int cell, int64_t d) const {
        return Isa::load_floats(values + cell * value_depth + d);
    }
};

// What some rows' attention over a run of cells has come to so far, besides their values.
template <class Isa> struct Progress {
    typename Isa::Floats * sums;
    float *                most;
};

// Adds V * ROWS elements of the cells in `seen`, a bit each, times their weights to each row's values from element `d` on.
template <class Isa, int N, int V, class Cells>
inline void add_values(
    const Cells & cells, uint64_t seen, const float (*weights)[CELLS], const AttentionRow * rows, int64_t d) {
    typename Isa::Floats result[N][V];
#pragma GCC unroll 8
    for (int r = 0; r < N; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            result[r][v] = Isa::load_floats(rows[r].partial + PARTIAL_VALUES + d + v * Isa::ROWS);
        }
    }
    for (uint64_t left = seen; left != 0; left &= left - 1) {
        const int            i = __builtin_ctzll(left);
        typename Isa::Floats value[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            value[v] = cells.value(i, d + v * Isa::ROWS);
        }
#pragma GCC unroll 8
        for (int r = 0; r < N; r++) {
            const auto weight = Isa::set1(weights[r][i]);
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) {
                result[r][v] = Isa::fma(weight, value[v], result[r][v]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < N; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            Isa::store(rows[r].partial + PARTIAL_VALUES + d + v * Isa::ROWS, result[r][v]);
        }
    }
}

// What is added to a row's scores of the ROWS cells from `cell` on.
template <class Isa> inline typename Isa::Floats bias_of(const AttentionRow & row, int64_t cell) {
    return row.mask == nullptr ? Isa::zero() : Isa::halves(row.mask + cell);
}

constexpr float NOTHING = -INFINITY;

// A bit for each of the `count` cells from `cell` on that any of the rows sees.
template <class Isa>
inline uint64_t seen_by_any(const AttentionRow * rows, int64_t row_count, int64_t cell, int count) {
    uint64_t seen = 0;
    for (int at = 0; at < count; at += Isa::ROWS) {
        uint64_t bits = 0;
        for (int64_t r = 0; r < row_count; r++) {
            bits |= Isa::above(bias_of<Isa>(rows[r], cell + at), NOTHING);
        }
        seen |= bits << at;
    }
    return seen;
}

constexpr uint64_t cell_bits(int from, int count) { return (~uint64_t{0} >> (64 - count)) << from; }

// Attention of N rows over a block: `count` cells from `cell` on.
template <class Isa, int N, class Cells>
void attend_block(
    const Cells & cells, const AttentionCells & shape, int64_t cell, int count, const AttentionRow * rows,
    Progress<Isa> progress) {
    constexpr int  STEP = Cells::VECTORS * Isa::ROWS;
    const uint64_t seen = seen_by_any<Isa>(rows, N, cell, count);
    if (seen == 0) {
        return;
    }
    alignas(64) float weights[N][CELLS];  // scores at first
    for (int at = 0; at < count; at += STEP) {
        typename Isa::Floats score[N][Cells::VECTORS];
        if ((seen & cell_bits(at, STEP)) == 0) {
            continue;
        }
        cells.prefetch_values(at, shape.value_depth);
        const int next = at + STEP;
        if (next < count ? (seen & cell_bits(next, STEP)) != 0
                         : cell + next < shape.end && seen_by_any<Isa>(rows, N, cell + next, Isa::ROWS) != 0) {
            cells.prefetch_keys(next, shape.key_depth);
        }
        cells.template scores<N>(at, shape.key_depth, rows, score);
#pragma GCC unroll 8
        for (int r = 0; r < N; r++) {
#pragma GCC unroll 2
            for (int v = 0; v < Cells::VECTORS; v++) {
                Isa::store(weights[r] + at + v * Isa::ROWS, score[r][v]);
            }
        }
    }

    for (int r = 0; r < N; r++) {
        // Cells that the row does not see may hold anything, NaN too.
        auto largest = Isa::set1(NOTHING);
        for (int at = 0; at < count; at += Isa::ROWS) {
            if ((seen & cell_bits(at, Isa::ROWS)) == 0) {
                continue;
            }
            const auto bias   = bias_of<Isa>(rows[r], cell + at);
            const auto scaled = Isa::fma(Isa::load_floats(weights[r] + at), Isa::set1(shape.scale), bias);
            const auto masked = Isa::where_above(bias, NOTHING, scaled, Isa::set1(NOTHING));
            largest           = Isa::larger(largest, masked);
            Isa::store(weights[r] + at, masked);
        }
        float &     most = progress.most[r];
        const float now  = std::fmax(most, Isa::largest(largest));
        if (now == NOTHING) {
            std::fill_n(weights[r], CELLS, 0.0F);
            continue;
        }
        auto & sums = progress.sums[r];
        if (now > most) {
            const auto factor = ggml_v_expf(Isa::set1(most - now));
            sums              = Isa::mul(sums, factor);
            float * so_far    = rows[r].partial + PARTIAL_VALUES;
            for (int64_t d = 0; d < shape.value_depth; d += Isa::ROWS) {
                Isa::store(so_far + d, Isa::mul(Isa::load_floats(so_far + d), factor));
            }
            most = now;
        }
        for (int at = 0; at < count; at += Isa::ROWS) {
            if ((seen & cell_bits(at, Isa::ROWS)) != 0) {
                const auto weight = ggml_v_expf(Isa::minus(Isa::load_floats(weights[r] + at), Isa::set1(now)));
                sums              = Isa::plus(sums, weight);
                Isa::store(weights[r] + at, weight);
            }
        }
    }

    // Vectors of a row at a time: half of the registers are for results.
    constexpr int AT_ONCE = 2 * N <= Isa::QUERIES ? 4 : 2;
    int64_t       d       = 0;
    for (; d + AT_ONCE * Isa::ROWS <= shape.value_depth; d += AT_ONCE * Isa::ROWS) {
        add_values<Isa, N, AT_ONCE>(cells, seen, weights, rows, d);
    }
    for (; d < shape.value_depth; d += Isa::ROWS) {
        add_values<Isa, N, 1>(cells, seen, weights, rows, d);
    }
}

// The same for 1 to N rows.
template <class Isa, class Cells, int N = Isa::QUERIES>
void attend_rows(
    const Cells & cells, const AttentionCells & shape, int64_t cell, int count, const AttentionRow * rows,
    int64_t row_count, Progress<Isa> progress) {
    if constexpr (N > 1) {
        if (row_count < N) {
            return attend_rows<Isa, Cells, N - 1>(cells, shape, cell, count, rows, row_count, progress);
        }
    }
    attend_block<Isa, N>(cells, shape, cell, count, rows, progress);
}

// Calls `take` for every block: its first cell, their number, and the cells in the cache.
template <class Isa, class Take> inline void for_each_block(const AttentionCells & cells, Take take) {
    for (int64_t cell = cells.begin; cell < cells.end; cell += CELLS) {
        const int              count  = static_cast<int>(std::min<int64_t>(CELLS, cells.end - cell));
        const CachedCells<Isa> cached = {
            cells.keys + cell * cells.key_stride, cells.values + cell * cells.value_stride, cells.key_stride,
            cells.value_stride};
        take(cell, count, cached);
    }
}

// Rows that do not attend all at a time: each block is unpacked once for all of them.
template <class Isa>
__attribute__((noinline)) void attend_many(const AttentionCells & cells, const AttentionRow * rows, int64_t row_count, Progress<Isa> progress) {
    UnpackedCells<Isa> unpacked;
    for_each_block<Isa>(cells, [&](int64_t cell, int count, const CachedCells<Isa> & cached) {
        if (seen_by_any<Isa>(rows, row_count, cell, count) == 0) {
            return;
        }
        unpacked.unpack(cached, count, cells.key_depth, cells.value_depth);
        for (int64_t r = 0; r < row_count; r += Isa::QUERIES) {
            const int64_t some = std::min<int64_t>(Isa::QUERIES, row_count - r);
            attend_rows<Isa>(
                unpacked, cells, cell, count, rows + r, some, Progress<Isa>{progress.sums + r, progress.most + r});
        }
    });
}

template <class Isa> void attend(const AttentionCells & cells, const AttentionRow * rows, int64_t row_count) {
    typename Isa::Floats sums[ROWS_AT_ONCE];
    float                most[ROWS_AT_ONCE];
    for (int64_t r = 0; r < row_count; r++) {
        sums[r] = Isa::zero();
        most[r] = NOTHING;
        std::memset(rows[r].partial + PARTIAL_VALUES, 0, cells.value_depth * sizeof(float));
    }
    const Progress<Isa> progress = {sums, most};
    if (row_count > Isa::QUERIES) {
        attend_many(cells, rows, row_count, progress);
    } else {
        for_each_block<Isa>(cells, [&](int64_t cell, int count, const CachedCells<Isa> & cached) {
            attend_rows<Isa>(cached, cells, cell, count, rows, row_count, progress);
        });
    }
    for (int64_t r = 0; r < row_count; r++) {
        rows[r].partial[PARTIAL_MOST] = most[r];
        rows[r].partial[PARTIAL_SUM]  = Isa::total(sums[r]);
    }
}

}  // namespace
}  // namespace llgtrt::repack
