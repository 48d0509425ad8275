// What the kernels of one set of instructions can do, without its types.
#pragma once

#include <cstdint>

#include "ggml.h"

namespace llgtrt::repack {

constexpr int64_t WIDEST_TILE = 128;
constexpr int64_t MOST_ROWS   = 16;    // of a group
constexpr int64_t MOST_PACKED = 4096;  // bytes of a packed block

// For weights of one type. A block is `elements` of K, a packed one that of each of a group of rows.
struct Kernel {
    ggml_type type;
    int       elements;
    int64_t   packed;  // bytes of a packed block
    int64_t   tile;    // bytes of a block of one column of a tile
    int64_t   columns;  // of the widest tile, at most WIDEST_TILE

    // Rearranges the block at the same place of a group of rows; `rows` are the first one's, `stride` blocks apart.
    void (*pack)(const void * rows, int64_t stride, uint8_t * to);
    // Quantizes `count` blocks of column `c` of a tile of `n`, which begins at `tile`.
    void (*quantize)(const float * from, int64_t count, uint8_t * tile, int64_t c, int64_t n);
    // `groups` of rows, `blocks` packed blocks each, times a tile of `n` columns. Column c's floats, one per row, go to
    // `out[c] + at`.
    void (*multiply)(
        const uint8_t * weights, int64_t groups, int64_t blocks, const uint8_t * tile, int64_t n, float * const * out,
        int64_t at);
};

// What attention over some cells has come to, in floats: the largest score, the sum of the weights of all cells, which are 2 to the
// power of their scores less that one, and as many values as a head has, each the weighted sum of the cells'. They begin a vector.
constexpr int PARTIAL_MOST   = 0;
constexpr int PARTIAL_SUM    = 1;
constexpr int PARTIAL_VALUES = 16;

constexpr float LOG2_E = 0x1.715476p+0F;  // powers of e are powers of two with this factor

// For so many cells from a multiple of that on: whether a token sees all of them and nothing is added to their scores, or some, or none.
// All heads look for that, and masks are read from memory.
constexpr int     CELLS_OF_LOOK = 64;
constexpr uint8_t LOOK_UNKNOWN = 0, LOOK_ALL = 1, LOOK_SOME = 2, LOOK_NONE = 3;

// One query: its floats, what is added to the score of each cell (halves, -infinity where it sees none; null: it sees
// all), what is known of that by now, and where its partial result goes: at the same distance from that of the row before as all others.
struct AttentionRow {
    const float *    query;
    const uint16_t * mask;
    uint8_t *        looks;
    float *          partial;
};

constexpr int MOST_QUERIES = 128;  // rows of an attention, with any set of instructions
constexpr int WIDEST_HEAD  = 576;  // elements

// Cells `begin` to `end` of one head of a KV cache, of halves or of Q8_0; the strides are bytes from one cell to the next.
// Depths are elements, divisible by the rows of AttentionKernel, as are the cells.
struct AttentionCells {
    ggml_type    type;
    const char * keys;
    const char * values;
    int64_t      key_stride, value_stride;
    int64_t      key_depth, value_depth;
    int64_t      begin, end;
    float        scale;
    float        cap;  // of scores: they become `cap` times the hyperbolic tangent of a `cap`th of them; 0: none
};

// Rows of weights in floats, halves or bfloat16, `stride` bytes apart. `depth` elements each, divisible by the rows of AttentionKernel.
struct FloatRows {
    ggml_type    type;
    const char * data;
    int64_t      stride, count, depth;
};

constexpr int64_t MOST_FLOAT_COLUMNS = 8;

// One head of a layer that remembers, over the tokens of one sequence: a matrix that each token lets decay, and to which it adds the product of its
// key and a change. Strides are elements from one token to the next.
struct StateHead {
    // Whether a token changes what its key leads to in the state so that it leads to the token's value, as far as its rate says (a gated
    // delta rule); else the change is its rate times its value (Mamba 2).
    bool          corrects;
    int64_t       depth;   // elements of keys and queries; divisible by the rows of AttentionKernel
    int64_t       width;   // and of values; divisible by `state_values` of AttentionKernel
    int64_t       tokens;
    const float * queries;
    const float * keys;
    const float * values;
    int64_t       query_stride, key_stride, value_stride;
    // If it corrects, e to the power of `decays` is left of the state. Else the rate is the logarithm of 1 plus e to the power of `rates`, and
    // e to the power of `decay` times the rate is left.
    const float * decays;
    const float * rates;
    int64_t       number_stride;
    float         decay;
    const float * from;  // the state before, a row for each value
    float *       to;    // and after; it may be the same place
    // That behind each of so many of the last tokens, at least 1, is kept: those `kept_stride` elements apart, that behind the last one first. One
    // of them may be where the state before is.
    int64_t       kept, kept_stride;
    float *       out;
    int64_t       out_stride;
    float         scale;  // of what queries find
};

constexpr int64_t WIDEST_STATE = 256;  // elements of a key, or of a value

// Channels of a convolution: `row` elements from one to the next, and `taps` weights each.
struct Channels {
    const float * from;
    const float * weights;
    int64_t       row, taps;
    int64_t       count;  // divisible by the rows of AttentionKernel
};

// One set of instructions' products.
struct Kernels {
    const char *   name;
    int            rows;  // of a group
    int            count;
    const Kernel * kernels;
};

// One set of instructions' attention, and what else it does to a layer's floats.
struct AttentionKernel {
    int rows;     // what divides numbers of elements and cells
    int queries;    // that attend() computes at a time; it unpacks the cells once for more
    int at_once;    // rows that it takes at most
    void (*attend)(const AttentionCells & cells, const AttentionRow * rows, int64_t count);
    // Adds a partial result of `values` values to another one.
    void (*merge)(float * to, const float * other, int64_t values);
    // Writes the `values` values that a row has come to.
    void (*finish)(const float * partial, int64_t values, float * out);
    // Divides `count` floats by the root of the mean of their squares, to which epsilon is added.
    void (*normalize)(const float * from, int64_t count, float epsilon, float * to);
    // Turns the pairs of `count` floats: see rotation.h.
    void (*rotate)(const float * from, const float * turns, int64_t count, bool halves, float * to);
    // Multiplies rows by `n` columns, `columns` at most: row r times column c goes to `out[c][r]`.
    int columns;
    void (*multiply)(const FloatRows & rows, const float * const * columns, int64_t n, float * const * out);
    // Computes values `begin` to `end` of a head's tokens; both are divisible by `state_values`.
    int64_t state_values;
    void (*remember)(const StateHead & head, int64_t begin, int64_t end);
    // Puts each channel's elements of all tokens side by side, and the other way round what a convolution makes of them: see convolution.h.
    void (*gather_channels)(const float * from, int64_t stride, int64_t tokens, int64_t channels, float * to, int64_t row);
    void (*convolve)(const Channels & channels, int64_t tokens, float * out, int64_t stride);
};

// Of one processor family or the other.
extern const Kernels KERNELS_I8MM;
extern const Kernels KERNELS_DOTPROD;
extern const Kernels KERNELS_AVX2;
extern const Kernels KERNELS_AVX_VNNI;
extern const Kernels KERNELS_AVX512;
extern const Kernels KERNELS_AMX;

extern const AttentionKernel ATTENTION_NEON;
extern const AttentionKernel ATTENTION_AVX2;
extern const AttentionKernel ATTENTION_AVX512;
extern const AttentionKernel ATTENTION_AVX512_BF16;
extern const AttentionKernel ATTENTION_AMX;

// What defines them is compiled once per set, which LLGTRT_SET names: LLGTRT_OF(KERNELS_) is KERNELS_AVX2.
#define LLGTRT_JOIN(a, b) a##b
#define LLGTRT_NAMED(a, b) LLGTRT_JOIN(a, b)
#define LLGTRT_OF(name) LLGTRT_NAMED(name, LLGTRT_SET)

}  // namespace llgtrt::repack
