// A row divided by the root of the mean of its squares.
#pragma once

#include <cmath>

#include "isa.h"

namespace llgtrt::repack {
namespace {

// Of `count` floats. `to` is `from`, or does not overlap it.
//
// ggml adds up the squares one after the other, in doubles, each waiting for the one before. Sums of a sixty-fourth of them each
// lose so little to rounding that floats do: its test asks for a millionth.
template <class Isa> void normalize(const float * from, int64_t count, float epsilon, float * to) {
    constexpr int SUMS = 64, VECTORS = SUMS / Isa::ROWS;
    typename Isa::Floats vectors[VECTORS];
#pragma GCC unroll 16
    for (int v = 0; v < VECTORS; v++) {
        vectors[v] = Isa::zero();
    }
    int64_t i = 0;
    for (; i + SUMS <= count; i += SUMS) {
#pragma GCC unroll 16
        for (int v = 0; v < VECTORS; v++) {
            const auto some = Isa::load_floats(from + i + v * Isa::ROWS);
            vectors[v]      = Isa::fma(some, some, vectors[v]);
        }
    }
#pragma GCC unroll 4
    for (int half = VECTORS / 2; half > 0; half /= 2) {
#pragma GCC unroll 8
        for (int v = 0; v < half; v++) {
            vectors[v] = Isa::plus(vectors[v], vectors[v + half]);
        }
    }
    float sum = Isa::total(vectors[0]);
    for (; i < count; i++) {
        sum += from[i] * from[i];
    }
    const float scale  = 1.0F / std::sqrt(sum / static_cast<float>(count) + epsilon);
    const auto  scales = Isa::set1(scale);
    for (i = 0; i + Isa::ROWS <= count; i += Isa::ROWS) {
        Isa::store(to + i, Isa::mul(Isa::load_floats(from + i), scales));
    }
    for (; i < count; i++) {
        to[i] = from[i] * scale;
    }
}

}  // namespace
}  // namespace llgtrt::repack
