// The vector instructions that the kernel is written in: AVX-512 with VNNI, else AVX2 (with VNNI where it is there).
//
// One vector holds four bytes of K from each of ROWS rows of a weight matrix, so that one dot instruction
// multiplies them with the same four bytes of an activation and adds up per row.
#pragma once

#include <immintrin.h>

#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VNNI__)
#define LLGTRT_REPACK_AVX512 1
#elif defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)
#define LLGTRT_REPACK_AVX2 1
#endif

namespace llgtrt::repack {

inline int32_t four_bytes(const void * from) {
    int32_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

inline float a_float(const void * from) {
    float value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

#if defined(LLGTRT_REPACK_AVX512)

struct Isa {
    using Ints   = __m512i;
    using Floats = __m512;

    static constexpr int  ROWS    = 16;
    static constexpr int  COLUMNS = 16;    // of one tile; what the registers hold
    static constexpr bool BYTES   = true;  // unsigned bytes up to 255 do not saturate

    static Ints   load(const void * from) { return _mm512_loadu_si512(from); }
    static Ints   low_nibbles(Ints q) { return _mm512_and_si512(q, _mm512_set1_epi8(15)); }
    static Ints   high_nibbles(Ints q) { return low_nibbles(_mm512_srli_epi16(q, 4)); }
    static Ints   set1(int32_t value) { return _mm512_set1_epi32(value); }
    static Ints   dot(Ints sum, Ints u, int32_t y) { return _mm512_dpbusd_epi32(sum, u, _mm512_set1_epi32(y)); }
    static Floats zero() { return _mm512_setzero_ps(); }
    static Floats set1(float value) { return _mm512_set1_ps(value); }
    static Floats to_float(Ints value) { return _mm512_cvtepi32_ps(value); }
    static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
    static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
    static Floats halves(const void * from) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i *>(from)));
    }
    static void store(void * to, Floats value) { _mm512_storeu_ps(to, value); }

    // Adds 16 to the bytes whose bit is set in the ROWS / 2 bytes at `bits`.
    static Ints add_fifth_bit(Ints q, const void * bits) {
        uint64_t mask;
        std::memcpy(&mask, bits, sizeof mask);
        return _mm512_mask_add_epi8(q, mask, q, _mm512_set1_epi8(16));
    }
};

#elif defined(LLGTRT_REPACK_AVX2)

struct Isa {
    using Ints   = __m256i;
    using Floats = __m256;

    static constexpr int  ROWS    = 8;
    static constexpr int  COLUMNS = 4;
#if defined(__AVXVNNI__)
    static constexpr bool BYTES = true;
    static Ints           dot(Ints sum, Ints u, int32_t y) {
        return _mm256_dpbusd_avx_epi32(sum, u, _mm256_set1_epi32(y));
    }
#else
    // Pairs are added in 16 bits with saturation: right for the 4 and 5 bit types (2 * 31 * 127) only.
    static constexpr bool BYTES = false;
    static Ints           dot(Ints sum, Ints u, int32_t y) {
        const Ints pairs = _mm256_maddubs_epi16(u, _mm256_set1_epi32(y));
        return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
    }
#endif

    static Ints   load(const void * from) { return _mm256_loadu_si256(static_cast<const __m256i *>(from)); }
    static Ints   low_nibbles(Ints q) { return _mm256_and_si256(q, _mm256_set1_epi8(15)); }
    static Ints   high_nibbles(Ints q) { return low_nibbles(_mm256_srli_epi16(q, 4)); }
    static Ints   set1(int32_t value) { return _mm256_set1_epi32(value); }
    static Floats zero() { return _mm256_setzero_ps(); }
    static Floats set1(float value) { return _mm256_set1_ps(value); }
    static Floats to_float(Ints value) { return _mm256_cvtepi32_ps(value); }
    static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
    static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
    static Floats halves(const void * from) {
        return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i *>(from)));
    }
    static void store(void * to, Floats value) { _mm256_storeu_ps(static_cast<float *>(to), value); }

    static Ints add_fifth_bit(Ints q, const void * bits) {
        // Byte i of the 32 gets the byte of the mask that holds bit i, then looks at bit i % 8 of it.
        const Ints spread = _mm256_shuffle_epi8(
            _mm256_set1_epi32(four_bytes(bits)),
            _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
        const Ints bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
        const Ints set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
        return _mm256_add_epi8(q, _mm256_and_si256(set, _mm256_set1_epi8(16)));
    }
};

#endif

}  // namespace llgtrt::repack
