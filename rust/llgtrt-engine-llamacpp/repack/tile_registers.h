// The tile registers of AMX, and instructions on them.
//
// The instructions are written out: with the compiler's own (GCC 12) it leaves out what is written to memory for them.
#pragma once

#include <cstdint>

namespace llgtrt::repack {
namespace {

constexpr int TILE_ROWS  = 16;  // of a register
constexpr int TILE_BYTES = 64;  // of one of its rows

// The tile registers while products are made: 0 and 1 hold second factors, 2 and 3 first ones, 4 to 7 sums, of the rows in 2 and in 3
// by turns.
class TileRegisters {
  public:
    // For `upper` rows in 2 and `lower` in 3, and so many bytes of what products are added up over.
    TileRegisters(int64_t upper, int64_t lower, int bytes) {
        const auto shape = [this](int tile, int64_t rows, int row) {
            if (rows > 0) {
                config_.rows[tile]  = static_cast<uint8_t>(rows);
                config_.bytes[tile] = static_cast<uint16_t>(row);
            }
        };
        for (int i = 0; i < 2; i++) {
            const int64_t some = i == 0 ? upper : lower;
            shape(i, bytes / 4, TILE_BYTES);
            shape(2 + i, some, bytes);
            shape(4 + i, some, TILE_BYTES);
            shape(6 + i, some, TILE_BYTES);
        }
        asm volatile("ldtilecfg %0" : : "m"(config_));
    }
    TileRegisters(const TileRegisters &)             = delete;
    TileRegisters & operator=(const TileRegisters &) = delete;
    ~TileRegisters() { asm volatile("tilerelease"); }

  private:
    // As the instruction reads it.
    struct alignas(64) {
        uint8_t  palette = 1, start = 0, unused[14] = {};
        uint16_t bytes[16] = {};  // of a row
        uint8_t  rows[16]  = {};
    } config_;
};

template <int T> inline void load_tile(const void * from, int64_t stride) {
    asm volatile("tileloadd (%0,%1,1), %%tmm%c2" : : "r"(from), "r"(stride), "i"(T) : "memory");
}

template <int T> inline void store_tile(void * to, int64_t stride) {
    asm volatile("tilestored %%tmm%c2, (%0,%1,1)" : : "r"(to), "r"(stride), "i"(T) : "memory");
}

template <int T> inline void zero_tile() {
    asm volatile("tilezero %%tmm%c0" : : "i"(T));
}

}  // namespace
}  // namespace llgtrt::repack
