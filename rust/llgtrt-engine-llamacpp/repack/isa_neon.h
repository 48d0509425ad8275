// NEON with dot products of bytes, and products of matrices of bytes where these are there.
#pragma once

#include <arm_neon.h>

#include <climits>

namespace llgtrt::repack {
namespace {

inline int64_t eight_bytes(const void * from) {
    int64_t value;
    std::memcpy(&value, from, sizeof value);
    return value;
}

struct Isa {
    using Ints   = int32x4_t;
    using Floats = float32x4_t;

#if defined(__ARM_FEATURE_MATMUL_INT8)
    static constexpr const char * NAME = "NEON i8mm";
    // Columns from which on they are multiplied in pairs: weights have to be rearranged for that.
    static constexpr int PAIRED_FROM = 4;
#else
    static constexpr const char * NAME        = "NEON dot products";
    static constexpr int          PAIRED_FROM = INT_MAX;
#endif
    // Tiles of so many columns and more have longer runs of each column's elements in superblocks (LONG in tile.h).
    static constexpr int LONG_FROM = INT_MAX;
    // So many of N columns does dots(), or dots_of_pair(), multiply at a time.
    template <int N> static constexpr int TOGETHER = N < PAIRED_FROM ? 1 : 2;

    static constexpr int ROWS    = 4;
    static constexpr int COLUMNS = 16;  // of one tile; what the registers hold
    static constexpr int QUERIES = 8;   // that attend at a time to cells as they lie in the cache
    static constexpr int SUMS    = 16;  // registers that an attention adds up in,
    static constexpr int VECTORS = 2;   // and so many of them of a query, of cells that are unpacked
    // Whether dots() of 8 bits takes bytes for what they are above 128.
    static constexpr bool SIGNED_BYTES = true;
    // Whether the products of a superblock's parts are multiplied with its integer scales exactly, and an offset is taken off all of
    // them at once.
    static constexpr bool INTEGER_SCALES = false;
    static constexpr bool OFFSET_AT_ONCE = false;
    // Bits that weights may have to be multiplied as bytes.
    static constexpr int MOST_BITS = 8;

    static Ints   load(const void * from) { return vreinterpretq_s32_u8(vld1q_u8(static_cast<const uint8_t *>(from))); }
    static Ints   set1(int32_t value) { return vdupq_n_s32(value); }
    // Two numbers by turns.
    static Ints   set2(const void * two) { return vreinterpretq_s32_s64(vdupq_n_s64(eight_bytes(two))); }
    static Ints   bits(Ints a, int32_t mask) { return vandq_s32(a, set1(mask)); }
    static Ints   either(Ints a, Ints b) { return vorrq_s32(a, b); }
    static Ints   right(Ints a, int by) { return vreinterpretq_s32_u32(vreinterpretq_u32_s32(a) >> by); }
    static Ints   left(Ints a, int by) { return a << by; }
    static Ints   right_signed(Ints a, int by) { return a >> by; }
    static bool   are_zero(Ints a) { return vmaxvq_u32(vreinterpretq_u32_s32(a)) == 0; }
    static Floats zero() { return vdupq_n_f32(0); }
    static Floats set1(float value) { return vdupq_n_f32(value); }
    static Floats load_floats(const void * from) {
        return vreinterpretq_f32_u8(vld1q_u8(static_cast<const uint8_t *>(from)));
    }
    // Number i of the N at `from`, in all places. It is an element of a vector, which a product takes from there: to put a
    // number into all places by itself takes an instruction.
    template <int N> static Floats one_of(const uint8_t * from, int i) {
        if constexpr (N < ROWS) {
            return set1(a_float(from + 4 * i));
        } else {
            const int first = i / ROWS * ROWS < N - ROWS ? i / ROWS * ROWS : N - ROWS;
            return set1(load_floats(from + 4 * first)[i - first]);
        }
    }
    static Floats to_float(Ints value) { return vcvtq_f32_s32(value); }
    // A number as halves have it.
    static float through_half(float a) { return static_cast<float>(static_cast<__fp16>(a)); }
    static Floats mul(Floats a, Floats b) { return vmulq_f32(a, b); }
    static Floats fma(Floats a, Floats b, Floats c) { return vfmaq_f32(c, a, b); }
    static Floats minus_product(Floats a, Floats b, Floats c) { return vfmsq_f32(c, a, b); }
    static Floats divide(Floats a, Floats b) { return vdivq_f32(a, b); }
    // The number below zero of that size, and the sign of one with the size of another.
    static Floats minus_size(Floats a) { return vnegq_f32(vabsq_f32(a)); }
    static Floats with_sign_of(Floats sign, Floats size) {
        return vbslq_f32(vdupq_n_u32(uint32_t{1} << 31), sign, size);
    }
    // Pairs of neighbours are complex numbers.
    static Floats complex_product(Floats a, Floats b) {
        const Floats product = mul(vrev64q_f32(a), vtrn2q_f32(b, b));
        return fma(a, vtrn1q_f32(b, b), vtrn1q_f32(vnegq_f32(product), vrev64q_f32(product)));
    }
    static Floats halves(const void * from) {
        return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(static_cast<const uint8_t *>(from))));
    }
    // Half of what ROWS bytes are the exponents of, as floats have them; 0 for the two least ones, which would be no normal floats.
    static Floats powers(const void * from) {
        const uint16x8_t words     = vmovl_u8(vreinterpret_u8_s32(vdup_n_s32(four_bytes(from))));
        const int32x4_t  exponents = vreinterpretq_s32_u32(vmovl_u16(vget_low_u16(words)));
        return vreinterpretq_f32_s32(left(vsubq_s32(vmaxq_s32(exponents, set1(1)), set1(1)), 23));
    }
    // One half in all places, and ROWS signed bytes.
    static Floats half(const void * from) {
        return vcvt_f32_f16(vreinterpret_f16_u16(vdup_n_u16(static_cast<uint16_t>(two_bytes(from)))));
    }
    static Floats bytes(const void * from) {
        const int16x8_t words = vmovl_s8(vreinterpret_s8_s32(vdup_n_s32(four_bytes(from))));
        return vcvtq_f32_s32(vmovl_s16(vget_low_s16(words)));
    }
    // The upper nibble of each byte.
    static Ints upper_nibbles(Ints a) { return vreinterpretq_s32_u8(vshrq_n_u8(vreinterpretq_u8_s32(a), 4)); }
    // ROWS unsigned integers of 16 bits.
    static Ints shorts(const void * from) {
        const uint16x4_t words = vreinterpret_u16_u8(vld1_u8(static_cast<const uint8_t *>(from)));
        return vreinterpretq_s32_u32(vmovl_u16(words));
    }
    // For each byte below 16 that of the 16 bytes of `table`.
    static Ints look_up(const void * table, Ints places) {
        const uint8x16_t bytes = vld1q_u8(static_cast<const uint8_t *>(table));
        return vreinterpretq_s32_u8(vqtbl1q_u8(bytes, vreinterpretq_u8_s32(places)));
    }
    static void store(void * to, Floats value) { vst1q_u8(static_cast<uint8_t *>(to), vreinterpretq_u8_f32(value)); }

    // Unsigned bytes of so many BITS as signed ones: fewer than eight bits have none for a sign.
    template <int BITS> static int8x16_t number(Ints u) {
        return vreinterpretq_s8_s32(BITS == 8 ? veorq_s32(u, set1(static_cast<int32_t>(0x80808080))) : u);
    }

    // Adds to `sums` the products of G vectors of unsigned bytes of so many BITS with the 4 * G signed bytes at `y`.
    template <int BITS, int G, int N> static void dots(Ints * sums, const Ints * u, const uint8_t * y, int64_t) {
        static_assert(G % 4 == 0 && N == 1);
        Ints sum = *sums;
#pragma GCC unroll 2
        for (int g = 0; g < G; g += 4) {
            const int8x16_t four = vreinterpretq_s8_u8(vld1q_u8(y + 4 * g));
            sum = vdotq_laneq_s32(sum, number<BITS>(u[g]), four, 0);
            sum = vdotq_laneq_s32(sum, number<BITS>(u[g + 1]), four, 1);
            sum = vdotq_laneq_s32(sum, number<BITS>(u[g + 2]), four, 2);
            sum = vdotq_laneq_s32(sum, number<BITS>(u[g + 3]), four, 3);
        }
        *sums = sum;
    }

#if defined(__ARM_FEATURE_MATMUL_INT8)
    // Rearranges G groups of the numbers of ROWS rows for dots_of_pair().
    template <int G> static void pair_up(Ints * u) {
#pragma GCC unroll 4
        for (int g = 0; g < G; g += 2) {
            const Ints first = u[g], last = u[g + 1];
            u[g]     = vzip1q_s32(first, last);
            u[g + 1] = vzip2q_s32(first, last);
        }
    }

    // As dots(), for two columns: `start` has a number for each by turns, and `y` eight bytes. With one column alone they are
    // its own.
    template <int BITS, int G>
    static void dots_of_pair(Ints start, const Ints * u, const uint8_t * y, bool alone, Ints * sums) {
        Ints first = start, last = start;  // sums of two rows each: by row, then by column
#pragma GCC unroll 4
        for (int g = 0; g < G; g += 2) {
            const int8x16_t bytes = alone ? vreinterpretq_s8_s32(set2(y + 4 * g))
                                          : vreinterpretq_s8_u8(vld1q_u8(y + 8 * g));
            first = vmmlaq_s32(first, number<BITS>(u[g]), bytes);
            last  = vmmlaq_s32(last, number<BITS>(u[g + 1]), bytes);
        }
        sums[0] = vuzp1q_s32(first, last);
        sums[1] = vuzp2q_s32(first, last);
    }
#endif

    // `sum` plus the products of pairs of 16-bit integers.
    static Ints dot_pairs(Ints sum, Ints pairs, int32_t y) {
        const int16x8_t a = vreinterpretq_s16_s32(pairs), b = vreinterpretq_s16_s32(set1(y));
        const Ints first = vmull_s16(vget_low_s16(a), vget_low_s16(b)), last = vmull_high_s16(a, b);
        return vaddq_s32(sum, vpaddq_s32(first, last));
    }

    // Adds 16 to the bytes whose bit is set in the ROWS / 2 bytes of group `g`, of those of eight groups at `high`.
    static Ints add_fifth_bit(Ints q, const uint8_t * high, int g) {
        // Byte i of the 16 gets the byte that holds bit i, then looks at bit i % 8 of it.
        const uint8x16_t places = vcombine_u8(vdup_n_u8(2 * g), vdup_n_u8(2 * g + 1));
        const uint8x16_t spread = vqtbl1q_u8(vld1q_u8(high), places);
        const uint8x16_t bit    = vreinterpretq_u8_u64(vdupq_n_u64(0x8040201008040201));
        const uint8x16_t set    = vandq_u8(vtstq_u8(spread, bit), vdupq_n_u8(16));
        return vorrq_s32(q, vreinterpretq_s32_u8(set));
    }

    static Floats larger(Floats a, Floats b) { return vmaxnmq_f32(a, b); }
    static Floats larger_absolute(Floats a, Floats b) { return vmaxnmq_f32(a, vabsq_f32(b)); }
    static float  largest(Floats a) { return vmaxnmvq_f32(a); }

    // To the nearest, of two that are as near the even one.
    static Ints round(Floats a) { return vcvtnq_s32_f32(a); }
    // What fits into bytes.
    static void store_bytes(void * to, Ints a) {
        const int16x4_t words = vqmovn_s32(a);
        const int32_t   four  = vget_lane_s32(vreinterpret_s32_s8(vqmovn_s16(vcombine_s16(words, words))), 0);
        std::memcpy(to, &four, sizeof four);
    }

    static Ints    plus(Ints a, Ints b) { return vaddq_s32(a, b); }
    static int32_t total(Ints a) { return vaddvq_s32(a); }

    static Floats plus(Floats a, Floats b) { return vaddq_f32(a, b); }
    static Floats minus(Floats a, Floats b) { return vsubq_f32(a, b); }
    static float  total(Floats a) { return vaddvq_f32(a); }
    // A bit for each number above `limit`.
    static uint32_t above(Floats a, float limit) {
        constexpr uint32_t BITS[ROWS] = {1, 2, 4, 8};
        return vaddvq_u32(vandq_u32(vcgtq_f32(a, set1(limit)), vld1q_u32(BITS)));
    }
    // `yes` where a number is above `limit`, else `no`.
    static Floats where_above(Floats a, float limit, Floats yes, Floats no) {
        return vbslq_f32(vcgtq_f32(a, set1(limit)), yes, no);
    }

    // Rows become columns.
    static void transpose(Floats * rows) {
        const auto pair = [](Floats a, Floats b, bool last) {
            const float64x2_t x = vreinterpretq_f64_f32(a), y = vreinterpretq_f64_f32(b);
            return vreinterpretq_f32_f64(last ? vtrn2q_f64(x, y) : vtrn1q_f64(x, y));
        };
        const Floats even_first = vtrn1q_f32(rows[0], rows[1]), odd_first = vtrn2q_f32(rows[0], rows[1]);
        const Floats even_last = vtrn1q_f32(rows[2], rows[3]), odd_last = vtrn2q_f32(rows[2], rows[3]);
        rows[0] = pair(even_first, even_last, false);
        rows[1] = pair(odd_first, odd_last, false);
        rows[2] = pair(even_first, even_last, true);
        rows[3] = pair(odd_first, odd_last, true);
    }
};

}  // namespace
}  // namespace llgtrt::repack
