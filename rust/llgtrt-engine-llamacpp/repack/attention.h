// Attention of some rows (queries of heads that share one head of the KV cache) over a run of its cells.
//
// What a row gets depends on its own query and the cells that it sees: cells are taken in blocks that begin at multiples
// of CELLS, and no sum crosses from one row to another. So it does not matter what else a batch holds.
#pragma once

#include <algorithm>
#include <cmath>
#include <optional>

#if defined(__AMX_BF16__)
#    include "attention_tiles.h"
#endif
#include "attention_cells.h"
#include "factors.h"
#include "isa.h"
#include "kernels.h"

namespace llgtrt::repack {
namespace {

// What a score becomes whose hyperbolic tangent counts, of a `2 * LOG2_E`th of it, times `cap`.
template <class Isa> inline typename Isa::Floats capped(typename Isa::Floats score, float cap) {
    const auto power = Factors<Isa>::exp2(Isa::minus_size(score));
    const auto part  = Isa::divide(Isa::minus(Isa::set1(1.0F), power), Isa::plus(Isa::set1(1.0F), power));
    return Isa::with_sign_of(score, Isa::mul(part, Isa::set1(cap)));
}

// What some rows' attention over a run of cells has come to so far, besides their values.
template <class Isa> struct Progress {
    typename Isa::Floats * sums;
    float *                most;
};

// Adds V * ROWS elements of the cells in `seen`, a bit each, times their weights to each row's values from element `d` on.
template <class Isa, int N, int V, class Cells>
inline void add_values(
    const Cells & cells, uint64_t seen, const float (*weights)[CELLS], const Row * rows, int64_t d) {
    typename Isa::Floats result[N][V];
#pragma GCC unroll 8
    for (int r = 0; r < N; r++) {
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            result[r][v] = Isa::load_floats(rows[r].partial + PARTIAL_VALUES + d + v * Isa::ROWS);
        }
    }
    // A bit for the first of TOGETHER cells if any of them is seen.
    const uint64_t steps = Factors<Isa>::TOGETHER == 1 ? seen : (seen | seen >> 1) & 0x5555555555555555;
    for (uint64_t left = steps; left != 0; left &= left - 1) {
        const int            i = __builtin_ctzll(left);
        typename Isa::Floats value[V];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            value[v] = cells.value(i, d + v * Isa::ROWS, seen);
        }
#pragma GCC unroll 8
        for (int r = 0; r < N; r++) {
            const auto * const weight = reinterpret_cast<const uint8_t *>(weights[r]) + i * Factors<Isa>::BYTES;
#pragma GCC unroll 4
            for (int v = 0; v < V; v++) {
                result[r][v] = Factors<Isa>::add(result[r][v], value[v], weight);
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
template <class Isa> inline typename Isa::Floats bias_of(const Row & row, int64_t cell) {
    return row.mask == nullptr ? Isa::zero() : Isa::halves(row.mask + cell);
}

constexpr float NOTHING = -INFINITY;
// The score of a cell that a row does not see: below all others, and finite, as Factors::exp2 wants it.
constexpr float UNSEEN = -1e30F;

constexpr uint64_t cell_bits(int from, int count) { return (~uint64_t{0} >> (64 - count)) << from; }

// Whether another head of the same token comes before row `r`.
inline bool is_of_same_token(const Row * rows, int64_t r) { return r > 0 && rows[r].mask == rows[r - 1].mask; }

// A bit for each of the `count` cells from `cell` on that any of the rows sees. The last rows see most.
template <class Isa>
inline uint64_t seen_by_any(const Row * rows, int64_t row_count, int64_t cell, int count) {
    uint64_t seen = 0;
    for (int64_t r = row_count - 1; r >= 0 && seen != cell_bits(0, count); r--) {
        if (is_of_same_token(rows, r)) {
            continue;
        }
        for (int at = 0; at < count; at += Isa::ROWS) {
            seen |= static_cast<uint64_t>(Isa::above(bias_of<Isa>(rows[r], cell + at), NOTHING)) << at;
        }
    }
    return seen;
}

// Whether a row sees all of the `count` cells from `cell` on, and nothing is added to their scores.
template <class Isa> inline bool sees_all(const Row & row, int64_t cell, int count) {
    if (row.mask == nullptr) {
        return true;
    }
    auto some = Isa::set1(0);
    int  at   = 0;
    for (; at + 2 * Isa::ROWS <= count; at += 2 * Isa::ROWS) {
        some = Isa::either(some, Isa::load(row.mask + cell + at));
    }
    return at == count && Isa::are_zero(some);
}

// Finds out how much of a block each row sees, unless that is known. Answers whether any of them sees some of it.
template <class Isa> inline bool look_at_block(Row * rows, int64_t row_count, int64_t cell, int count) {
    bool any = false;
    for (int64_t r = 0; r < row_count; r++) {
        if (is_of_same_token(rows, r)) {
            rows[r].look = rows[r - 1].look;
            continue;
        }
        uint8_t * const known = rows[r].looks + cell / CELLS;
        uint8_t         look  = __atomic_load_n(known, __ATOMIC_RELAXED);
        if (look == LOOK_UNKNOWN) {
            look = sees_all<Isa>(rows[r], cell, count)                  ? LOOK_ALL
                   : seen_by_any<Isa>(rows + r, 1, cell, count) != 0 ? LOOK_SOME
                                                                     : LOOK_NONE;
            __atomic_store_n(known, look, __ATOMIC_RELAXED);
        }
        rows[r].look = look;
        any |= look != LOOK_NONE;
    }
    return any;
}

// A bit for each of the cells of that block that any of the rows sees.
template <class Isa>
inline uint64_t seen_of_block(const Row * rows, int64_t row_count, int64_t cell, int count) {
    const bool all = std::any_of(rows, rows + row_count, [](const Row & row) { return row.look == LOOK_ALL; });
    return all ? cell_bits(0, count) : seen_by_any<Isa>(rows, row_count, cell, count);
}

// Writes N rows' scores of the cells in `seen`, and of some of their neighbours.
template <class Isa, int N, class Cells>
inline void write_scores(
    const Cells & cells, const AttentionCells & shape, int64_t cell, int count, uint64_t seen, const Row * rows,
    float (*scores)[CELLS]) {
    constexpr int STEP = Cells::VECTORS * Isa::ROWS;
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
#pragma GCC unroll 4
            for (int v = 0; v < Cells::VECTORS; v++) {
                Isa::store(scores[r] + at + v * Isa::ROWS, score[r][v]);
            }
        }
    }
}

// Makes factors of some rows' scores of the cells in `seen`, in their place: what the cells' values are multiplied with. Adds them up, and scales
// what a row has come to so far where one of its scores is larger than all before.
template <class Isa, int MOST>
__attribute__((always_inline)) inline void weigh(
    const AttentionCells & shape, int64_t cell, int count, uint64_t seen, const Row * rows, int row_count,
    float (*weights)[CELLS], Progress<Isa> progress) {
    if (shape.cap != 0) {
        for (int r = 0; r < row_count; r++) {
            for (int at = 0; at < count; at += Isa::ROWS) {
                if ((seen & cell_bits(at, Isa::ROWS)) != 0) {
                    Isa::store(weights[r] + at, capped<Isa>(Isa::load_floats(weights[r] + at), shape.cap * LOG2_E));
                }
            }
        }
    }

    typename Isa::Floats largest[MOST];
    for (int r = 0; r < row_count; r++) {
        largest[r] = Isa::set1(NOTHING);
        if (rows[r].look == LOOK_ALL) {
            for (int at = 0; at < count; at += Isa::ROWS) {
                largest[r] = Isa::larger(largest[r], Isa::load_floats(weights[r] + at));
            }
            continue;
        }
        for (int at = 0; at < count; at += Isa::ROWS) {
            if ((seen & cell_bits(at, Isa::ROWS)) == 0) {
                continue;
            }
            // Cells that the row does not see may hold anything, NaN too.
            const auto bias   = bias_of<Isa>(rows[r], cell + at);
            const auto biased = Isa::fma(bias, Isa::set1(LOG2_E), Isa::load_floats(weights[r] + at));
            const auto masked = Isa::where_above(bias, NOTHING, biased, Isa::set1(UNSEEN));
            largest[r]        = Isa::larger(largest[r], masked);
            Isa::store(weights[r] + at, masked);
        }
    }
    // Apart from what is done with them: each is waited for.
    float most_here[MOST];
    for (int r = 0; r < row_count; r++) {
        most_here[r] = Isa::largest(largest[r]);
    }
    for (int r = 0; r < row_count; r++) {
        float &     most = progress.most[r];
        const float now  = most > most_here[r] ? most : most_here[r];
        if (now <= UNSEEN) {
            std::fill_n(weights[r], CELLS, 0.0F);
            continue;
        }
        auto sums = progress.sums[r];
        if (now > most && most != NOTHING) {
            const auto factor = Factors<Isa>::exp2(Isa::set1(most - now));
            sums              = Isa::mul(sums, factor);
            float * so_far    = rows[r].partial + PARTIAL_VALUES;
            for (int64_t d = 0; d < shape.value_depth; d += Isa::ROWS) {
                Isa::store(so_far + d, Isa::mul(Isa::load_floats(so_far + d), factor));
            }
        }
        most = now;
        for (int at = 0; at < count; at += Isa::ROWS) {
            if ((seen & cell_bits(at, Isa::ROWS)) != 0) {
                const auto weight = Factors<Isa>::exp2(Isa::minus(Isa::load_floats(weights[r] + at), Isa::set1(now)));
                // Factors take no more room than the scores before them. The sum is that of the weights as they are
                // multiplied.
                sums = Isa::plus(
                    sums, Factors<Isa>::store(reinterpret_cast<uint8_t *>(weights[r]) + at * Factors<Isa>::BYTES, weight));
            }
        }
        progress.sums[r] = sums;
    }
}

// Attention of N rows over a block: `count` cells from `cell` on.
template <class Isa, int N, class Cells>
void attend_block(
    const Cells & cells, const AttentionCells & shape, int64_t cell, int count, const Row * rows,
    Progress<Isa> progress) {
    const uint64_t seen = seen_of_block<Isa>(rows, N, cell, count);
    if (seen == 0) {
        return;
    }
    alignas(64) float weights[N][CELLS];
    write_scores<Isa, N>(cells, shape, cell, count, seen, rows, weights);
    weigh<Isa, N>(shape, cell, count, seen, rows, N, weights, progress);

    constexpr int AT_ONCE = 4 * N <= Isa::SUMS ? 4 : 2;  // vectors of a row
    int64_t       d       = 0;
    for (; d + AT_ONCE * Isa::ROWS <= shape.value_depth; d += AT_ONCE * Isa::ROWS) {
        add_values<Isa, N, AT_ONCE>(cells, seen, weights, rows, d);
    }
    for (; d < shape.value_depth; d += Isa::ROWS) {
        add_values<Isa, N, 1>(cells, seen, weights, rows, d);
    }
}

// The same for 1 to N rows.
template <class Isa, class Cells, int N = Cells::QUERIES>
void attend_rows(
    const Cells & cells, const AttentionCells & shape, int64_t cell, int count, const Row * rows,
    int64_t row_count, Progress<Isa> progress) {
    if constexpr (N > 1) {
        if (row_count < N) {
            return attend_rows<Isa, Cells, N - 1>(cells, shape, cell, count, rows, row_count, progress);
        }
    }
    attend_block<Isa, N>(cells, shape, cell, count, rows, progress);
}

// Calls `take` for every block: its first cell, their number, and the cells in the cache.
template <class Isa, class Elements, class Take> inline void for_each_block(const AttentionCells & cells, Take take) {
    for (int64_t cell = cells.begin; cell < cells.end; cell += CELLS) {
        const int count = static_cast<int>(std::min<int64_t>(CELLS, cells.end - cell));
        const CachedCells<Isa, Elements> cached = {
            cells.keys + cell * cells.key_stride, cells.values + cell * cells.value_stride, cells.key_stride,
            cells.value_stride};
        take(cell, count, cached);
    }
}

#if defined(__AMX_BF16__)

template <class Isa> constexpr int QUERIES   = TILE_ROWS;  // that attend at a time
template <class Isa> constexpr int AS_CACHED = 0;          // rows, at most, that attend to cells as they lie in the cache
// Rows for which cells are unpacked once. That takes a good part of the time: with 64 all took 1.15 times as long.
constexpr int ROWS_AT_ONCE = 128;

// Attention of up to TILE_ROWS rows over a block, with the products by AMX. Cells that nobody sees take part: with a factor of zero.
template <class Isa>
void attend_tile(
    const UnpackedCells<Isa> & cells, const AttentionCells & shape, int64_t cell, int count, const Row * rows,
    int row_count, Progress<Isa> progress) {
    if (std::all_of(rows, rows + row_count, [](const Row & row) { return row.look == LOOK_NONE; })) {
        return;
    }
    alignas(64) float weights[TILE_ROWS][CELLS];
    multiply_queries(rows[0].factors, Factors<Isa>::BYTES * WIDEST_HEAD, cells.keys, shape.key_depth, weights);
    if (count == CELLS) {
        // The usual number is unrolled.
        weigh<Isa, TILE_ROWS>(shape, cell, CELLS, cell_bits(0, CELLS), rows, row_count, weights, progress);
    } else {
        weigh<Isa, TILE_ROWS>(shape, cell, count, cell_bits(0, count), rows, row_count, weights, progress);
        for (int r = 0; r < row_count; r++) {
            auto * const factors = reinterpret_cast<uint8_t *>(weights[r]);
            std::memset(factors + count * Factors<Isa>::BYTES, 0, (CELLS - count) * Factors<Isa>::BYTES);
        }
    }
    // They lie evenly: see AttentionRow.
    const int64_t stride = row_count > 1 ? (rows[1].partial - rows[0].partial) * static_cast<int64_t>(sizeof(float)) : 0;
    add_weighted(weights, cells.values, shape.value_depth, rows[0].partial + PARTIAL_VALUES, stride);
}

// Rows of any number that attend to blocks that are unpacked, one block after the other.
template <class Isa> class ManyRows {
  public:
    void attend(
        UnpackedCells<Isa> & unpacked, const AttentionCells & cells, int64_t cell, int count, const Row * rows,
        int64_t row_count, Progress<Isa> progress) {
        if (count < CELLS) {
            const int64_t pairs = cells.value_depth / Factors<Isa>::TOGETHER;
            std::fill(unpacked.values + count * pairs, unpacked.values + CELLS * pairs, 0.0F);
        }
        for (int64_t r = 0; r < row_count; r += TILE_ROWS) {
            const auto some = std::min<int64_t>(row_count - r, TILE_ROWS);
            if (some != shaped_for_) {
                registers_.emplace(some, TILE_BYTES);
                shaped_for_ = some;
            }
            attend_tile<Isa>(
                unpacked, cells, cell, count, rows + r, static_cast<int>(some),
                Progress<Isa>{progress.sums + r, progress.most + r});
        }
    }

  private:
    std::optional<TileRegisters> registers_;
    int64_t                      shaped_for_ = 0;  // rows
};

#else

template <class Isa> constexpr int QUERIES   = Isa::QUERIES;
template <class Isa> constexpr int AS_CACHED = Isa::QUERIES;
constexpr int ROWS_AT_ONCE = 64;  // with 128 nothing was faster

template <class Isa> class ManyRows {
  public:
    void attend(
        const UnpackedCells<Isa> & unpacked, const AttentionCells & cells, int64_t cell, int count, const Row * rows,
        int64_t row_count, Progress<Isa> progress) {
        constexpr int64_t AT_ONCE = UnpackedCells<Isa>::QUERIES;
        for (int64_t r = 0; r < row_count; r += AT_ONCE) {
            const int64_t some = std::min(AT_ONCE, row_count - r);
            attend_rows<Isa>(
                unpacked, cells, cell, count, rows + r, some, Progress<Isa>{progress.sums + r, progress.most + r});
        }
    }
};

#endif

// Rows that do not attend all at a time: each block is unpacked once for all of them.
template <class Isa, class Elements>
__attribute__((noinline)) void attend_many(
    const AttentionCells & cells, Row * rows, int64_t row_count, Progress<Isa> progress) {
    UnpackedCells<Isa> unpacked;
    ManyRows<Isa>      many;
    for_each_block<Isa, Elements>(cells, [&](int64_t cell, int count, const auto & cached) {
        look_at_block<Isa>(rows, row_count, cell, count);
        const uint64_t seen = seen_of_block<Isa>(rows, row_count, cell, count);
        if (seen == 0) {
            return;
        }
        unpacked.unpack(cached, count, seen, cells.key_depth, cells.value_depth);
        many.attend(unpacked, cells, cell, count, rows, row_count, progress);
    });
}

template <class Isa, class Elements>
void attend_cells(const AttentionCells & cells, const AttentionRow * queries, int64_t row_count) {
    Row rows[ROWS_AT_ONCE];
    alignas(64) uint8_t  room[ROWS_AT_ONCE][Factors<Isa>::BYTES * WIDEST_HEAD];
    typename Isa::Floats sums[ROWS_AT_ONCE];
    float                most[ROWS_AT_ONCE];
    for (int64_t r = 0; r < row_count; r++) {
        rows[r] = {room[r], queries[r].mask, queries[r].looks, queries[r].partial, LOOK_UNKNOWN};
        rows[r].partial[PARTIAL_MOST] = NOTHING;
        rows[r].partial[PARTIAL_SUM]  = 0;
        std::memset(rows[r].partial + PARTIAL_VALUES, 0, cells.value_depth * sizeof(float));
    }
    // Where another sequence is longer, most cells are none of theirs.
    bool any = false;
    for_each_block<Isa, Elements>(cells, [&](int64_t cell, int count, const auto &) {
        any = any || look_at_block<Isa>(rows, row_count, cell, count);
    });
    if (!any) {
        return;
    }
    const float scale = cells.cap == 0 ? cells.scale : 2 * cells.scale / cells.cap;
    for (int64_t r = 0; r < row_count; r++) {
        Factors<Isa>::of(queries[r].query, scale * LOG2_E, cells.key_depth, room[r]);
        sums[r] = Isa::zero();
        most[r] = NOTHING;
    }
    const Progress<Isa> progress = {sums, most};
    // The compiler leaves out what cannot be.
    if (AS_CACHED<Isa> == 0 || row_count > AS_CACHED<Isa>) {
        attend_many<Isa, Elements>(cells, rows, row_count, progress);
    } else {
        for_each_block<Isa, Elements>(cells, [&](int64_t cell, int count, const auto & cached) {
            look_at_block<Isa>(rows, row_count, cell, count);
            attend_rows<Isa>(cached, cells, cell, count, rows, row_count, progress);
        });
    }
    for (int64_t r = 0; r < row_count; r++) {
        rows[r].partial[PARTIAL_MOST] = most[r];
        rows[r].partial[PARTIAL_SUM]  = Isa::total(sums[r]);
    }
}

template <class Isa> void attend(const AttentionCells & cells, const AttentionRow * queries, int64_t row_count) {
    if (cells.type == GGML_TYPE_Q8_0) {
        attend_cells<Isa, Q8Elements<Isa>>(cells, queries, row_count);
    } else {
        attend_cells<Isa, HalfElements<Isa>>(cells, queries, row_count);
    }
}

// Adds a partial result of `values` values to another one.
template <class Isa> void merge(float * to, const float * other, int64_t values) {
    if (std::isinf(other[PARTIAL_MOST])) {
        return;  // it has seen no cell
    }
    const float most = std::fmax(to[PARTIAL_MOST], other[PARTIAL_MOST]);
    const float mine = std::exp2(to[PARTIAL_MOST] - most);
    const float its  = std::exp2(other[PARTIAL_MOST] - most);
    to[PARTIAL_MOST] = most;
    to[PARTIAL_SUM]  = to[PARTIAL_SUM] * mine + other[PARTIAL_SUM] * its;
    for (int64_t i = PARTIAL_VALUES; i < PARTIAL_VALUES + values; i += Isa::ROWS) {
        const auto rest = Isa::mul(Isa::load_floats(other + i), Isa::set1(its));
        Isa::store(to + i, Isa::fma(Isa::load_floats(to + i), Isa::set1(mine), rest));
    }
}

// Writes the `values` values that a row has come to.
template <class Isa> void finish(const float * partial, int64_t values, float * out) {
    const float sum     = partial[PARTIAL_SUM];
    const auto  inverse = Isa::set1(sum == 0 ? 0.0F : 1.0F / sum);
    for (int64_t i = 0; i < values; i += Isa::ROWS) {
        Isa::store(out + i, Isa::mul(Isa::load_floats(partial + PARTIAL_VALUES + i), inverse));
    }
}

}  // namespace
}  // namespace llgtrt::repack
