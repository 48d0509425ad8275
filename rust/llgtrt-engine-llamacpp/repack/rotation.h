// A head whose pairs of elements are turned, each by an angle of its own.
#pragma once

#include "isa.h"

namespace llgtrt::repack {
namespace {

// `count` elements. `turns` are what becomes of as many that are the pair (1, 0) each: a cosine and a sine. The elements of a pair are
// neighbours, or, in `halves`, at the same place of each half. `to` is `from`, or does not overlap it.
template <class Isa> void rotate(const float * from, const float * turns, int64_t count, bool halves, float * to) {
    int64_t i = 0;
    if (!halves) {
        for (; i + Isa::ROWS <= count; i += Isa::ROWS) {
            Isa::store(to + i, Isa::complex_product(Isa::load_floats(from + i), Isa::load_floats(turns + i)));
        }
        for (; i < count; i += 2) {
            const float x = from[i], y = from[i + 1];
            to[i]         = x * turns[i] - y * turns[i + 1];
            to[i + 1]     = y * turns[i] + x * turns[i + 1];
        }
        return;
    }
    const int64_t half = count / 2;
    for (; i + Isa::ROWS <= half; i += Isa::ROWS) {
        const auto x = Isa::load_floats(from + i), y = Isa::load_floats(from + half + i);
        const auto cosine = Isa::load_floats(turns + i), sine = Isa::load_floats(turns + half + i);
        Isa::store(to + i, Isa::minus_product(y, sine, Isa::mul(x, cosine)));
        Isa::store(to + half + i, Isa::fma(x, sine, Isa::mul(y, cosine)));
    }
    for (; i < half; i++) {
        const float x = from[i], y = from[half + i];
        to[i]         = x * turns[i] - y * turns[half + i];
        to[half + i]  = y * turns[i] + x * turns[half + i];
    }
}

}  // namespace
}  // namespace llgtrt::repack
