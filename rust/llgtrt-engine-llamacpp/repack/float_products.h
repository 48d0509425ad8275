// Weights in floats, halves or bfloat16, as they lie in the file, times the floats of some tokens.
#pragma once

#include "isa.h"
#include "kernels.h"

namespace llgtrt::repack {
namespace {

// ROWS weights from element `d` of a row on.
template <class Isa, ggml_type TYPE> inline typename Isa::Floats weights_at(const char * row, int64_t d) {
    if constexpr (TYPE == GGML_TYPE_F32) {
        return Isa::load_floats(row + 4 * d);
    } else if constexpr (TYPE == GGML_TYPE_F16) {
        return Isa::halves(row + 2 * d);
    } else {
        return (typename Isa::Floats)Isa::left(Isa::shorts(row + 2 * d), 16);
    }
}

// R rows, `stride` bytes apart, times C columns of `depth` elements: row r times column c goes to `out[c][r]`. The order of additions is
// the same for any R and C.
template <class Isa, ggml_type TYPE, int R, int C>
inline void multiply_tile(
    const char * rows, int64_t stride, int64_t depth, const float * const * columns, float * const * out, int64_t at) {
    typename Isa::Floats sums[R][C];
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 8
        for (int c = 0; c < C; c++) {
            sums[r][c] = Isa::zero();
        }
    }
    for (int64_t d = 0; d < depth; d += Isa::ROWS) {
        typename Isa::Floats elements[C];
#pragma GCC unroll 8
        for (int c = 0; c < C; c++) {
            elements[c] = Isa::load_floats(columns[c] + d);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; r++) {
            const auto weights = weights_at<Isa, TYPE>(rows + r * stride, d);
#pragma GCC unroll 8
            for (int c = 0; c < C; c++) {
                sums[r][c] = Isa::fma(weights, elements[c], sums[r][c]);
            }
        }
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; r++) {
#pragma GCC unroll 8
        for (int c = 0; c < C; c++) {
            out[c][at + r] = Isa::total(sums[r][c]);
        }
    }
}

// Columns at a time: their sums with four rows, their elements and a row's weights fill the registers.
template <class Isa> constexpr int FLOAT_COLUMNS = Isa::SUMS / 4;

template <class Isa, ggml_type TYPE, int C = FLOAT_COLUMNS<Isa>>
void multiply_rows(const FloatRows & rows, const float * const * columns, int64_t n, float * const * out) {
    if constexpr (C > 1) {
        if (n < C) {
            return multiply_rows<Isa, TYPE, C - 1>(rows, columns, n, out);
        }
    }
    constexpr int R  = C == 1 ? 8 : 4;  // one column has no sums to wait for each other's products
    int64_t       at = 0;
    for (; at + R <= rows.count; at += R) {
        multiply_tile<Isa, TYPE, R, C>(rows.data + at * rows.stride, rows.stride, rows.depth, columns, out, at);
    }
    for (; at < rows.count; at++) {
        multiply_tile<Isa, TYPE, 1, C>(rows.data + at * rows.stride, rows.stride, rows.depth, columns, out, at);
    }
}

template <class Isa>
void multiply_floats(const FloatRows & rows, const float * const * columns, int64_t n, float * const * out) {
    switch (rows.type) {
        case GGML_TYPE_F16:
            return multiply_rows<Isa, GGML_TYPE_F16>(rows, columns, n, out);
        case GGML_TYPE_BF16:
            return multiply_rows<Isa, GGML_TYPE_BF16>(rows, columns, n, out);
        default:
            return multiply_rows<Isa, GGML_TYPE_F32>(rows, columns, n, out);
    }
}

}  // namespace
}  // namespace llgtrt::repack
