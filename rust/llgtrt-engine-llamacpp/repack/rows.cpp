// Operations on each token by itself, without the tokens that are not needed: what these hold afterwards may be anything, no
// numbers too, but it does not reach the cache.

#include "rows_op.h"

#include "binary-ops.h"
#include "ggml-backend.h"
#include "gate.h"
#include "ops.h"
#include "pass.h"
#include "tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

namespace llgtrt::repack {
namespace {

// What has as many rows as there are tokens: the cache has more.
const ggml_tensor * shape(const ggml_tensor * op) {
    return op->op == GGML_OP_SET_ROWS ? op->src[0] : op;
}

// What of a tensor lies within `range` along `dimension`, where it has `all` elements; all of what is the same for all of them.
ggml_tensor part(const ggml_tensor & tensor, int dimension, int64_t all, Range range) {
    ggml_tensor result = tensor;
    if (tensor.ne[dimension] == all) {
        result.data          = static_cast<char *>(tensor.data) + range.begin * tensor.nb[dimension];
        result.ne[dimension] = range.end - range.begin;
    }
    return result;
}

// Whether threads divide an operation by elements and not by tokens: as they did the products before it, so that each finds in its cache
// what it wrote itself.
bool is_divided_by_elements(const ggml_tensor * op) {
    return op->op == GGML_OP_GLU && op->src[1] != nullptr;
}

// The operation for some of `all` tokens and this thread's share of the elements, by ggml and this thread alone.
void compute(const ggml_compute_params & params, const ggml_tensor & op, int64_t all, Range tokens) {
    const bool stores = op.op == GGML_OP_SET_ROWS;
    const auto of     = [&](const ggml_tensor & tensor, int dimension) {
        const auto some = part(tensor, dimension, all, tokens);
        return is_divided_by_elements(&op) ? part(some, 0, op.ne[0], share_of_lines(op.ne[0], params)) : some;
    };
    ggml_tensor result = stores ? op : of(op, 1);
    ggml_tensor operands[2];
    for (int i = 0; i < 2 && op.src[i] != nullptr; i++) {
        operands[i]   = of(*op.src[i], stores && i == 1 ? 0 : 1);  // places in the cache are a list
        result.src[i] = &operands[i];
    }
    ggml_compute_params alone = params;
    alone.ith = 0;
    alone.nth = 1;
    switch (op.op) {
        case GGML_OP_ADD:
            return ggml_compute_forward_add(&alone, &result);
        case GGML_OP_MUL:
            return ggml_compute_forward_mul(&alone, &result);
        case GGML_OP_GLU:
            return ggml_compute_forward_glu(&alone, &result);
        default:
            return ggml_compute_forward_set_rows(&alone, &result);
    }
}

// A rotation as ggml describes it.
struct Rotation {
    explicit Rotation(const ggml_tensor & op) : count(op.op_params[1]), mode(op.op_params[2]), first(op.op_params[15]) {}

    int32_t count;  // of the elements of a head that are turned
    int32_t mode;   // which of them are a pair
    int32_t first;  // of them

    bool halves() const { return mode == GGML_ROPE_TYPE_NEOX; }
};

// What some tokens are rotated by, a head for each of them, by this thread: ggml, which knows all ways to choose angles, rotates a head
// whose pairs are (1, 0).
void find_turns(const ggml_compute_params & params, const ggml_tensor & op, Range tokens, float * to) {
    const Rotation rotation(op);
    float          ones[WIDEST_HEAD] = {};
    for (int32_t i = 0; i < rotation.count / 2; i++) {
        ones[rotation.halves() ? i : 2 * i] = 1;
    }
    ggml_compute_params alone = params;
    alone.ith                 = 0;
    alone.nth                 = 1;
    // This thread's room for a token's sines.
    alone.wdata = static_cast<float *>(params.wdata) + (op.ne[0] + CACHE_LINE_SIZE_F32) * params.ith;

    ggml_tensor head = *op.src[0], positions = part(*op.src[1], 0, op.ne[2], tokens), result = op;
    head.data  = ones;
    head.ne[1] = result.ne[1] = 1;
    head.ne[2] = result.ne[2] = tokens.end - tokens.begin;
    std::fill(head.nb + 1, head.nb + GGML_MAX_DIMS, 0);  // the same for all tokens
    std::fill(result.nb + 1, result.nb + GGML_MAX_DIMS, op.ne[0] * sizeof(float));
    result.data   = to;
    result.src[0] = &head;
    result.src[1] = &positions;
    ggml_compute_forward_rope(&alone, &result);
}

// What the tokens of a pass are rotated by, for all heads of all layers that are rotated in the same way.
class Turns {
  public:
    static size_t bytes(const ggml_tensor & op) { return sizeof(Turns) + op.ne[0] * op.ne[2] * sizeof(float); }

    // Whether these are those of a rotation.
    bool are_of(const ggml_tensor & op) const { return std::memcmp(params_, op.op_params, sizeof params_) == 0; }

    void become_of(const ggml_tensor & op) { std::memcpy(params_, op.op_params, sizeof params_); }

    float * at(const ggml_tensor & op, int64_t token) { return reinterpret_cast<float *>(this + 1) + token * op.ne[0]; }

  private:
    int32_t params_[GGML_MAX_OP_PARAMS / sizeof(int32_t)];
};

// Calls `some` with each range of `tokens` that are needed and follow each other: with all of them if `needed` is null, and else with
// those at these places of its list.
template <class Some> void for_ranges(const Needed * needed, Range places, const Some & some) {
    if (needed == nullptr) {
        some(places);
        return;
    }
    for (int64_t i = places.begin, next; i < places.end; i = next) {
        for (next = i + 1; next < places.end && needed->tokens[next] == needed->tokens[next - 1] + 1;) {
            next++;
        }
        some(Range{needed->tokens[i], needed->tokens[i] + next - i});
    }
}

bool is_matrix(const ggml_tensor * tensor) {
    return tensor->ne[2] == 1 && tensor->ne[3] == 1;
}

// A product of each row of a token with one number, as of what experts make of it with their weights: ggml takes one element after the
// other there.
bool is_weighted(const ggml_tensor * op) {
    const ggml_tensor *from = op->src[0], *by = op->src[1];
    return is_plain(from) && is_plain(op) && is_plain(by) && by->ne[0] == 1 && by->ne[1] == op->ne[1] && by->ne[2] == op->ne[2] &&
           op->ne[3] == 1;
}

void weigh(const ggml_compute_params & params, const ggml_tensor & op, const Pass * pass) {
    const int      tokens  = op.ne[2] == 1 ? 1 : 2;  // their dimension
    const int64_t  numbers = tokens == 2 ? op.ne[1] : 1;
    // Of Gemma 3n the second dimension is that of tokens, the third the vectors of each. As many of both may be either.
    const Needed * needed  = op.ne[1] != op.ne[2] ? needed_of(pass, op, tokens) : nullptr;
    const auto [begin, end] = share(numbers * (needed != nullptr ? needed->count : op.ne[tokens]), params);
    for (int64_t i = begin; i < end; i++) {
        const int64_t       token = needed != nullptr ? needed->tokens[i / numbers] : i / numbers, at = token * numbers + i % numbers;
        const float         by    = *row(op.src[1], at);
        const float * const from  = row(op.src[0], at);
        std::transform(from, from + op.ne[0], row(&op, at), [by](float value) { return value * by; });
    }
}

// Products of rows of floats that fill no vector.
void multiply_short(const FloatRows & rows, const float * const * columns, int64_t n, float * const * out) {
    for (int64_t c = 0; c < n; c++) {
        for (int64_t r = 0; r < rows.count; r++) {
            const auto * const row = reinterpret_cast<const float *>(rows.data + r * rows.stride);
            out[c][r]              = std::inner_product(row, row + rows.depth, columns[c], 0.0F);
        }
    }
}

// The places of each token's scores in their order; where it is not needed, any. What is no number comes last where the highest come first:
// std::sort() leaves its bounds where an order is none.
void sort(const ggml_compute_params & params, const ggml_tensor & op, const Needed * needed) {
    const bool falls        = op.op_params[0] == GGML_SORT_ORDER_DESC;
    const auto [begin, end] = share(op.ne[1], params);
    for (int64_t token = begin; token < end; token++) {
        auto * const places = reinterpret_cast<int32_t *>(row(&op, token));
        std::iota(places, places + op.ne[0], 0);
        if (needed == nullptr || needed->is_needed(token)) {
            const float * const scores = row(op.src[0], token);
            const auto          key    = [&](int32_t place) { return std::isnan(scores[place]) ? -INFINITY : scores[place]; };
            std::sort(places, places + op.ne[0], [&](int32_t a, int32_t b) { return falls ? key(a) > key(b) : key(a) < key(b); });
        }
    }
}

}  // namespace

bool Rows::takes(const ggml_tensor * op) const {
    const ggml_tensor *from = op->src[0], *other = op->src[1];
    switch (op->op) {
        case GGML_OP_RMS_NORM:
            return is_plain(from) && ggml_is_contiguous(op);
        case GGML_OP_MUL:
            if (is_weighted(op)) {
                return true;
            }
            [[fallthrough]];
        case GGML_OP_ADD:
        case GGML_OP_GLU:
            // With another operand of as many tokens, or of one row for all: others are repeated.
            return is_plain(from) && is_plain(op) && is_matrix(op) &&
                   (other == nullptr || (is_plain(other) && (other->ne[1] == op->ne[1] || other->ne[1] == 1)));
        case GGML_OP_ROPE: {
            // With one position for each token.
            const Rotation rotation(*op);
            return is_plain(from) && is_plain(op) && op->ne[3] == 1 && op->ne[0] <= WIDEST_HEAD && other->ne[0] == op->ne[2] &&
                   rotation.first == 0 && (rotation.halves() || rotation.mode == GGML_ROPE_TYPE_NORMAL);
        }
        case GGML_OP_MUL_MAT:
            return is_product(op);
        case GGML_OP_ARGSORT:
            return is_plain(from) && is_matrix(from);
        case GGML_OP_SET_ROWS:
            // Of whole tokens: where values are turned each element has a place of its own.
            return is_plain(from) && is_matrix(from) && from->ne[0] > 1 && other->ne[0] == from->ne[1];
        default:
            return false;
    }
}

bool Rows::work_size(int, const ggml_tensor * op, size_t &) {
    Passes::forget();
    Gates::plan_gate(op);
    if (op->op == GGML_OP_RMS_NORM) {
        // ggml computes a norm together with the product behind it, and asks nobody else for them, unless the norm is a result
        // that somebody wants. One thread plans a graph, before all compute it.
        ggml_set_output(const_cast<ggml_tensor *>(op));
    }
    return false;
}

bool Rows::compute_forward(ggml_compute_params * params, ggml_tensor * op) {
    if (op->op == GGML_OP_ROPE) {
        rotate(*params, *op);
        return true;
    }
    if (op->op == GGML_OP_MUL_MAT) {
        multiply(*params, *op);
        return true;
    }
    const bool     norm   = op->op == GGML_OP_RMS_NORM;
    const int64_t  all    = norm ? ggml_nrows(op) : shape(op)->ne[1];
    const Needed * needed = needed_of(passes.of(params->threadpool), *shape(op), 1);
    const int64_t  count  = needed == nullptr ? all : needed->count;
    if (norm) {
        float epsilon;
        std::memcpy(&epsilon, op->op_params, sizeof epsilon);
        for_ranges(needed, share(count, *params), [&](Range tokens) {
            for (int64_t i = tokens.begin; i < tokens.end; i++) {
                kernel_.normalize(row(op->src[0], i), op->ne[0], epsilon, row(op, i));
            }
        });
        return true;
    }
    if (op->op == GGML_OP_MUL && is_weighted(op)) {
        weigh(*params, *op, passes.of(params->threadpool));
        return true;
    }
    if (op->op == GGML_OP_ARGSORT) {
        sort(*params, *op, needed);
        return true;
    }
    const bool by_elements = is_divided_by_elements(op);
    if (needed == nullptr && !by_elements) {
        return false;
    }
    for_ranges(needed, by_elements ? Range{0, count} : share(count, *params), [&](Range tokens) {
        compute(*params, *op, all, tokens);
    });
    return true;
}

// Weights of the model that nobody rearranges, such as those that choose experts: what llama.cpp turns numbers by before it stores them in
// few bits is none of the model's.
bool Rows::is_product(const ggml_tensor * op) const {
    const ggml_tensor *weights = op->src[0], *from = op->src[1];
    const bool         are_of_model = weights->op == GGML_OP_NONE && (weights->flags & GGML_TENSOR_FLAG_INPUT) == 0;
    const bool         are_plain    = weights->type == GGML_TYPE_F32 || weights->type == GGML_TYPE_F16 || weights->type == GGML_TYPE_BF16;
    const bool         are_here     = weights->buffer == nullptr || ggml_backend_buft_is_host(weights->buffer->buft);
    return are_of_model && are_plain && are_here && weights->nb[0] == ggml_type_size(weights->type) &&
           (weights->ne[0] % kernel_.rows == 0 || is_short(weights)) && is_plain(from) && weights->ne[2] == from->ne[2] &&
           weights->ne[3] == 1 && from->ne[3] == 1;
}

bool Rows::is_short(const ggml_tensor * weights) const {
    return weights->type == GGML_TYPE_F32 && weights->ne[0] < kernel_.rows;
}

// Some rows of a matrix at a time, for all tokens: they stay in the second level cache. There may be several matrices, each for vectors of its own.
void Rows::multiply(ggml_compute_params & params, ggml_tensor & op) const {
    constexpr int64_t  CACHED = 128 << 10, LEAST = 8, PARTS = 4;
    Pass * const       pass    = passes.of(params.threadpool);
    const Needed *     needed  = needed_of(pass, op, 1);
    const ggml_tensor *weights = op.src[0], *from = op.src[1];
    const int64_t      count   = needed == nullptr ? op.ne[1] : needed->count;
    const int64_t      all     = weights->ne[1];
    const int64_t      most    = std::min<int64_t>(CACHED / weights->nb[1], all / (PARTS * params.nth));
    const int64_t      at_once = std::max(most / LEAST * LEAST, LEAST);
    const int64_t      parts   = (all + at_once - 1) / at_once;
    take_shares(pass, params, parts * weights->ne[2], [&](int64_t turn) {
        const int64_t   begin = turn % parts * at_once, matrix = turn / parts;
        const FloatRows rows  = {
            weights->type, at<const char>(weights, begin, matrix), static_cast<int64_t>(weights->nb[1]),
            std::min(at_once, all - begin), weights->ne[0]};
        for (int64_t i = 0; i < count; i += kernel_.columns) {
            const int64_t n = std::min<int64_t>(kernel_.columns, count - i);
            const float * columns[MOST_FLOAT_COLUMNS];
            float *       out[MOST_FLOAT_COLUMNS];
            for (int64_t c = 0; c < n; c++) {
                const int64_t token = needed == nullptr ? i + c : needed->tokens[i + c];
                columns[c]          = at(from, token, matrix);
                out[c]              = at(&op, token, matrix) + begin;
            }
            if (is_short(weights)) {
                multiply_short(rows, columns, n, out);
            } else {
                kernel_.multiply(rows, columns, n, out);
            }
        }
    });
}

void Rows::rotate(ggml_compute_params & params, ggml_tensor & op) const {
    Pass * const   pass   = passes.of(params.threadpool);
    const Needed * needed = needed_of(pass, op, 2);
    const int64_t  count  = needed == nullptr ? op.ne[2] : needed->count;
    Turns *        turns  = nullptr;
    if (pass != nullptr && pass->turns.has_room(params, Turns::bytes(op))) {
        Shared &     shared    = pass->turns;
        const auto * positions = op.src[1];
        const auto * factors   = op.src[2];
        turns                  = static_cast<Turns *>(shared.memory());
        if (!shared.is(positions, factors, op.ne[0]) || !turns->are_of(op)) {
            for_ranges(needed, share(count, params), [&](Range tokens) {
                find_turns(params, op, tokens, turns->at(op, tokens.begin));
            });
            ggml_barrier(params.threadpool);
            if (params.ith == 0) {
                turns->become_of(op);
                shared.become(positions, factors, op.ne[0]);
            }
        }
    }

    const Rotation rotation(op);
    const int64_t  heads = op.ne[1];
    // Where nothing is shared: those of one token.
    float   found[WIDEST_HEAD];
    int64_t found_token     = -1;
    const auto [begin, end] = share(heads * count, params);
    for (int64_t i = begin; i < end; i++) {
        const int64_t head = i % heads, token = needed == nullptr ? i / heads : needed->tokens[i / heads];
        if (turns == nullptr && token != found_token) {
            find_turns(params, op, {token, token + 1}, found);
            found_token = token;
        }
        const float * from = at(op.src[0], head, token);
        float * const to   = at(&op, head, token);
        kernel_.rotate(from, turns != nullptr ? turns->at(op, token) : found, rotation.count, rotation.halves(), to);
        std::copy(from + rotation.count, from + op.ne[0], to + rotation.count);
    }
}

}  // namespace llgtrt::repack
