// The columns of activations that a product takes: which, in what order, and how they lie in the work buffer.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ggml.h"
#include "pass.h"

namespace llgtrt::repack {

constexpr size_t ALIGNMENT = 64;  // of tensors and tiles: a cache line

// The columns of logits' activations in the order in which they are multiplied: first those of which the whole product is needed,
// then those of which some rows are, each with a mask: a bit for each row.
class Order {
  public:
    static constexpr size_t bytes(int64_t columns) {
        return GGML_PAD(sizeof(Order) + sizeof(Column) * columns, ALIGNMENT);
    }

    // Of `columns`, to be added; at the beginning of memory of bytes().
    explicit Order(int64_t columns) : last_(columns) {}

    void add(int64_t column) { all()[whole_++] = {column, nullptr}; }
    void add(int64_t column, const uint32_t * mask) { all()[--last_] = {column, mask}; }

    int64_t          whole() const { return whole_; }
    int64_t          column(int64_t place) const { return all()[place].index; }
    const uint32_t * mask(int64_t place) const { return all()[place].mask; }

  private:
    struct Column {
        int64_t          index;
        const uint32_t * mask;
    };

    Column *       all() { return reinterpret_cast<Column *>(this + 1); }
    const Column * all() const { return reinterpret_cast<const Column *>(this + 1); }

    int64_t whole_ = 0;
    int64_t last_;
};

// The columns that are multiplied, in their order.
struct Columns {
    int64_t       count;
    const Order * order  = nullptr;  // of logits
    // Of tokens, some of which are not needed.
    const Needed * needed = nullptr;

    int64_t whole() const { return order != nullptr ? order->whole() : count; }
    int64_t at(int64_t place) const {
        return order != nullptr ? order->column(place) : needed != nullptr ? needed->tokens[place] : place;
    }
    const uint32_t * mask(int64_t place) const { return order != nullptr ? order->mask(place) : nullptr; }
};

// The quantized columns in the work buffer, tile by tile. The tiles are of about the same width: one column more than a
// tile holds must not cost another pass over the weights alone. Columns that are not needed whole have tiles of their own.
class Tiles {
  public:
    // `column` is the bytes of one; there is room for ALIGNMENT bytes more.
    Tiles(void * memory, int64_t column, int64_t columns, int64_t whole, int64_t widest) :
        memory_(reinterpret_cast<uint8_t *>(GGML_PAD(reinterpret_cast<uintptr_t>(memory), ALIGNMENT))),
        column_(column),
        columns_(columns),
        whole_(whole),
        wide_((whole + widest - 1) / widest),
        width_(whole / std::max<int64_t>(1, wide_)),
        wider_(whole - width_ * wide_) {}

    int64_t   count() const { return wide_ + columns_ - whole_; }
    int64_t   first(int64_t tile) const {
        return tile < wide_ ? width_ * tile + std::min(tile, wider_) : whole_ + tile - wide_;
    }
    int64_t   width(int64_t tile) const { return first(tile + 1) - first(tile); }
    uint8_t * operator[](int64_t tile) const { return memory_ + column_ * first(tile); }

  private:
    uint8_t * memory_;
    int64_t   column_;
    int64_t   columns_;
    int64_t   whole_;
    int64_t   wide_;   // tiles of whole columns,
    int64_t   width_;  // so many in each,
    int64_t   wider_;  // and one more in so many of the first
};

}  // namespace llgtrt::repack
