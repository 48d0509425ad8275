// Attention of some rows (queries of heads that share one head of the KV cache) over a run of its cells.
//
// What a row gets depends on its own query and the cells that it sees: cells are taken in blocks that begin at multiples
// of ROWS, and no sum crosses from one row to another. So it does not matter what else a batch holds.
#pragma once

#include <cmath>

#include "isa.h"
#include "kernels.h"
#include "vec.h"

namespace llgtrt::repack {
namespace {

// Asks for `depth` halves of each of ROWS cells. They lie apart, as those of other heads are between them, and a step over
// many sequences reads all their caches once: they come from memory, and nothing but this asks for them early.
template <class Isa> inline void prefetch(const char * cells, int64_t stride, int64_t depth) {
    constexpr int64_t CACHE_LINE = 64;
    for (int i = 0; i < Isa::ROWS; i++, cells += stride) {
        for (int64_t at = 0; at < 2 * depth; at += CACHE_LINE) {
            __builtin_prefetch(cells + at);
        }
    }
}

// The scores of ROWS cells: the products of `depth` halves at `keys` with N queries, before scale and mask.
template <class Isa, int N>
inline void scores(
    const char * keys, int64_t stride, int64_t depth, const AttentionRow * rows, typename Isa::Floats * result) {
    typename Isa::Floats sums[N];
#pragma GCC unroll 8
    for (int r = 0; r < N; r++) {
        sums[r] = Isa::zero();
    }
    for (int64_t d = 0; d < depth; d += Isa::ROWS) {
        typename Isa::Floats cells[Isa::ROWS];
#pragma GCC unroll 16
        for (int i = 0; i < Isa::ROWS; i++) {
            cells[i] = Isa::halves(keys + i * stride + d * 2);
        }
        // One vector per element of the keys now, each with that of ROWS cells.
        Isa::transpose(cells);
#pragma GCC unroll 16
        for (int i = 0; i < Isa::ROWS; i++) {
#pragma GCC unroll 8
            for (int r = 0; r < N; r++) {
                sums[r] = Isa::fma(Isa::set1(rows[r].query[d + i]), cells[i], sums[r]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < N; r++) {
        result[r] = sums[r];
    }
}

// Adds V * ROWS halves of the cells in `seen`, a bit each, times their weights to each row's values from element `d` on.
template <class Isa, int N, int V>
inline void add_values(
    const char * cells, int64_t stride, uint32_t seen, const float (*weights)[Isa::ROWS], const AttentionRow * rows,
    int64_t d) {
    typename Isa::Floats result[N][V];
#pragma GCC unroll 8
    for (int r = 0; r < N; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            result[r][v] = Isa::load_floats(rows[r].partial + PARTIAL_VALUES + d + v * Isa::ROWS);
        }
    }
    for (uint32_t left = seen; left != 0; left &= left - 1) {
        const int            i = __builtin_ctz(left);
        typename Isa::Floats value[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            value[v] = Isa::halves(cells + i * stride + v * Isa::ROWS * 2);
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

// Whether any row sees any of the ROWS cells from `cell` on.
template <class Isa, int N> inline bool is_seen(const AttentionRow * rows, int64_t cell) {
    uint32_t seen = 0;
#pragma GCC unroll 8
    for (int r = 0; r < N; r++) {
        seen |= rows[r].mask == nullptr ? 1 : Isa::above(Isa::halves(rows[r].mask + cell), -INFINITY);
    }
    return seen != 0;
}

template <class Isa, int N> void attend_rows(const AttentionCells & cells, const AttentionRow * rows) {
    constexpr float      NOTHING = -INFINITY;
    typename Isa::Floats sums[N];
    float                most[N];
    for (int r = 0; r < N; r++) {
        sums[r] = Isa::zero();
        most[r] = NOTHING;
        std::memset(rows[r].partial + PARTIAL_VALUES, 0, cells.value_depth * sizeof(float));
    }
    for (int64_t cell = cells.begin; cell < cells.end; cell += Isa::ROWS) {
        typename Isa::Floats bias[N];
        uint32_t             sees[N];
        uint32_t             seen = 0;  // by any row, a bit per cell
        for (int r = 0; r < N; r++) {
            bias[r] = rows[r].mask == nullptr ? Isa::zero() : Isa::halves(rows[r].mask + cell);
            sees[r] = Isa::above(bias[r], NOTHING);
            seen |= sees[r];
        }
        if (seen == 0) {
            continue;
        }

        typename Isa::Floats score[N];
        alignas(64) float    weights[N][Isa::ROWS];
        const char *         keys   = cells.keys + cell * cells.key_stride;
        const char *         values = cells.values + cell * cells.value_stride;
        prefetch<Isa>(values, cells.value_stride, cells.value_depth);
        if (cell + Isa::ROWS < cells.end && is_seen<Isa, N>(rows, cell + Isa::ROWS)) {
            prefetch<Isa>(keys + Isa::ROWS * cells.key_stride, cells.key_stride, cells.key_depth);
        }
        scores<Isa, N>(keys, cells.key_stride, cells.key_depth, rows, score);
        for (int r = 0; r < N; r++) {
            if (sees[r] == 0) {
                Isa::store(weights[r], Isa::zero());
                continue;
            }
            // Cells that the row does not see may hold anything, NaN too.
            const auto  scaled = Isa::fma(score[r], Isa::set1(cells.scale), bias[r]);
            const auto  masked = Isa::where_above(bias[r], NOTHING, scaled, Isa::set1(NOTHING));
            const float now    = std::fmax(most[r], Isa::largest(masked));
            if (now > most[r]) {
                const auto factor = ggml_v_expf(Isa::set1(most[r] - now));
                sums[r]           = Isa::mul(sums[r], factor);
                float * so_far    = rows[r].partial + PARTIAL_VALUES;
                for (int64_t d = 0; d < cells.value_depth; d += Isa::ROWS) {
                    Isa::store(so_far + d, Isa::mul(Isa::load_floats(so_far + d), factor));
                }
                most[r] = now;
            }
            const auto weight = ggml_v_expf(Isa::minus(masked, Isa::set1(now)));
            sums[r]           = Isa::plus(sums[r], weight);
            Isa::store(weights[r], weight);
        }

        // Vectors of a row at a time: half of the registers are for results.
        constexpr int AT_ONCE = 2 * N <= Isa::QUERIES ? 4 : 2;
        int64_t       d       = 0;
        for (; d + AT_ONCE * Isa::ROWS <= cells.value_depth; d += AT_ONCE * Isa::ROWS) {
            add_values<Isa, N, AT_ONCE>(values + d * 2, cells.value_stride, seen, weights, rows, d);
        }
        for (; d < cells.value_depth; d += Isa::ROWS) {
            add_values<Isa, N, 1>(values + d * 2, cells.value_stride, seen, weights, rows, d);
        }
    }
    for (int r = 0; r < N; r++) {
        rows[r].partial[PARTIAL_MOST] = most[r];
        rows[r].partial[PARTIAL_SUM]  = Isa::total(sums[r]);
    }
}

template <class Isa, int N = Isa::QUERIES>
void attend(const AttentionCells & cells, const AttentionRow * rows, int64_t count) {
    if constexpr (N > 1) {
        if (count < N) {
            return attend<Isa, N - 1>(cells, rows, count);
        }
    }
    attend_rows<Isa, N>(cells, rows);
}

}  // namespace
}  // namespace llgtrt::repack
