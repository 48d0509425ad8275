// How attention multiplies: numbers of the cache by those of queries and by weights, which are its factors. In floats, or in
// bfloat16 where there is an instruction for pairs of these.
#pragma once

#include "isa.h"

namespace llgtrt::repack {
namespace {

#if defined(__AVX512BF16__)

template <class Isa> struct Factors {
    using Floats = typename Isa::Floats;

    static constexpr int TOGETHER = 2;  // numbers whose products add() adds up in each of ROWS
    static constexpr int BYTES    = 2;  // of a factor

    // `sum` plus the products of ROWS pairs with the pair at `factors`.
    static Floats add(Floats sum, Floats pairs, const void * factors) {
        return _mm512_dpbf16_ps(sum, (__m512bh)pairs, (__m512bh)Isa::set1(four_bytes(factors)));
    }
    // Writes ROWS numbers as factors, and answers what they are then.
    static Floats store(void * to, Floats a) {
        const auto rounded = (__m256i)_mm512_cvtneps_pbh(a);
        _mm256_storeu_si256(static_cast<__m256i *>(to), rounded);
        return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(rounded), 16));
    }
    // A query's factors, with zeros behind them to whole vectors of pairs: they are in `room`.
    static const uint8_t * of(const float * query, int64_t depth, uint8_t * room) {
        constexpr int64_t WHOLE = TOGETHER * Isa::ROWS;
        for (int64_t d = 0; d < (depth + WHOLE - 1) / WHOLE * WHOLE; d += Isa::ROWS) {
            store(room + d * BYTES, d < depth ? Isa::load_floats(query + d) : Isa::zero());
        }
        return room;
    }
    // The pairs of those numbers that follow each other.
    static Floats neighbours(Floats first, Floats last) { return (Floats)_mm512_cvtne2ps_pbh(last, first); }
    // One of each vector.
    static Floats pairs(Floats lower, Floats upper) {
        const auto places = _mm512_setr_epi32(
            0x100000, 0x110001, 0x120002, 0x130003, 0x140004, 0x150005, 0x160006, 0x170007, 0x180008, 0x190009,
            0x1a000a, 0x1b000b, 0x1c000c, 0x1d000d, 0x1e000e, 0x1f000f);
        return (Floats)_mm512_permutexvar_epi16(places, (__m512i)_mm512_cvtne2ps_pbh(upper, lower));
    }
};

#else

template <class Isa> struct Factors {
    using Floats = typename Isa::Floats;

    static constexpr int TOGETHER = 1;
    static constexpr int BYTES    = 4;

    static Floats add(Floats sum, Floats numbers, const void * factor) {
        return Isa::fma(Isa::set1(a_float(factor)), numbers, sum);
    }
    static Floats store(void * to, Floats a) {
        Isa::store(to, a);
        return a;
    }
    static const uint8_t * of(const float * query, int64_t, uint8_t *) {
        return reinterpret_cast<const uint8_t *>(query);
    }
};

#endif

}  // namespace
}  // namespace llgtrt::repack
