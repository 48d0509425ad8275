// What attention multiplies, for up to TILE_ROWS rows by AMX: pairs of bfloat16, as factors.h has them.
//
// A sum depends on its own row and cells alone, whatever other rows there are: its products are added up in the order of their elements or
// cells, 32 at a time.
#pragma once

#include "kernels.h"
#include "tile_registers.h"

namespace llgtrt::repack {
namespace {

constexpr int PAIR        = 4;                      // bytes
constexpr int ELEMENTS    = TILE_BYTES / PAIR * 2;  // whose products one instruction adds up
constexpr int TILE_FLOATS = TILE_BYTES / sizeof(float);
static_assert(WIDEST_HEAD % ELEMENTS == 0);

// Adds to register `TO` the products of pairs.
template <int TO, int FIRST, int SECOND> inline void multiply_pairs() {
    asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" : : "i"(TO), "i"(FIRST), "i"(SECOND));
}

// Multiplies the `depth` elements of each query, `stride` bytes from one to the next, with those of CELLS_OF_LOOK cells. `keys` has a pair of all
// cells after the other. Both have zeros behind them to a multiple of ELEMENTS.
inline void multiply_queries(
    const uint8_t * queries, int64_t stride, const float * keys, int64_t depth, float (*scores)[CELLS_OF_LOOK]) {
    constexpr int64_t ROW = sizeof(float) * CELLS_OF_LOOK;
    static_assert(CELLS_OF_LOOK == 4 * TILE_FLOATS);
    zero_tile<4>();
    zero_tile<5>();
    zero_tile<6>();
    zero_tile<7>();
    for (int64_t d = 0; d < depth; d += ELEMENTS, keys += ELEMENTS / 2 * CELLS_OF_LOOK, queries += TILE_BYTES) {
        load_tile<2>(queries, stride);
        load_tile<0>(keys, ROW);
        multiply_pairs<4, 2, 0>();
        load_tile<0>(keys + TILE_FLOATS, ROW);
        multiply_pairs<5, 2, 0>();
        load_tile<0>(keys + 2 * TILE_FLOATS, ROW);
        multiply_pairs<6, 2, 0>();
        load_tile<0>(keys + 3 * TILE_FLOATS, ROW);
        multiply_pairs<7, 2, 0>();
    }
    store_tile<4>(scores[0], ROW);
    store_tile<5>(scores[0] + TILE_FLOATS, ROW);
    store_tile<6>(scores[0] + 2 * TILE_FLOATS, ROW);
    store_tile<7>(scores[0] + 3 * TILE_FLOATS, ROW);
}

// Adds TILE_FLOATS elements of each value times the weights in registers 2 and 3 to each row's sums.
template <int SUM> inline void add_weighted_part(const float * values, int64_t depth, float * sums, int64_t stride) {
    load_tile<SUM>(sums, stride);
    load_tile<0>(values, depth * PAIR);
    multiply_pairs<SUM, 2, 0>();
    load_tile<0>(values + TILE_ROWS * depth, depth * PAIR);
    multiply_pairs<SUM, 3, 0>();
    store_tile<SUM>(sums, stride);
}

// Adds the values of CELLS_OF_LOOK cells, `depth` elements each, times their weights to each row's sums, `stride` bytes from one to the next.
// `values` has pairs of two cells' elements, the two by turns. All cells take part.
inline void add_weighted(
    const float (*weights)[CELLS_OF_LOOK], const float * values, int64_t depth, float * sums, int64_t stride) {
    load_tile<2>(weights[0], sizeof weights[0]);
    load_tile<3>(weights[0] + TILE_FLOATS, sizeof weights[0]);
    int64_t d = 0;
    for (; d + 4 * TILE_FLOATS <= depth; d += 4 * TILE_FLOATS) {
        add_weighted_part<4>(values + d, depth, sums + d, stride);
        add_weighted_part<5>(values + d + TILE_FLOATS, depth, sums + d + TILE_FLOATS, stride);
        add_weighted_part<6>(values + d + 2 * TILE_FLOATS, depth, sums + d + 2 * TILE_FLOATS, stride);
        add_weighted_part<7>(values + d + 3 * TILE_FLOATS, depth, sums + d + 3 * TILE_FLOATS, stride);
    }
    for (; d < depth; d += TILE_FLOATS) {
        add_weighted_part<4>(values + d, depth, sums + d, stride);
    }
}

}  // namespace
}  // namespace llgtrt::repack
