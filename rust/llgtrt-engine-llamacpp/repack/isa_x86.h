// AVX-512 with VNNI, else AVX2, with VNNI where that is there.
#pragma once

#include <immintrin.h>

#include <climits>

namespace llgtrt::repack {
namespace {

#if defined(__AVX512VNNI__) && defined(__AVX512BW__)

#    if defined(__AMX_INT8__)
constexpr bool HAS_AMX = true;
#    else
constexpr bool HAS_AMX = false;
#    endif

struct Isa {
    using Ints   = __m512i;
    using Floats = __m512;

    static constexpr const char * NAME    = "AVX-512 VNNI";
    static constexpr int          ROWS    = 16;
    static constexpr int          COLUMNS = 16;  // of one tile; what the registers hold
    static constexpr int          QUERIES = 8;   // that attend at a time to cells as they lie in the cache
    static constexpr int          SUMS    = 24;  // registers that an attention adds up in,
    static constexpr int          VECTORS = 4;   // and so many of them of a query, of cells that are unpacked
    // Whether dots() of 8 bits takes bytes for what they are above 128.
    static constexpr bool         SIGNED_BYTES = false;
    // Whether the products of a superblock's parts are multiplied with its integer scales exactly, and an offset is taken off all of
    // them at once.
    static constexpr bool         INTEGER_SCALES = HAS_AMX;
    static constexpr bool         OFFSET_AT_ONCE = false;
    // Bits that weights may have to be multiplied as bytes.
    static constexpr int          MOST_BITS    = 8;
    static constexpr int          PAIRED_FROM  = INT_MAX;
    // Tiles of so many columns and more have longer runs of each column's elements in superblocks (LONG in tile.h).
    static constexpr int          LONG_FROM    = HAS_AMX ? 9 : INT_MAX;
    // So many of N columns does dots() multiply at a time: enough of them, whose sums leave room for results.
    template <int N> static constexpr int TOGETHER = N <= 10 ? N : (N + 1) / 2;

    static Ints   load(const void * from) { return _mm512_loadu_si512(from); }
    static Ints   set1(int32_t value) { return _mm512_set1_epi32(value); }
    static Ints   bits(Ints a, int32_t mask) { return _mm512_and_si512(a, set1(mask)); }
    static Ints   either(Ints a, Ints b) { return _mm512_or_si512(a, b); }
    static Ints   right(Ints a, int by) { return _mm512_srli_epi32(a, by); }
    static Ints   left(Ints a, int by) { return _mm512_slli_epi32(a, by); }
    static Ints   right_signed(Ints a, int by) { return _mm512_srai_epi32(a, by); }
    static bool   are_zero(Ints a) { return _mm512_test_epi32_mask(a, a) == 0; }
    static Floats zero() { return _mm512_setzero_ps(); }
    static Floats set1(float value) { return _mm512_set1_ps(value); }
    static Floats load_floats(const void * from) { return _mm512_loadu_ps(from); }
    // Number i of the N at `from`, in all places.
    template <int N> static Floats one_of(const uint8_t * from, int i) { return set1(a_float(from + 4 * i)); }
    static Floats to_float(Ints value) { return _mm512_cvtepi32_ps(value); }
    // A number as halves have it.
    static float through_half(float a) { return _cvtsh_ss(_cvtss_sh(a, _MM_FROUND_TO_NEAREST_INT)); }
    static Floats mul(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
    static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
    static Floats minus_product(Floats a, Floats b, Floats c) { return _mm512_fnmadd_ps(a, b, c); }
    static Floats divide(Floats a, Floats b) { return _mm512_div_ps(a, b); }
    // The number below zero of that size, and the sign of one with the size of another.
    static Floats minus_size(Floats a) { return (Floats)either((Ints)a, set1(INT32_MIN)); }
    static Floats with_sign_of(Floats sign, Floats size) {
        return (Floats)either(bits((Ints)sign, INT32_MIN), bits((Ints)size, INT32_MAX));
    }
    // Pairs of neighbours are complex numbers.
    static Floats complex_product(Floats a, Floats b) {
        const auto turned = mul(_mm512_permute_ps(a, 0xb1), _mm512_movehdup_ps(b));
        return _mm512_fmaddsub_ps(a, _mm512_moveldup_ps(b), turned);
    }
    static Floats halves(const void * from) {
        return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i *>(from)));
    }
    // Half of what ROWS bytes are the exponents of, as floats have them; 0 for the two least ones, which would be no normal floats.
    static Floats powers(const void * from) {
        const auto exponents = _mm512_cvtepu8_epi32(_mm_loadu_si128(static_cast<const __m128i *>(from)));
        return _mm512_castsi512_ps(left(_mm512_sub_epi32(_mm512_max_epi32(exponents, set1(1)), set1(1)), 23));
    }
    // One half in all places, and ROWS signed bytes.
    static Floats half(const void * from) {
        return _mm512_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(two_bytes(from))));
    }
    static Floats bytes(const void * from) {
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(static_cast<const __m128i *>(from))));
    }
    // The upper nibble of each byte.
    static Ints upper_nibbles(Ints a) { return bits(right(a, 4), 0x0f0f0f0f); }
    // ROWS unsigned integers of 16 bits.
    static Ints shorts(const void * from) {
        return _mm512_cvtepu16_epi32(_mm256_loadu_si256(static_cast<const __m256i *>(from)));
    }
    // For each byte below 16 that of the 16 bytes of `table`.
    static Ints look_up(const void * table, Ints places) {
        const auto bytes = _mm_loadu_si128(static_cast<const __m128i *>(table));
        return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), places);
    }
    static void store(void * to, Floats value) { _mm512_storeu_ps(to, value); }

    // Four bytes of something else.
    using Word __attribute__((may_alias)) = int32_t;

    // Adds to `sums` of N columns the products of G vectors of unsigned bytes of so many BITS with the 4 * G signed bytes
    // at `y`, whose columns are `stride` bytes apart. All columns take their turns, and of few each adds up several sums: what
    // is added to a sum waits for what was added before, and a core does not look ahead to where the next column begins.
    template <int BITS, int G, int N>
    __attribute__((always_inline)) static void dots(Ints * sums, const Ints * u, const uint8_t * y, int64_t stride) {
        constexpr int SUMS = N == 1 ? G / 2 : N <= 4 ? 2 : 1;  // of a column
        Ints          parts[N][SUMS];
#pragma GCC unroll 16
        for (int c = 0; c < N; c++) {
            parts[c][0] = sums[c];
#pragma GCC unroll 4
            for (int i = 1; i < SUMS; i++) {
                parts[c][i] = set1(0);
            }
        }
#pragma GCC unroll 8
        for (int g = 0; g < G; g++) {
#pragma GCC unroll 16
            for (int c = 0; c < N; c++) {
                // Written out, because GCC 12 takes an instruction for the four bytes in all places, and another for the
                // products; volatile, so that it keeps their order.
                asm volatile("vpdpbusd %2%{1to16%}, %1, %0"
                             : "+v"(parts[c][g % SUMS])
                             : "v"(u[g]), "m"(*reinterpret_cast<const Word *>(y + stride * c + 4 * g)));
            }
        }
#pragma GCC unroll 16
        for (int c = 0; c < N; c++) {
            if constexpr (SUMS == 4) {
                parts[c][0] = plus(parts[c][0], parts[c][2]);
                parts[c][1] = plus(parts[c][1], parts[c][3]);
            }
            sums[c] = SUMS == 1 ? parts[c][0] : plus(parts[c][0], parts[c][SUMS > 1]);
        }
    }

    // `sum` plus the products of pairs of 16-bit integers.
    static Ints dot_pairs(Ints sum, Ints pairs, int32_t y) { return _mm512_dpwssd_epi32(sum, pairs, set1(y)); }

    // Adds 16 to the bytes whose bit is set in the ROWS / 2 bytes of group `g`, of those of eight groups at `high`.
    static Ints add_fifth_bit(Ints q, const uint8_t * high, int g) {
        uint64_t mask;
        std::memcpy(&mask, high + ROWS / 2 * g, sizeof mask);
        return _mm512_mask_add_epi8(q, mask, q, _mm512_set1_epi8(16));
    }

    static Floats larger(Floats a, Floats b) { return _mm512_max_ps(a, b); }
    static Floats larger_absolute(Floats a, Floats b) { return _mm512_max_ps(_mm512_abs_ps(b), a); }
    static float  largest(Floats a) { return _mm512_reduce_max_ps(a); }

    // To the nearest, of two that are as near the even one.
    static Ints round(Floats a) { return _mm512_cvtps_epi32(a); }
    // What fits into bytes.
    static void store_bytes(void * to, Ints a) { _mm_storeu_si128(static_cast<__m128i *>(to), _mm512_cvtepi32_epi8(a)); }

    static Ints    plus(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
    static Ints    plus_product(Ints sum, Ints a, Ints b) { return plus(sum, _mm512_mullo_epi32(a, b)); }
    static int32_t total(Ints a) { return _mm512_reduce_add_epi32(a); }

    static Floats plus(Floats a, Floats b) { return _mm512_add_ps(a, b); }
    static Floats minus(Floats a, Floats b) { return _mm512_sub_ps(a, b); }
    static float  total(Floats a) { return _mm512_reduce_add_ps(a); }
    // A bit for each number above `limit`.
    static uint32_t above(Floats a, float limit) { return _mm512_cmp_ps_mask(a, set1(limit), _CMP_GT_OQ); }
    // `yes` where a number is above `limit`, else `no`.
    static Floats where_above(Floats a, float limit, Floats yes, Floats no) {
        return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a, set1(limit), _CMP_GT_OQ), no, yes);
    }

    // Rows become columns.
    static void transpose(Floats * rows) {
        Floats pairs[16];
#pragma GCC unroll 8
        for (int i = 0; i < 16; i += 2) {
            pairs[i]     = _mm512_unpacklo_ps(rows[i], rows[i + 1]);
            pairs[i + 1] = _mm512_unpackhi_ps(rows[i], rows[i + 1]);
        }
        // The quarter q of fours[4 * a + c] has column 4 * q + c of the rows from 4 * a on.
        Floats fours[16];
#pragma GCC unroll 4
        for (int i = 0; i < 16; i += 4) {
            fours[i]     = lower_pairs(pairs[i], pairs[i + 2]);
            fours[i + 1] = upper_pairs(pairs[i], pairs[i + 2]);
            fours[i + 2] = lower_pairs(pairs[i + 1], pairs[i + 3]);
            fours[i + 3] = upper_pairs(pairs[i + 1], pairs[i + 3]);
        }
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) {
            const Floats even_first = _mm512_shuffle_f32x4(fours[c], fours[4 + c], 0x88);
            const Floats even_last  = _mm512_shuffle_f32x4(fours[8 + c], fours[12 + c], 0x88);
            const Floats odd_first  = _mm512_shuffle_f32x4(fours[c], fours[4 + c], 0xdd);
            const Floats odd_last   = _mm512_shuffle_f32x4(fours[8 + c], fours[12 + c], 0xdd);

            rows[c]      = _mm512_shuffle_f32x4(even_first, even_last, 0x88);
            rows[4 + c]  = _mm512_shuffle_f32x4(odd_first, odd_last, 0x88);
            rows[8 + c]  = _mm512_shuffle_f32x4(even_first, even_last, 0xdd);
            rows[12 + c] = _mm512_shuffle_f32x4(odd_first, odd_last, 0xdd);
        }
    }

    static Floats lower_pairs(Floats a, Floats b) {
        return _mm512_castpd_ps(_mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
    }
    static Floats upper_pairs(Floats a, Floats b) {
        return _mm512_castpd_ps(_mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
    }
};

#else

struct Isa {
    using Ints   = __m256i;
    using Floats = __m256;

    static constexpr int ROWS    = 8;
    static constexpr int COLUMNS = 4;
    static constexpr int QUERIES = 4;
    static constexpr int SUMS    = 12;
    static constexpr int VECTORS = 2;

    static constexpr int PAIRED_FROM = INT_MAX;
    static constexpr int LONG_FROM   = INT_MAX;

    static Ints   load(const void * from) { return _mm256_loadu_si256(static_cast<const __m256i *>(from)); }
    static Ints   set1(int32_t value) { return _mm256_set1_epi32(value); }
    static Ints   bits(Ints a, int32_t mask) { return _mm256_and_si256(a, set1(mask)); }
    static Ints   either(Ints a, Ints b) { return _mm256_or_si256(a, b); }
    static Ints   right(Ints a, int by) { return _mm256_srli_epi32(a, by); }
    static Ints   left(Ints a, int by) { return _mm256_slli_epi32(a, by); }
    static Ints   right_signed(Ints a, int by) { return _mm256_srai_epi32(a, by); }
    static bool   are_zero(Ints a) { return _mm256_testz_si256(a, a) != 0; }
    static Floats zero() { return _mm256_setzero_ps(); }
    static Floats set1(float value) { return _mm256_set1_ps(value); }
    static Floats load_floats(const void * from) { return _mm256_loadu_ps(static_cast<const float *>(from)); }
    template <int N> static Floats one_of(const uint8_t * from, int i) { return set1(a_float(from + 4 * i)); }
    static Floats to_float(Ints value) { return _mm256_cvtepi32_ps(value); }
    static float through_half(float a) { return _cvtsh_ss(_cvtss_sh(a, _MM_FROUND_TO_NEAREST_INT)); }
    static Floats mul(Floats a, Floats b) { return _mm256_mul_ps(a, b); }
    static Floats fma(Floats a, Floats b, Floats c) { return _mm256_fmadd_ps(a, b, c); }
    static Floats minus_product(Floats a, Floats b, Floats c) { return _mm256_fnmadd_ps(a, b, c); }
    static Floats divide(Floats a, Floats b) { return _mm256_div_ps(a, b); }
    static Floats minus_size(Floats a) { return (Floats)either((Ints)a, set1(INT32_MIN)); }
    static Floats with_sign_of(Floats sign, Floats size) {
        return (Floats)either(bits((Ints)sign, INT32_MIN), bits((Ints)size, INT32_MAX));
    }
    static Floats complex_product(Floats a, Floats b) {
        const auto turned = mul(_mm256_permute_ps(a, 0xb1), _mm256_movehdup_ps(b));
        return _mm256_fmaddsub_ps(a, _mm256_moveldup_ps(b), turned);
    }
    static Floats halves(const void * from) {
        return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i *>(from)));
    }
    static Floats powers(const void * from) {
        const auto exponents = _mm256_cvtepu8_epi32(_mm_loadl_epi64(static_cast<const __m128i *>(from)));
        return _mm256_castsi256_ps(left(_mm256_sub_epi32(_mm256_max_epi32(exponents, set1(1)), set1(1)), 23));
    }
    static Floats half(const void * from) {
        return _mm256_broadcastss_ps(_mm_cvtph_ps(_mm_cvtsi32_si128(two_bytes(from))));
    }
    static Floats bytes(const void * from) {
        return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(static_cast<const __m128i *>(from))));
    }
    static Ints upper_nibbles(Ints a) { return bits(right(a, 4), 0x0f0f0f0f); }
    static Ints shorts(const void * from) {
        return _mm256_cvtepu16_epi32(_mm_loadu_si128(static_cast<const __m128i *>(from)));
    }
    static Ints look_up(const void * table, Ints places) {
        const auto bytes = _mm_loadu_si128(static_cast<const __m128i *>(table));
        return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(bytes), places);
    }
    static void store(void * to, Floats value) { _mm256_storeu_ps(static_cast<float *>(to), value); }

#if defined(__AVXVNNI__)
    static constexpr const char * NAME           = "AVX-VNNI";
    static constexpr bool         SIGNED_BYTES   = false;
    static constexpr bool         INTEGER_SCALES = false;
    static constexpr bool         OFFSET_AT_ONCE = false;
    static constexpr int          MOST_BITS      = 8;
    template <int N> static constexpr int TOGETHER = 1;

    template <int BITS, int G, int N> static void dots(Ints * sum, const Ints * u, const uint8_t * y, int64_t) {
        static_assert(N == 1);
#pragma GCC unroll 8
        for (int g = 0; g < G; g++) {
            *sum = _mm256_dpbusd_avx_epi32(*sum, u[g], set1(four_bytes(y + 4 * g)));
        }
    }

    static Ints dot_pairs(Ints sum, Ints pairs, int32_t y) { return _mm256_dpwssd_avx_epi32(sum, pairs, set1(y)); }
#else
    // Its products are in avx2.h.
    static constexpr const char * NAME           = "AVX2";
    static constexpr bool         INTEGER_SCALES = true;
    static constexpr bool         OFFSET_AT_ONCE = true;
    static constexpr int          MOST_BITS      = 6;

    // Of each four numbers 0, 2, 1 and 3, as words.
    static void store_words(void * to, Ints a) {
        const __m256i turned = _mm256_shuffle_epi32(a, 0xd8);
        const __m128i words  = _mm_packs_epi32(_mm256_castsi256_si128(turned), _mm256_extracti128_si256(turned, 1));
        _mm_storeu_si128(static_cast<__m128i *>(to), words);
    }

    static Ints dot_pairs(Ints sum, Ints pairs, int32_t y) {
        return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, set1(y)));
    }
#endif

    static Ints add_fifth_bit(Ints q, const uint8_t * high, int g) {
        // Byte i of the 32 gets the byte of the mask that holds bit i, then looks at bit i % 8 of it.
        const Ints spread = _mm256_shuffle_epi8(
            _mm256_set1_epi32(four_bytes(high + ROWS / 2 * g)),
            _mm256_setr_epi64x(0, 0x0101010101010101, 0x0202020202020202, 0x0303030303030303));
        const Ints bit = _mm256_set1_epi64x(static_cast<int64_t>(0x8040201008040201));
        const Ints set = _mm256_cmpeq_epi8(_mm256_and_si256(spread, bit), bit);
        return _mm256_add_epi8(q, _mm256_and_si256(set, _mm256_set1_epi8(16)));
    }

    static Floats larger(Floats a, Floats b) { return _mm256_max_ps(a, b); }
    static Floats larger_absolute(Floats a, Floats b) {
        return _mm256_max_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0F), b), a);
    }
    static float largest(Floats a) {
        __m128 half = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        half        = _mm_max_ps(half, _mm_movehl_ps(half, half));
        return _mm_cvtss_f32(_mm_max_ss(half, _mm_movehdup_ps(half)));
    }
    static Ints round(Floats a) { return _mm256_cvtps_epi32(a); }
    static void store_bytes(void * to, Ints a) {
        const __m128i words = _mm_packs_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
        _mm_storel_epi64(static_cast<__m128i *>(to), _mm_packs_epi16(words, words));
    }

    static Ints    plus(Ints a, Ints b) { return _mm256_add_epi32(a, b); }
    static int32_t total(Ints a) {
        __m128i half = _mm_add_epi32(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
        half         = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
        return _mm_cvtsi128_si32(_mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1)));
    }

    static Floats plus(Floats a, Floats b) { return _mm256_add_ps(a, b); }
    static Floats minus(Floats a, Floats b) { return _mm256_sub_ps(a, b); }
    static float  total(Floats a) {
        __m128 half = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
        half        = _mm_add_ps(half, _mm_movehl_ps(half, half));
        return _mm_cvtss_f32(_mm_add_ss(half, _mm_movehdup_ps(half)));
    }
    static uint32_t above(Floats a, float limit) {
        return _mm256_movemask_ps(_mm256_cmp_ps(a, set1(limit), _CMP_GT_OQ));
    }
    static Floats where_above(Floats a, float limit, Floats yes, Floats no) {
        return _mm256_blendv_ps(no, yes, _mm256_cmp_ps(a, set1(limit), _CMP_GT_OQ));
    }

    static void transpose(Floats * rows) {
        Floats pairs[8];
#pragma GCC unroll 4
        for (int i = 0; i < 8; i += 2) {
            pairs[i]     = _mm256_unpacklo_ps(rows[i], rows[i + 1]);
            pairs[i + 1] = _mm256_unpackhi_ps(rows[i], rows[i + 1]);
        }
        // The half h of fours[4 * a + c] has column 4 * h + c of the rows from 4 * a on.
        Floats fours[8];
#pragma GCC unroll 2
        for (int i = 0; i < 8; i += 4) {
            fours[i]     = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);
            fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);
            fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);
            fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);
        }
#pragma GCC unroll 4
        for (int c = 0; c < 4; c++) {
            rows[c]     = _mm256_permute2f128_ps(fours[c], fours[4 + c], 0x20);
            rows[4 + c] = _mm256_permute2f128_ps(fours[c], fours[4 + c], 0x31);
        }
    }
};

#endif

}  // namespace
}  // namespace llgtrt::repack
