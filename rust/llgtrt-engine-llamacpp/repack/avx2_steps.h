// The steps of products by AVX2 alone, of numbers that have been unpacked to memory: see avx2.h.
//
// The instructions are written out, because the compiler (GCC 12) moves what has room in registers to memory and back. A group of rows
// has two halves, whose vectors follow each other in memory, and sums are those of each column, of each half.
#pragma once

#include "isa.h"

namespace llgtrt::repack {
namespace {

// One step multiplies the numbers of both halves at `u` with four bytes of each of C columns, which are SIZE bytes apart, and adds
// that to the registers 2 * column and 2 * column + 1, or is the first that is there.
#define LLGTRT_FIRST(MULTIPLY, ADD, SIZE, STEP, COLUMN, SUM, OTHER) \
    "vpbroadcastd " #SIZE "*" #COLUMN "+4*" #STEP "(%[q]), %%ymm10\n\t" \
    MULTIPLY " %%ymm10, %%ymm8, %%ymm" #SUM "\n\t" \
    MULTIPLY " %%ymm10, %%ymm9, %%ymm" #OTHER "\n\t"
#define LLGTRT_NEXT(MULTIPLY, ADD, SIZE, STEP, COLUMN, SUM, OTHER) \
    "vpbroadcastd " #SIZE "*" #COLUMN "+4*" #STEP "(%[q]), %%ymm10\n\t" \
    MULTIPLY " %%ymm10, %%ymm8, %%ymm11\n\t" \
    MULTIPLY " %%ymm10, %%ymm9, %%ymm10\n\t" \
    ADD " %%ymm11, %%ymm" #SUM ", %%ymm" #SUM "\n\t" \
    ADD " %%ymm10, %%ymm" #OTHER ", %%ymm" #OTHER "\n\t"
#define LLGTRT_COLUMNS_1(ONE, ...) ONE(__VA_ARGS__, 0, 0, 1)
#define LLGTRT_COLUMNS_2(ONE, ...) LLGTRT_COLUMNS_1(ONE, __VA_ARGS__) ONE(__VA_ARGS__, 1, 2, 3)
#define LLGTRT_COLUMNS_3(ONE, ...) LLGTRT_COLUMNS_2(ONE, __VA_ARGS__) ONE(__VA_ARGS__, 2, 4, 5)
#define LLGTRT_COLUMNS_4(ONE, ...) LLGTRT_COLUMNS_3(ONE, __VA_ARGS__) ONE(__VA_ARGS__, 3, 6, 7)
#define LLGTRT_LOAD(STEP) "vmovdqa 64*" #STEP "(%[u]), %%ymm8\n\tvmovdqa 64*" #STEP "+32(%[u]), %%ymm9\n\t"
// The same of bytes that become words, each half's by themselves.
#define LLGTRT_LOAD_BYTES(STEP) \
    "vpmovsxbw 16*" #STEP "(%[u]), %%ymm8\n\tvpmovsxbw 16*" #STEP "+%c[half](%[u]), %%ymm9\n\t"
#define LLGTRT_STEP(ONE, C, STEP, LOAD, MULTIPLY, ADD, SIZE) \
    LOAD(STEP) LLGTRT_COLUMNS_##C(ONE, MULTIPLY, ADD, SIZE, STEP)
#define LLGTRT_STEPS_2(C, ...) \
    LLGTRT_STEP(LLGTRT_FIRST, C, 0, __VA_ARGS__) LLGTRT_STEP(LLGTRT_NEXT, C, 1, __VA_ARGS__)
#define LLGTRT_STEPS_4(C, ...) \
    LLGTRT_STEPS_2(C, __VA_ARGS__) LLGTRT_STEP(LLGTRT_NEXT, C, 2, __VA_ARGS__) LLGTRT_STEP(LLGTRT_NEXT, C, 3, __VA_ARGS__)
#define LLGTRT_STEPS_8(C, ...) \
    LLGTRT_STEPS_4(C, __VA_ARGS__) LLGTRT_STEP(LLGTRT_NEXT, C, 4, __VA_ARGS__) LLGTRT_STEP(LLGTRT_NEXT, C, 5, __VA_ARGS__) \
    LLGTRT_STEP(LLGTRT_NEXT, C, 6, __VA_ARGS__) LLGTRT_STEP(LLGTRT_NEXT, C, 7, __VA_ARGS__)
#define LLGTRT_STEPS_16(C, ...) \
    LLGTRT_STEPS_8(C, __VA_ARGS__) LLGTRT_STEP(LLGTRT_NEXT, C, 8, __VA_ARGS__) LLGTRT_STEP(LLGTRT_NEXT, C, 9, __VA_ARGS__) \
    LLGTRT_STEP(LLGTRT_NEXT, C, 10, __VA_ARGS__) LLGTRT_STEP(LLGTRT_NEXT, C, 11, __VA_ARGS__) \
    LLGTRT_STEP(LLGTRT_NEXT, C, 12, __VA_ARGS__) LLGTRT_STEP(LLGTRT_NEXT, C, 13, __VA_ARGS__) \
    LLGTRT_STEP(LLGTRT_NEXT, C, 14, __VA_ARGS__) LLGTRT_STEP(LLGTRT_NEXT, C, 15, __VA_ARGS__)
// What becomes of a column's sums. Those of 16 bits, times the factors of their half of the rows, are added to those of 32 bits; those of
// words are stored.
#define LLGTRT_FOR_HALVES(ONE, COLUMN, SUM, OTHER) ONE(COLUMN, SUM, 0) ONE(COLUMN, OTHER, 1)
#define LLGTRT_ADD_UP(...) LLGTRT_FOR_HALVES(LLGTRT_ADD_UP_HALF, __VA_ARGS__)
#define LLGTRT_ADD_UP_HALF(COLUMN, SUM, HALF) \
    LLGTRT_TO_32_BITS(SUM, HALF) \
    "vpaddd 32*" #SUM "(%[sums]), %%ymm" #SUM ", %%ymm" #SUM "\n\t" LLGTRT_STORE_HALF(COLUMN, SUM, HALF)
#define LLGTRT_TO_32_BITS(SUM, HALF) "vpmaddwd 32*" #HALF "(%[factors]), %%ymm" #SUM ", %%ymm" #SUM "\n\t"
#define LLGTRT_STORE(...) LLGTRT_FOR_HALVES(LLGTRT_STORE_HALF, __VA_ARGS__)
#define LLGTRT_STORE_HALF(COLUMN, SUM, HALF) "vmovdqa %%ymm" #SUM ", 32*" #SUM "(%[sums])\n\t"
// Those of a whole block are multiplied with the scales of both sides, and added to floats, with what Tile has of the column: as integers
// before that, or times the minimum after it.
#define LLGTRT_ADD_BLOCK(COLUMN, ...) \
    "vbroadcastss 4*" #COLUMN "(%[scales]), %%ymm9\n\t" LLGTRT_FOR_HALVES(LLGTRT_ADD_BLOCK_HALF, COLUMN, __VA_ARGS__)
#define LLGTRT_ADD_BLOCK_HALF(COLUMN, SUM, HALF) \
    LLGTRT_ADD_FLOATS(SUM, HALF) "vmovaps %%ymm" #SUM ", 32*" #SUM "(%[sums])\n\t"
#define LLGTRT_ADD_FLOATS(SUM, HALF) \
    "vcvtdq2ps %%ymm" #SUM ", %%ymm" #SUM "\n\t" \
    "vmulps 32*" #HALF "(%[d]), %%ymm9, %%ymm10\n\t" \
    "vfmadd213ps 32*" #SUM "(%[sums]), %%ymm10, %%ymm" #SUM "\n\t"
#define LLGTRT_ADD_BLOCK_LESS_OFFSET(COLUMN, ...) \
    "vpbroadcastd 4*" #COLUMN "(%[totals]), %%ymm8\n\tvbroadcastss 4*" #COLUMN "(%[scales]), %%ymm9\n\t" \
    LLGTRT_FOR_HALVES(LLGTRT_ADD_BLOCK_LESS_OFFSET_HALF, COLUMN, __VA_ARGS__)
#define LLGTRT_ADD_BLOCK_LESS_OFFSET_HALF(COLUMN, SUM, HALF) \
    LLGTRT_TO_32_BITS(SUM, HALF) \
    "vpaddd %%ymm8, %%ymm" #SUM ", %%ymm" #SUM "\n\t" LLGTRT_ADD_BLOCK_HALF(COLUMN, SUM, HALF)
#define LLGTRT_ADD_BLOCK_AND_MINIMUM(COLUMN, ...) \
    "vbroadcastss 4*" #COLUMN "(%[totals]), %%ymm8\n\tvbroadcastss 4*" #COLUMN "(%[scales]), %%ymm9\n\t" \
    LLGTRT_FOR_HALVES(LLGTRT_ADD_BLOCK_AND_MINIMUM_HALF, COLUMN, __VA_ARGS__)
#define LLGTRT_ADD_BLOCK_AND_MINIMUM_HALF(COLUMN, SUM, HALF) \
    LLGTRT_TO_32_BITS(SUM, HALF) LLGTRT_ADD_FLOATS(SUM, HALF) \
    "vfmadd231ps 32*" #HALF "(%[m]), %%ymm8, %%ymm" #SUM "\n\tvmovaps %%ymm" #SUM ", 32*" #SUM "(%[sums])\n\t"
#define LLGTRT_SUMS_1(END) END(0, 0, 1)
#define LLGTRT_SUMS_2(END) LLGTRT_SUMS_1(END) END(1, 2, 3)
#define LLGTRT_SUMS_3(END) LLGTRT_SUMS_2(END) END(2, 4, 5)
#define LLGTRT_SUMS_4(END) LLGTRT_SUMS_3(END) END(3, 6, 7)
#define LLGTRT_CLOBBERS \
    "memory", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11"

// What blocks are multiplied with to become floats: by half of the rows, and by column.
struct Ends {
    const Isa::Floats *d, *m;
    const uint8_t *    scales, *totals;
};

// Products with C columns from `q` on, by column and half of the rows, of numbers in memory.
template <int C> struct FromMemory {
    // Adds those of so many STEPS of bytes, times the halves' factors.
    template <int STEPS> static void add_products(const Isa::Ints * u, const uint8_t * q, const Isa::Ints * factors, Isa::Ints * sums);
    // The sums become those of a block of words.
    static void multiply_words(const Isa::Ints * u, const uint8_t * q, Isa::Ints * sums);
    // Adds those of a block: of words, of signed bytes that are multiplied as words, a half's HALF bytes behind the other's, or of up
    // to four bits, with a minimum or not.
    static void add_words(const Isa::Ints * u, const uint8_t * q, const Ends & ends, Isa::Floats * sums);
    template <int HALF> static void add_bytes(const uint8_t * u, const uint8_t * q, const Ends & ends, Isa::Floats * sums);
    template <bool MINIMUM>
    static void add_nibbles(const Isa::Ints * u, const uint8_t * q, const Isa::Ints * factors, const Ends & ends, Isa::Floats * sums);
};
#define LLGTRT_ADD_PRODUCTS(STEPS, C) \
    template <> \
    template <> \
    inline void FromMemory<C>::add_products<STEPS>( \
        const Isa::Ints * u, const uint8_t * q, const Isa::Ints * factors, Isa::Ints * sums) { \
        asm volatile(LLGTRT_STEPS_##STEPS(C, LLGTRT_LOAD, "vpmaddubsw", "vpaddw", 32) LLGTRT_SUMS_##C(LLGTRT_ADD_UP) \
                     : \
                     : [u] "r"(u), [q] "r"(q), [factors] "r"(factors), [sums] "r"(sums) \
                     : LLGTRT_CLOBBERS); \
    }
#define LLGTRT_ADD_NIBBLES(C, MINIMUM, END) \
    template <> \
    template <> \
    inline void FromMemory<C>::add_nibbles<MINIMUM>( \
        const Isa::Ints * u, const uint8_t * q, const Isa::Ints * factors, const Ends & ends, Isa::Floats * sums) { \
        asm volatile(LLGTRT_STEPS_8(C, LLGTRT_LOAD, "vpmaddubsw", "vpaddw", 32) LLGTRT_SUMS_##C(END) \
                     : \
                     : [u] "r"(u), [q] "r"(q), [factors] "r"(factors), [d] "r"(ends.d), [m] "r"(ends.m), \
                       [scales] "r"(ends.scales), [totals] "r"(ends.totals), [sums] "r"(sums) \
                     : LLGTRT_CLOBBERS); \
    }
#define LLGTRT_WORDS(C) \
    template <> inline void FromMemory<C>::multiply_words(const Isa::Ints * u, const uint8_t * q, Isa::Ints * sums) { \
        asm volatile(LLGTRT_STEPS_16(C, LLGTRT_LOAD, "vpmaddwd", "vpaddd", 64) LLGTRT_SUMS_##C(LLGTRT_STORE) \
                     : \
                     : [u] "r"(u), [q] "r"(q), [sums] "r"(sums) \
                     : LLGTRT_CLOBBERS); \
    } \
    template <> \
    inline void FromMemory<C>::add_words(const Isa::Ints * u, const uint8_t * q, const Ends & ends, Isa::Floats * sums) { \
        asm volatile(LLGTRT_STEPS_16(C, LLGTRT_LOAD, "vpmaddwd", "vpaddd", 64) LLGTRT_SUMS_##C(LLGTRT_ADD_BLOCK) \
                     : \
                     : [u] "r"(u), [q] "r"(q), [d] "r"(ends.d), [scales] "r"(ends.scales), [sums] "r"(sums) \
                     : LLGTRT_CLOBBERS); \
    }
#define LLGTRT_BYTES(C) \
    template <> \
    template <int HALF> \
    inline void FromMemory<C>::add_bytes(const uint8_t * u, const uint8_t * q, const Ends & ends, Isa::Floats * sums) { \
        asm volatile(LLGTRT_STEPS_16(C, LLGTRT_LOAD_BYTES, "vpmaddwd", "vpaddd", 64) LLGTRT_SUMS_##C(LLGTRT_ADD_BLOCK) \
                     : \
                     : [u] "r"(u), [half] "i"(HALF), [q] "r"(q), [d] "r"(ends.d), [scales] "r"(ends.scales), [sums] "r"(sums) \
                     : LLGTRT_CLOBBERS); \
    }
#define LLGTRT_FOR_COLUMNS(C) \
    LLGTRT_ADD_PRODUCTS(2, C) \
    LLGTRT_ADD_PRODUCTS(4, C) \
    LLGTRT_ADD_PRODUCTS(8, C) \
    LLGTRT_ADD_NIBBLES(C, false, LLGTRT_ADD_BLOCK_LESS_OFFSET) \
    LLGTRT_ADD_NIBBLES(C, true, LLGTRT_ADD_BLOCK_AND_MINIMUM) \
    LLGTRT_WORDS(C) \
    LLGTRT_BYTES(C)
LLGTRT_FOR_COLUMNS(1)
LLGTRT_FOR_COLUMNS(2)
LLGTRT_FOR_COLUMNS(3)
LLGTRT_FOR_COLUMNS(4)

}  // namespace
}  // namespace llgtrt::repack
