// The tile registers of AMX, and instructions on them.
//
// The instructions are written out: with the compiler's own (GCC 12) it leaves out what is written to memory for them.
#pragma once

#include <cstdint>

namespace llgtrt::repack {
namespace {

constexpr int TILE_ROWS  = 16;  // of a register
constexpr int TILE_BYTES = 64;  // of one of its rows

// The tile registers while products are made: 0 and 1 hold second factors, 2 and 3 first ones, 4 to 7 sums.
//
// What is loaded for one product after the other is all loaded to one of them. A core whose other thread is busy has few registers to
// rename it to: with two by turns it waits for products that are not done, and takes up to twice the time.
class TileRegisters {
  public:
    // For so many rows of first factors, and bytes of what products are added up over.
    TileRegisters(int64_t rows, int bytes) {
        const auto shape = [this](int tile, int64_t count, int row) {
            config_.rows[tile]  = static_cast<uint8_t>(count);
            config_.bytes[tile] = static_cast<uint16_t>(row);
        };
        for (int i = 0; i < 2; i++) {
            shape(i, bytes / 4, TILE_BYTES);
            shape(2 + i, rows, bytes);
            shape(4 + i, rows, TILE_BYTES);
            shape(6 + i, rows, TILE_BYTES);
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
