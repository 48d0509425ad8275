// The columns of products of several matrices, as of a mixture of experts: which of them each matrix multiplies, and how they lie in the work buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "columns.h"
#include "ggml.h"
#include "pass.h"
#include "shares.h"
#include "tensors.h"

namespace llgtrt::repack {

// A column: of a token for one of the matrices that it is multiplied by, which are numbered.
struct Column {
    int32_t token, number;
};

// What a product of several matrices is of. Each token goes to some experts, which a tensor says; or there is a matrix for each head, and each
// token has another vector for each of them.
class ProductOfMany {
  public:
    explicit ProductOfMany(const ggml_tensor * op) : op_(op), ids_(op->op == GGML_OP_MUL_MAT_ID ? op->src[2] : nullptr) {}

    static bool is_one(const ggml_tensor * op) { return op->op == GGML_OP_MUL_MAT_ID || !ggml_is_matrix(op->src[0]); }

    const ggml_tensor * ids() const { return ids_; }  // null: there is one for each head
    int64_t             matrices() const { return op_->src[0]->ne[2]; }
    int64_t             tokens() const { return ids_ != nullptr ? ids_->ne[1] : op_->ne[1] * op_->ne[3]; }
    int64_t             per_token() const { return ids_ != nullptr ? ids_->ne[0] : op_->ne[2]; }

    // The tokens that are needed; null: all.
    const Needed * needed(const Pass * pass) const {
        if (ids_ != nullptr) {
            return needed_of(pass, *op_, 2);
        }
        const Needed * const needed = needed_of(pass);
        const bool           are_in_streams = needed != nullptr && op_->ne[1] == needed->width && op_->ne[3] == needed->streams;
        return are_in_streams || (needed != nullptr && op_->ne[3] == 1 && op_->ne[1] == needed->streams * needed->width) ? needed : nullptr;
    }

    int64_t matrix(Column column) const {
        if (ids_ == nullptr) {
            return column.number;
        }
        const char * const at = static_cast<const char *>(ids_->data) + column.token * ids_->nb[1] + column.number * ids_->nb[0];
        // What is no expert is taken for the last one: nothing may be written elsewhere.
        return std::min<int64_t>(*reinterpret_cast<const uint32_t *>(at), matrices() - 1);
    }

    const float * activations(Column column) const {
        const ggml_tensor * const from = op_->src[1];
        return ids_ == nullptr ? row_of_head(from, column) : row(from, column.token * from->ne[1] + column.number % from->ne[1]);
    }

    float * result(Column column) const {
        return ids_ == nullptr ? row_of_head(op_, column) : row(op_, column.token * op_->ne[1] + column.number);
    }

  private:
    // Tokens come first, and streams of them last.
    static float * row_of_head(const ggml_tensor * tensor, Column column) {
        const int64_t tokens = tensor->ne[1], stream = column.token / tokens;
        return row(tensor, (stream * tensor->ne[2] + column.number) * tokens + column.token % tokens);
    }

    const ggml_tensor * op_;
    const ggml_tensor * ids_;
};

// The columns that such a product takes, matrix by matrix, in tiles, each of one. At the beginning of memory of bytes(); the quantized columns
// come after it.
class Routing {
  public:
    static constexpr size_t bytes(int64_t matrices, int64_t columns) {
        const int64_t numbers = (columns + 1) + (matrices + 1);
        return GGML_PAD(sizeof(Routing) + (sizeof(Column) + sizeof(Tile)) * columns + sizeof(int32_t) * numbers, ALIGNMENT);
    }

    // Of the tokens that are needed. `size` is the bytes of a quantized column, `widest` how many the widest tile has.
    Routing(const ProductOfMany & product, const Needed * needed, int64_t size, int64_t widest) :
        size_(size), columns_(reinterpret_cast<Column *>(this + 1)) {
        const int64_t tokens = needed != nullptr ? needed->count : product.tokens(), columns = tokens * product.per_token();
        const int64_t matrices = product.matrices();
        tiles_                 = reinterpret_cast<Tile *>(columns_ + columns);
        used_                  = reinterpret_cast<int32_t *>(tiles_ + columns);
        int32_t * const ends   = used_ + columns + 1;  // of each matrix's columns; before that, where they begin
        const auto      for_all = [&](const auto & some) {
            for (int64_t i = 0; i < tokens; i++) {
                const int64_t token = needed != nullptr ? needed->tokens[i] : i;
                for (int64_t number = 0; number < product.per_token(); number++) {
                    const Column column = {int32_t(token), int32_t(number)};
                    some(product.matrix(column), column);
                }
            }
        };
        std::fill(ends, ends + matrices + 1, 0);
        for_all([&](int64_t matrix, Column) { ends[matrix + 1]++; });
        for (int64_t matrix = 0; matrix < matrices; matrix++) {
            ends[matrix + 1] += ends[matrix];
        }
        for_all([&](int64_t matrix, Column column) { columns_[ends[matrix]++] = column; });
        int32_t begin = 0;
        for (int32_t matrix = 0; matrix < matrices; matrix++) {
            if (ends[matrix] > begin) {
                used_[used_count_++] = count_;
                add_tiles(matrix, begin, ends[matrix] - begin, widest);
            }
            begin = ends[matrix];
        }
        used_[used_count_] = count_;
    }

    Column column(int64_t index) const { return columns_[index]; }

    // Tiles.
    int64_t count() const { return count_; }
    int64_t first(int64_t tile) const { return tiles_[tile].first; }
    int64_t width(int64_t tile) const { return tiles_[tile].width; }
    int64_t matrix(int64_t tile) const { return tiles_[tile].matrix; }
    // Where its quantized columns are in the memory behind this.
    uint8_t * at(uint8_t * memory, int64_t tile) const { return memory + size_ * first(tile); }

    // How many matrices have columns, and the tiles of one of these.
    int64_t used() const { return used_count_; }
    Range   tiles_of(int64_t used) const { return {used_[used], used_[used + 1]}; }

  private:
    struct Tile {
        int32_t matrix, first, width;
    };

    // They are of about the same width.
    void add_tiles(int32_t matrix, int32_t first, int64_t columns, int64_t widest) {
        const int64_t tiles = (columns + widest - 1) / widest;
        for (int64_t i = 0; i < tiles; i++) {
            const auto [begin, end] = share(columns, i, tiles);
            tiles_[count_++]        = {matrix, int32_t(first + begin), int32_t(end - begin)};
        }
    }

    int64_t   size_;
    Column *  columns_;
    Tile *    tiles_;
    int32_t * used_;  // the first tile of each matrix that has columns, and the end
    int32_t   count_      = 0;
    int32_t   used_count_ = 0;
};

}  // namespace llgtrt::repack
