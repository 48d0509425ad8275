// One head of a layer that remembers: see StateHead.
#pragma once

#include <algorithm>
#include <cmath>

#include "isa.h"
#include "kernels.h"

namespace llgtrt::repack {
namespace {

// Values at a time: two vectors, or as many as keep the processor busy.
template <class Isa> constexpr int STATE_VECTORS = Isa::ROWS > 4 ? 2 : 4;
template <class Isa> constexpr int STATE_VALUES  = STATE_VECTORS<Isa> * Isa::ROWS;

// Rows of a state become columns, or columns rows: STATE_VALUES rows of `depth` elements on one side.
template <class Isa, bool BACK> void turn_state(const float * from, int64_t depth, float * to) {
    for (int v = 0; v < STATE_VECTORS<Isa>; v++) {
        for (int64_t d = 0; d < depth; d += Isa::ROWS) {
            typename Isa::Floats vectors[Isa::ROWS];
            const int64_t        row = v * Isa::ROWS * depth + d, column = d * STATE_VALUES<Isa> + v * Isa::ROWS;
            const int64_t        read = BACK ? STATE_VALUES<Isa> : depth, write = BACK ? depth : STATE_VALUES<Isa>;
#pragma GCC unroll 16
            for (int r = 0; r < Isa::ROWS; r++) {
                vectors[r] = Isa::load_floats(from + (BACK ? column : row) + r * read);
            }
            Isa::transpose(vectors);
#pragma GCC unroll 16
            for (int r = 0; r < Isa::ROWS; r++) {
                Isa::store(to + (BACK ? row : column) + r * write, vectors[r]);
            }
        }
    }
}

// The product of two rows of `depth` elements.
template <class Isa> float dot_floats(const float * a, const float * b, int64_t depth) {
    auto sum = Isa::zero();
    for (int64_t d = 0; d < depth; d += Isa::ROWS) {
        sum = Isa::fma(Isa::load_floats(a + d), Isa::load_floats(b + d), sum);
    }
    return Isa::total(sum);
}

// STATE_VALUES columns of a state, and what goes on with them.
template <class Isa> struct StateColumns {
    static constexpr int V = STATE_VECTORS<Isa>;
    // Sums of each vector, so that few wait for each other.
    static constexpr int SUMS = 4 / V;

    using Floats = typename Isa::Floats;

    // Lets a token change the state if CHANGE, and finds what a key and a query lead to in it then if FIND and ASK: one way through the columns
    // for all of them.
    template <bool CHANGE, bool FIND, bool ASK>
    inline void pass(const float * key, float decay, const float * find, const float * ask) {
        const Floats decays = Isa::set1(decay);
        Floats       change[V], sums_found[SUMS][V], sums_asked[SUMS][V];
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            change[v] = CHANGE ? changes[v] : Isa::zero();
#pragma GCC unroll 2
            for (int s = 0; s < SUMS; s++) {
                sums_found[s][v] = sums_asked[s][v] = Isa::zero();
            }
        }
        for (int64_t d = 0; d < depth; d += SUMS) {
#pragma GCC unroll 2
            for (int s = 0; s < SUMS; s++) {
                float * const columns = state + (d + s) * V * Isa::ROWS;
                Floats        some[V];
#pragma GCC unroll 4
                for (int v = 0; v < V; v++) {
                    some[v] = Isa::load_floats(columns + v * Isa::ROWS);
                }
                if constexpr (CHANGE) {
                    const Floats k = Isa::set1(key[d + s]);
#pragma GCC unroll 4
                    for (int v = 0; v < V; v++) {
                        some[v] = Isa::fma(k, change[v], Isa::mul(decays, some[v]));
                        Isa::store(columns + v * Isa::ROWS, some[v]);
                    }
                }
                if constexpr (FIND) {
                    add<V>(some, find[d + s], sums_found[s]);
                }
                if constexpr (ASK) {
                    add<V>(some, ask[d + s], sums_asked[s]);
                }
            }
        }
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            found[v] = SUMS == 1 ? sums_found[0][v] : Isa::plus(sums_found[0][v], sums_found[SUMS - 1][v]);
            asked[v] = SUMS == 1 ? sums_asked[0][v] : Isa::plus(sums_asked[0][v], sums_asked[SUMS - 1][v]);
        }
    }

    template <int N> static inline void add(const Floats * some, float by, Floats * sums) {
        const Floats factor = Isa::set1(by);
#pragma GCC unroll 4
        for (int v = 0; v < N; v++) {
            sums[v] = Isa::fma(some[v], factor, sums[v]);
        }
    }

    // Finds how a token is to correct the state, of which `decay` is left, from what its key has found in it. What its query finds afterwards
    // takes the place of its value; `overlap` is the product of key and query.
    inline void correct(float * value, float decay, float rate, float overlap, float scale) {
        const Floats decays = Isa::set1(decay);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            const Floats missing = Isa::minus_product(decays, found[v], Isa::load_floats(value + v * Isa::ROWS));
            changes[v]           = Isa::mul(Isa::set1(rate), missing);
            const Floats result  = Isa::fma(changes[v], Isa::set1(overlap), Isa::mul(decays, asked[v]));
            Isa::store(value + v * Isa::ROWS, Isa::mul(Isa::set1(scale), result));
        }
    }

    // A token adds its value to the state, which it finds there with what was there before: that takes the value's place.
    inline void add(const float * key, const float * query, float * value, float decay, float rate, float scale) {
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            changes[v] = Isa::mul(Isa::set1(rate), Isa::load_floats(value + v * Isa::ROWS));
        }
        pass<true, false, true>(key, decay, nullptr, query);
#pragma GCC unroll 4
        for (int v = 0; v < V; v++) {
            Isa::store(value + v * Isa::ROWS, Isa::mul(Isa::set1(scale), asked[v]));
        }
    }

    float * state;
    int64_t depth;
    Floats  found[V], asked[V], changes[V];
};

// The values from `begin` to `end` of a head, each in turn some tokens: their part of the state stays in the first level cache meanwhile,
// and what belongs to the tokens in the second one, where rows that lie far apart would not. An answer's states are the same however its
// tokens are divided.
template <class Isa> void remember(const StateHead & head, int64_t begin, int64_t end) {
    constexpr int64_t AT_ONCE = 32;
    alignas(64) float state[WIDEST_STATE * STATE_VALUES<Isa>];
    alignas(64) float keys[AT_ONCE * WIDEST_STATE], queries[AT_ONCE * WIDEST_STATE], values[AT_ONCE * WIDEST_STATE];
    float             decays[AT_ONCE], rates[AT_ONCE], overlaps[AT_ONCE];
    const int64_t     depth = head.depth, width = head.width;
    for (int64_t first = 0; first < head.tokens; first += AT_ONCE) {
        const int64_t count = std::min(AT_ONCE, head.tokens - first);
        for (int64_t t = 0; t < count; t++) {
            const int64_t token = first + t;
            std::copy_n(head.keys + token * head.key_stride, depth, keys + t * depth);
            std::copy_n(head.queries + token * head.query_stride, depth, queries + t * depth);
            std::copy_n(head.values + token * head.value_stride, width, values + t * width);
            rates[t] = head.rates[token * head.number_stride];
            if (head.corrects) {
                decays[t]   = std::exp(head.decays[token * head.number_stride]);
                overlaps[t] = dot_floats<Isa>(keys + t * depth, queries + t * depth, depth);
            } else {
                rates[t]  = rates[t] > 20 ? rates[t] : std::log(1 + std::exp(rates[t]));
                decays[t] = std::exp(rates[t] * head.decay);
            }
        }
        const float * const from = first == 0 ? head.from : head.to;
        for (int64_t j = begin; j < end; j += STATE_VALUES<Isa>) {
            turn_state<Isa, false>(from + j * depth, depth, state);
            StateColumns<Isa> columns;
            columns.state = state;
            columns.depth = depth;
            if (head.corrects) {
                columns.template pass<false, true, true>(nullptr, 1, keys, queries);
            }
            for (int64_t t = 0; t < count; t++) {
                const float *key = keys + t * depth, *query = queries + t * depth;
                float * const value = values + t * width + j;
                if (!head.corrects) {
                    columns.add(key, query, value, decays[t], rates[t], head.scale);
                } else {
                    columns.correct(value, decays[t], rates[t], overlaps[t], head.scale);
                    if (t + 1 < count) {
                        columns.template pass<true, true, true>(key, decays[t], key + depth, query + depth);
                    } else {
                        columns.template pass<true, false, false>(key, decays[t], nullptr, nullptr);
                    }
                }
                const int64_t back = head.tokens - 1 - (first + t);
                if (back > 0 && back < head.kept) {
                    turn_state<Isa, true>(state, depth, head.to + back * head.kept_stride + j * depth);
                }
            }
            turn_state<Isa, true>(state, depth, head.to + j * depth);
        }
        for (int64_t t = 0; t < count; t++) {
            std::copy(values + t * width + begin, values + t * width + end, head.out + (first + t) * head.out_stride + begin);
        }
    }
}

}  // namespace
}  // namespace llgtrt::repack
