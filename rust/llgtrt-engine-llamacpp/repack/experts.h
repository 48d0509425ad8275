// The columns of a mixture of experts: which of them each expert multiplies, and how they lie in the work buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "columns.h"
#include "ggml.h"
#include "pass.h"
#include "shares.h"

namespace llgtrt::repack {

// The columns that a product of experts takes, expert by expert, in tiles, each of one expert. At the beginning of memory of bytes(); the
// quantized columns come after it.
class Routing {
  public:
    // A column: of a token for one of the experts that it goes to, which are numbered.
    struct Column {
        int32_t token, number;
    };

    static constexpr size_t bytes(int64_t experts, int64_t columns) {
        const int64_t numbers = (columns + 1) + (experts + 1);
        return GGML_PAD(sizeof(Routing) + (sizeof(Column) + sizeof(Tile)) * columns + sizeof(int32_t) * numbers, ALIGNMENT);
    }

    // Of the tokens that are needed, to the experts that `ids` says. `size` is the bytes of a quantized column, `widest` how many the widest
    // tile has.
    Routing(const ggml_tensor & ids, const Needed * needed, int64_t experts, int64_t size, int64_t widest) :
        size_(size), columns_(reinterpret_cast<Column *>(this + 1)) {
        const int64_t tokens = needed != nullptr ? needed->count : ids.ne[1], columns = tokens * ids.ne[0];
        tiles_                = reinterpret_cast<Tile *>(columns_ + columns);
        used_                 = reinterpret_cast<int32_t *>(tiles_ + columns);
        int32_t * const ends  = used_ + columns + 1;  // of each expert's columns; before that, where they begin
        const auto      for_all = [&](const auto & some) {
            for (int64_t i = 0; i < tokens; i++) {
                const int64_t token = needed != nullptr ? needed->tokens[i] : i;
                for (int64_t number = 0; number < ids.ne[0]; number++) {
                    const char * const at = static_cast<const char *>(ids.data) + token * ids.nb[1] + number * ids.nb[0];
                    // What is no expert is taken for the last one: nothing may be written elsewhere.
                    const auto expert = std::min<int64_t>(*reinterpret_cast<const uint32_t *>(at), experts - 1);
                    some(expert, Column{int32_t(token), int32_t(number)});
                }
            }
        };
        std::fill(ends, ends + experts + 1, 0);
        for_all([&](int64_t expert, Column) { ends[expert + 1]++; });
        for (int64_t expert = 0; expert < experts; expert++) {
            ends[expert + 1] += ends[expert];
        }
        for_all([&](int64_t expert, Column column) { columns_[ends[expert]++] = column; });
        int32_t begin = 0;
        for (int32_t expert = 0; expert < experts; expert++) {
            if (ends[expert] > begin) {
                used_[used_count_++] = count_;
                add_tiles(expert, begin, ends[expert] - begin, widest);
            }
            begin = ends[expert];
        }
        used_[used_count_] = count_;
    }

    Column column(int64_t index) const { return columns_[index]; }

    // Tiles.
    int64_t count() const { return count_; }
    int64_t first(int64_t tile) const { return tiles_[tile].first; }
    int64_t width(int64_t tile) const { return tiles_[tile].width; }
    int64_t expert(int64_t tile) const { return tiles_[tile].expert; }
    // Where its quantized columns are in the memory behind this.
    uint8_t * at(uint8_t * memory, int64_t tile) const { return memory + size_ * first(tile); }

    // How many experts have columns, and the tiles of one of these.
    int64_t used() const { return used_count_; }
    Range   tiles_of(int64_t used) const { return {used_[used], used_[used + 1]}; }

  private:
    struct Tile {
        int32_t expert, first, width;
    };

    // They are of about the same width.
    void add_tiles(int32_t expert, int32_t first, int64_t columns, int64_t widest) {
        const int64_t tiles = (columns + widest - 1) / widest;
        for (int64_t i = 0; i < tiles; i++) {
            const auto [begin, end] = share(columns, i, tiles);
            tiles_[count_++]        = {expert, int32_t(first + begin), int32_t(end - begin)};
        }
    }

    int64_t   size_;
    Column *  columns_;
    Tile *    tiles_;
    int32_t * used_;  // the first tile of each expert that has columns, and the end
    int32_t   count_      = 0;
    int32_t   used_count_ = 0;
};

}  // namespace llgtrt::repack
