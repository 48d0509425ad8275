// What is done with weights of one type on this machine: they are packed, and multiplied.
#pragma once

#include "columns.h"
#include "kernels.h"
#include "pass.h"
#include "shares.h"
#include "traits.h"

namespace llgtrt::repack {

class Weights : public ggml::cpu::tensor_traits {
  public:
    Weights(const Kernels & kernels, const Kernel & kernel) : rows_(kernels.rows), kernel_(kernel) {}

    // Whether a tensor is of this type, and of a shape that can be packed.
    bool fits(const ggml_tensor * tensor) const;

    // Bytes of a tensor, packed: of each matrix as many groups of rows as it begins.
    size_t packed_size(const ggml_tensor * tensor) const;

    // Whether a product of them is one of those: of a matrix, or of the matrices of experts, or of one for each head.
    static bool can_multiply(const ggml_tensor * op);

    // Writes to the tensor's memory what ggml has at `from`, packed.
    void pack(const ggml_tensor * tensor, const void * from) const;

    bool work_size(int threads, const ggml_tensor * op, size_t & size) override;

    // A product, or a gate of two.
    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override;

  private:
    // Of each matrix; what is missing of the last one's rows is zero, and what is made of that goes nowhere.
    int64_t groups_of(const ggml_tensor * weights) const;

    // Packs the block at the same place of the `count` rows of such a group, `row` bytes apart.
    void pack_last(const uint8_t * rows, int64_t count, size_t row, size_t block, uint8_t * to) const;

    // Multiplies some groups of rows of the matrix of that number by a tile of `n` columns. A row's result goes to its place of `out`.
    void multiply(
        const ggml_tensor & weights, int64_t matrix, Range groups, const uint8_t * tile, int64_t n, float * const * out) const;

    // Bytes of so many columns' tiles.
    size_t tiles_size(const ggml_tensor * op, int64_t columns) const;

    // Asks which logits are needed.
    void arrange(Order & order, const Needed * needed, int64_t columns, int64_t groups) const;

    // Each column by one of some matrices: that of an expert, or of a head.
    void multiply_by_many(const ggml_compute_params & params, ggml_tensor * op) const;

    // This thread's part of the columns' blocks, where `column` has the floats of one and `tile_at` the memory of a tile: the same of all columns of a tile, because what two of them have of one block is in the
    // same cache lines. Where there are more threads than blocks they divide the tiles as well.
    template <class AllTiles, class TileAt, class Column>
    void quantize(
        const ggml_compute_params & params, int64_t blocks, const AllTiles & tiles, const TileAt & tile_at, const Column & column) const;

    // Groups of rows of a gate that are never apart.
    int64_t gated_together() const;

    // What a gate makes of some groups of rows of its two products.
    void multiply_gated(
        const ggml_tensor * op, const Tiles & tiles, const Columns & columns, Range groups, Range some_tiles) const;

    // Groups of rows from `begin` to `end` with all columns. Those of which a column's mask has no bit are -infinity there: the
    // others' results do not depend on them.
    void multiply(ggml_tensor * op, const Tiles & tiles, const Columns & columns, Range groups, Range some_tiles) const;

    // Whether a mask has a bit of a group of rows.
    bool is_any_needed(const uint32_t * mask, int64_t group) const;

    // Whether so few groups of rows are needed of a column that it is done alone in less time than beside others.
    bool are_few_needed(const uint32_t * mask, int64_t groups) const;

    int    rows_;  // of a group
    Kernel kernel_;
};

}  // namespace llgtrt::repack
