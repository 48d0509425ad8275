// How attention multiplies: numbers of the cache by those of queries and by weights, which are its factors. In floats, or in
// bfloat16 where there is an instruction for pairs of these.
#pragma once

#include "isa.h"
#include "vec.h"

namespace llgtrt::repack {
namespace {

#if defined(__AVX512F__)

// 2 to the power of numbers up to 0, from what 2 to the power of -0.5 to 0.5 is as a polynomial. Not of infinity.
template <class Isa, int N> typename Isa::Floats power_of_two(typename Isa::Floats x, const float (&coefficients)[N]) {
    const auto whole = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    const auto part  = Isa::minus(x, whole);
    auto       power = Isa::set1(coefficients[0]);
#pragma GCC unroll 8
    for (int i = 1; i < N; i++) {
        power = Isa::fma(power, part, Isa::set1(coefficients[i]));
    }
    return _mm512_scalef_ps(power, whole);
}

#endif

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
    // Writes the factors of a query times `scale` to `room`, with zeros behind them to whole vectors of pairs.
    static void of(const float * query, float scale, int64_t depth, uint8_t * room) {
        constexpr int64_t WHOLE = TOGETHER * Isa::ROWS;
        for (int64_t d = 0; d < (depth + WHOLE - 1) / WHOLE * WHOLE; d += Isa::ROWS) {
            store(room + d * BYTES, d < depth ? Isa::mul(Isa::load_floats(query + d), Isa::set1(scale)) : Isa::zero());
        }
    }
    // 2 to the power of numbers up to 0: within 0.0075 %, a fraction of what a factor is rounded by.
    static Floats exp2(Floats x) {
        static constexpr float COEFFICIENTS[] = {0x1.c3f76p-5F, 0x1.f0de1ap-3F, 0x1.62f31ap-1F, 0x1.fff692p-1F};
        return power_of_two<Isa>(x, COEFFICIENTS);
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
    static void of(const float * query, float scale, int64_t depth, uint8_t * room) {
        for (int64_t d = 0; d < depth; d += Isa::ROWS) {
            store(room + d * BYTES, Isa::mul(Isa::load_floats(query + d), Isa::set1(scale)));
        }
    }
    // 2 to the power of numbers up to 0, to the last bits of a float.
    static Floats exp2(Floats x) {
#    if defined(__AVX512F__)
        static constexpr float COEFFICIENTS[] = {0x1.5c08e6p-10F, 0x1.3d0c54p-7F, 0x1.c6b6e4p-5F,
                                                 0x1.ebf918p-3F,  0x1.62e428p-1F, 0x1.000002p+0F};
        return power_of_two<Isa>(x, COEFFICIENTS);
#    else
        constexpr float LN_2 = 0x1.62e43p-1F;
        return ggml_v_expf(Isa::mul(x, Isa::set1(LN_2)));
#    endif
    }
};

#endif

}  // namespace
}  // namespace llgtrt::repack
