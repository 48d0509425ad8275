// Weights rearranged so that a multiplication with several activations unpacks each weight once and multiplies ROWS
// rows by one instruction.
//
// A packed block holds one block or superblock of each of ROWS rows, in as many bytes as ggml's own take. A word is
// four bytes; a vector holds one of each row; a group is the four elements of K that a word multiplies:
//
//     d[ROWS]            scales, half, or the exponent of one (MXFP4)
//     m[ROWS]            minima, half             (types with a minimum), or the upper bits of s (IQ4_XS)
//     s[words][ROWS]     the integer scales, and minima, of the parts, as ggml has them (K types)
//     high[ROWS / 2]     per group, the upper bit of its elements (3 and 5 bits): bit 4 * row + k is that of element k
//     high[4 * ROWS]     per four groups, the upper bits (6 bits): bits 2 * g of byte k are those of element k of group g
//     q[4][4 * ROWS]     per 32 elements, nibbles: vector j holds group j and, in the upper nibbles, group 4 + j
//     q[8][4 * ROWS]     or bytes (8 bits)
//     q[2][4 * ROWS]     or pairs of bits (2 and 3 bits): bits 2 * i of vector j hold group 2 * i + j
#pragma once

#include "formats.h"
#include "isa.h"

namespace llgtrt::repack {
namespace {

constexpr int GROUPS = BLOCK / 4;

// Where the parts of a packed block are, in bytes.
template <class Format, class Isa> struct Layout {
    static constexpr int HALVES = 2 * Isa::ROWS;
    static constexpr int OF_SCALES = SCALE_BYTES<Format> * Isa::ROWS;
    static constexpr int VECTOR = 4 * Isa::ROWS;
    static constexpr int BITS   = Isa::ROWS / 2;  // the fifth ones of a group
    static constexpr int BLOCKS = ELEMENTS<Format> / BLOCK;
    static constexpr int SCALES = SCALE_WORDS<Format>;
    static constexpr int MINIMA = OF_SCALES;
    static constexpr int UPPER  = OF_SCALES;
    static constexpr int SCALE  = OF_SCALES + (Format::MINIMUM || SPLIT_SCALES<Format> ? HALVES : 0);
    static constexpr int HIGH   = SCALE + SCALES * VECTOR;
    // Bytes of 32 elements.
    static constexpr int HIGH_SIZE = Format::BITS == 5 || Format::BITS == 3 ? GROUPS * BITS
                                     : Format::BITS == 6                    ? GROUPS / 4 * VECTOR
                                                                            : 0;
    static constexpr int Q_SIZE = (Format::BITS == 8 ? GROUPS : Format::BITS <= 3 ? GROUPS / 4 : GROUPS / 2) * VECTOR;
    static constexpr int Q         = HIGH + BLOCKS * HIGH_SIZE;
    static constexpr int SIZE      = Q + BLOCKS * Q_SIZE;
    static_assert(SIZE == Isa::ROWS * static_cast<int>(sizeof(typename Format::Block)));
};

// Rearranges the block at the same place of ROWS rows; `rows` are the first one's blocks, `stride` blocks apart.
template <class Format, class Isa>
void pack(const typename Format::Block * rows, int64_t stride, uint8_t * to) {
    using At = Layout<Format, Isa>;
    std::memset(to + At::HIGH, 0, At::Q - At::HIGH);
    for (int row = 0; row < Isa::ROWS; row++) {
        const auto & block = rows[row * stride];
        const auto * const halves = reinterpret_cast<const uint8_t *>(&block) + SCALE_AT<Format>;
        std::memcpy(to + SCALE_BYTES<Format> * row, halves, SCALE_BYTES<Format>);
        if constexpr (Format::MINIMUM || SPLIT_SCALES<Format>) {
            std::memcpy(to + At::MINIMA + 2 * row, halves + 2, 2);
        }
        if constexpr (SUPER<Format>) {
            for (int i = 0; i < At::SCALES; i++) {
                std::memcpy(to + At::SCALE + i * At::VECTOR + 4 * row, scales_of(block) + 4 * i, 4);
            }
        }

        uint8_t u[ELEMENTS<Format>];
        Format::read(block, u);
        for (int b = 0; b < At::BLOCKS; b++) {
            uint32_t words[GROUPS];
            std::memcpy(words, u + BLOCK * b, sizeof words);
            uint8_t * const q    = to + At::Q + b * At::Q_SIZE + 4 * row;
            uint8_t * const high = to + At::HIGH + b * At::HIGH_SIZE;
            for (int g = 0; g < GROUPS; g++) {
                if constexpr (Format::BITS == 8) {
                    std::memcpy(q + g * At::VECTOR, words + g, 4);
                } else if constexpr (Format::BITS <= 3) {
                    uint8_t * const at  = q + g % 2 * At::VECTOR;
                    const uint32_t  all = (g < 2 ? 0 : static_cast<uint32_t>(four_bytes(at))) | (words[g] & 0x03030303) << 2 * (g / 2);
                    std::memcpy(at, &all, 4);
                } else if (g < GROUPS / 2) {
                    const uint32_t both = (words[g] & 0x0f0f0f0f) | (words[g + GROUPS / 2] & 0x0f0f0f0f) << 4;
                    std::memcpy(q + g * At::VECTOR, &both, 4);
                }
                if constexpr (Format::BITS == 5 || Format::BITS == 3) {
                    // The multiplication gathers the four bits at bit 24.
                    const uint32_t four = ((words[g] >> (Format::BITS - 1) & 0x01010101) * 0x01020408) >> 24 & 15;
                    high[g * At::BITS + row / 2] |= static_cast<uint8_t>(four << 4 * (row % 2));
                } else if constexpr (Format::BITS == 6) {
                    uint8_t * const at = high + g / 4 * At::VECTOR + 4 * row;
                    const uint32_t  all = static_cast<uint32_t>(four_bytes(at)) | (words[g] >> 4 & 0x03030303) << 2 * (g % 4);
                    std::memcpy(at, &all, 4);
                }
            }
        }
    }
}

// The scales of a packed block.
template <class Format, class Isa> inline typename Isa::Floats block_scales(const uint8_t * packed) {
    if constexpr (SCALE_BYTES<Format> == 1) {
        return Isa::powers(packed);
    } else {
        return Isa::halves(packed);
    }
}

// The numbers of block `b` of a packed block, one vector per group.
template <class Format, class Isa> inline void unpack(const uint8_t * packed, int b, typename Isa::Ints * u) {
    using At = Layout<Format, Isa>;
    const uint8_t * const q    = packed + At::Q + b * At::Q_SIZE;
    const uint8_t * const high = packed + At::HIGH + b * At::HIGH_SIZE;
    if constexpr (Format::BITS == 8) {
#pragma GCC unroll 8
        for (int g = 0; g < GROUPS; g++) {
            u[g] = Isa::load(q + g * At::VECTOR);
        }
    } else if constexpr (Format::BITS == 2) {
#pragma GCC unroll 8
        for (int g = 0; g < GROUPS; g++) {
            u[g] = Isa::bits(Isa::right(Isa::load(q + g % 2 * At::VECTOR), 2 * (g / 2)), 0x03030303);
        }
    } else if constexpr (Format::BITS == 3) {
#pragma GCC unroll 2
        for (int g = 0; g < 2; g++) {
            const auto all = Isa::load(q + g * At::VECTOR);
            u[g]           = Isa::bits(Isa::left(all, 2), 0x0c0c0c0c);
            u[g + 2]       = Isa::bits(all, 0x0c0c0c0c);
            u[g + 4]       = Isa::bits(Isa::right(all, 2), 0x0c0c0c0c);
            u[g + 6]       = Isa::bits(Isa::right(all, 4), 0x0c0c0c0c);
        }
    } else {
#pragma GCC unroll 4
        for (int g = 0; g < GROUPS / 2; g++) {
            const auto both   = Isa::load(q + g * At::VECTOR);
            u[g]              = Isa::bits(both, 0x0f0f0f0f);
            u[g + GROUPS / 2] = Isa::upper_nibbles(both);
        }
    }
    if constexpr (IN_TABLE<Format>) {
#pragma GCC unroll 8
        for (int g = 0; g < GROUPS; g++) {
            u[g] = Isa::look_up(TABLE<Format>, u[g]);
        }
    }
    if constexpr (Format::BITS == 5 || Format::BITS == 3) {
#pragma GCC unroll 8
        for (int g = 0; g < GROUPS; g++) {
            u[g] = Isa::add_fifth_bit(u[g], high, g);
        }
    } else if constexpr (Format::BITS == 6) {
#pragma GCC unroll 2
        for (int v = 0; v < GROUPS / 4; v++) {
            const auto upper = Isa::load(high + v * At::VECTOR);
            u[4 * v]         = Isa::either(u[4 * v], Isa::bits(Isa::left(upper, 4), 0x30303030));
            u[4 * v + 1]     = Isa::either(u[4 * v + 1], Isa::bits(Isa::left(upper, 2), 0x30303030));
            u[4 * v + 2]     = Isa::either(u[4 * v + 2], Isa::bits(upper, 0x30303030));
            u[4 * v + 3]     = Isa::either(u[4 * v + 3], Isa::bits(Isa::right(upper, 2), 0x30303030));
        }
    }
}

}  // namespace
}  // namespace llgtrt::repack
