// A convolution over the last tokens of each channel, and the rows of tokens that become channels before it.
#pragma once

#include <cmath>

#include "isa.h"
#include "kernels.h"

namespace llgtrt::repack {
namespace {

// Each channel's elements of all tokens, one after the other: element c of token t, `stride` elements behind that of the token before, goes to
// `to[c * row + t]`. `channels` is divisible by ROWS.
template <class Isa>
void gather_channels(const float * from, int64_t stride, int64_t tokens, int64_t channels, float * to, int64_t row) {
    int64_t t = 0;
    for (; t + Isa::ROWS <= tokens; t += Isa::ROWS) {
        for (int64_t c = 0; c < channels; c += Isa::ROWS) {
            typename Isa::Floats vectors[Isa::ROWS];
#pragma GCC unroll 16
            for (int r = 0; r < Isa::ROWS; r++) {
                vectors[r] = Isa::load_floats(from + (t + r) * stride + c);
            }
            Isa::transpose(vectors);
#pragma GCC unroll 16
            for (int r = 0; r < Isa::ROWS; r++) {
                Isa::store(to + (c + r) * row + t, vectors[r]);
            }
        }
    }
    for (; t < tokens; t++) {
        for (int64_t c = 0; c < channels; c++) {
            to[c * row + t] = from[t * stride + c];
        }
    }
}

// Token t of channel c becomes the sum of `taps` elements of that channel from t on, each times a weight: it goes to `out[t * stride + c]`.
// The order of additions is the same for any number of tokens.
template <class Isa> void convolve(const Channels & channels, int64_t tokens, float * out, int64_t stride) {
    int64_t t = 0;
    for (; t + Isa::ROWS <= tokens; t += Isa::ROWS) {
        for (int64_t c = 0; c < channels.count; c += Isa::ROWS) {
            typename Isa::Floats vectors[Isa::ROWS];
#pragma GCC unroll 16
            for (int r = 0; r < Isa::ROWS; r++) {
                const float * const from = channels.from + (c + r) * channels.row + t;
                const float * const by   = channels.weights + (c + r) * channels.taps;
                vectors[r]               = Isa::zero();
                for (int64_t i = 0; i < channels.taps; i++) {
                    vectors[r] = Isa::fma(Isa::load_floats(from + i), Isa::set1(by[i]), vectors[r]);
                }
            }
            Isa::transpose(vectors);
#pragma GCC unroll 16
            for (int r = 0; r < Isa::ROWS; r++) {
                Isa::store(out + (t + r) * stride + c, vectors[r]);
            }
        }
    }
    for (; t < tokens; t++) {
        for (int64_t c = 0; c < channels.count; c++) {
            float sum = 0;
            for (int64_t i = 0; i < channels.taps; i++) {
                sum = std::fma(channels.from[c * channels.row + t + i], channels.weights[c * channels.taps + i], sum);
            }
            out[t * stride + c] = sum;
        }
    }
}

}  // namespace
}  // namespace llgtrt::repack
