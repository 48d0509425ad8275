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
        const char *         keys = cells.keys + cell * cells.key_stride;
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
                float * values    = rows[r].partial + PARTIAL_VALUES;
                for (int64_t d = 0; d < cells.value_depth; d += Isa::ROWS) {
                    Isa::store(values + d, Isa::mul(Isa::load_floats(values + d), factor));
                }
                most[r] = now;
            }
            const auto weight = ggml_v_expf(Isa::minus(masked, Isa::set1(now)));
            sums[r]           = Isa::plus(sums[r], weight);
            Isa::store(weights[r], weight);
        }

        const char * values = cells.values + cell * cells.value_stride;
        for (int64_t d = 0; d < cells.value_depth; d += Isa::ROWS) {
            typename Isa::Floats result[N];
#pragma GCC unroll 8
            for (int r = 0; r < N; r++) {
                result[r] = Isa::load_floats(rows[r].partial + PARTIAL_VALUES + d);
            }
            for (uint32_t left = seen; left != 0; left &= left - 1) {
                const int  i     = __builtin_ctz(left);
                const auto value = Isa::halves(values + i * cells.value_stride + d * 2);
#pragma GCC unroll 8
                for (int r = 0; r < N; r++) {
                    result[r] = Isa::fma(Isa::set1(weights[r][i]), value, result[r]);
                }
            }
#pragma GCC unroll 8
            for (int r = 0; r < N; r++) {
                Isa::store(rows[r].partial + PARTIAL_VALUES + d, result[r]);
            }
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
