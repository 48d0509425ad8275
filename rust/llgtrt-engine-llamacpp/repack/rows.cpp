// Operations on each token by itself, without the tokens that are not needed: what these hold afterwards may be anything, no
// numbers too, but it does not reach the cache.

#include "rows_op.h"

#include "binary-ops.h"
#include "ops.h"
#include "pass.h"
#include "tensors.h"

#include <cstring>

namespace llgtrt::repack {
namespace {

// Threads have whole tokens of a rotation if there are so many for each; else parts of them, which needs the same sines.
constexpr int64_t TOKENS = 4;

// The dimension of an operation's result that is the tokens; of a rotation it is behind the heads.
int token_dimension(const ggml_tensor * op) {
    return op->op == GGML_OP_ROPE ? 2 : 1;
}

// The same of an operand: positions and places in the cache are a list.
int token_dimension(const ggml_tensor * op, int operand) {
    return operand == 1 && (op->op == GGML_OP_ROPE || op->op == GGML_OP_SET_ROWS) ? 0 : token_dimension(op);
}

// What has as many rows as there are tokens: the cache has more.
const ggml_tensor * shape(const ggml_tensor * op) {
    return op->op == GGML_OP_SET_ROWS ? op->src[0] : op;
}

// Tokens `first` to `first + count` of a tensor, along `dimension`; all of what is the same for all tokens.
ggml_tensor part(const ggml_tensor & tensor, int dimension, int64_t tokens, int64_t first, int64_t count) {
    ggml_tensor result = tensor;
    if (tensor.ne[dimension] == tokens) {
        result.data          = static_cast<char *>(tensor.data) + first * tensor.nb[dimension];
        result.ne[dimension] = count;
    }
    return result;
}

// The operation for some of `tokens` tokens, by ggml and this thread alone.
void compute(const ggml_compute_params & params, const ggml_tensor & op, int64_t tokens, int64_t first, int64_t count) {
    ggml_compute_params alone  = params;
    ggml_tensor         result = op.op == GGML_OP_SET_ROWS ? op : part(op, token_dimension(&op), tokens, first, count);
    ggml_tensor         operands[2];
    alone.ith = 0;
    alone.nth = 1;
    for (int i = 0; i < 2 && op.src[i] != nullptr; i++) {
        operands[i]   = part(*op.src[i], token_dimension(&op, i), tokens, first, count);
        result.src[i] = &operands[i];
    }
    switch (op.op) {
        case GGML_OP_ADD:
            return ggml_compute_forward_add(&alone, &result);
        case GGML_OP_MUL:
            return ggml_compute_forward_mul(&alone, &result);
        case GGML_OP_GLU:
            return ggml_compute_forward_glu(&alone, &result);
        case GGML_OP_SET_ROWS:
            return ggml_compute_forward_set_rows(&alone, &result);
        default:
            // This thread's room for a token's sines.
            alone.wdata = static_cast<float *>(params.wdata) + (op.ne[0] + CACHE_LINE_SIZE_F32) * params.ith;
            return ggml_compute_forward_rope(&alone, &result);
    }
}

bool is_plain(const ggml_tensor * tensor) {
    return tensor->type == GGML_TYPE_F32 && tensor->nb[0] == sizeof(float);
}

bool is_matrix(const ggml_tensor * tensor) {
    return tensor->ne[2] == 1 && tensor->ne[3] == 1;
}

}  // namespace

bool Rows::takes(const ggml_tensor * op) const {
    const ggml_tensor *from = op->src[0], *other = op->src[1];
    switch (op->op) {
        case GGML_OP_RMS_NORM:
            return is_plain(from) && ggml_is_contiguous(op);
        case GGML_OP_ADD:
        case GGML_OP_MUL:
        case GGML_OP_GLU:
            // With another operand of as many tokens, or of one row for all: others are repeated.
            return is_plain(from) && is_plain(op) && is_matrix(op) &&
                   (other == nullptr || (is_plain(other) && (other->ne[1] == op->ne[1] || other->ne[1] == 1)));
        case GGML_OP_ROPE:
            // With one position for each token.
            return is_plain(from) && op->ne[3] == 1 && other->ne[0] == op->ne[2];
        case GGML_OP_SET_ROWS:
            // Of whole tokens: where values are turned each element has a place of its own.
            return is_plain(from) && is_matrix(from) && from->ne[0] > 1 && other->ne[0] == from->ne[1];
        default:
            return false;
    }
}

bool Rows::work_size(int, const ggml_tensor * op, size_t &) {
    if (op->op == GGML_OP_RMS_NORM) {
        // ggml computes a norm together with the product behind it, and asks nobody else for them, unless the norm is a result
        // that somebody wants. One thread plans a graph, before all compute it.
        ggml_set_output(const_cast<ggml_tensor *>(op));
    }
    return false;
}

bool Rows::compute_forward(ggml_compute_params * params, ggml_tensor * op) {
    const bool     norm      = op->op == GGML_OP_RMS_NORM;
    const int      dimension = token_dimension(op);
    const int64_t  all       = norm ? ggml_nrows(op) : shape(op)->ne[dimension];
    const Needed * needed    = needed_of(passes.of(params->threadpool));
    if (needed != nullptr && !needed->has_tokens_of(*shape(op), dimension)) {
        needed = nullptr;
    }
    if (needed == nullptr && !norm && (op->op != GGML_OP_ROPE || all < TOKENS * params->nth)) {
        return false;
    }

    const auto some = [&](int64_t first, int64_t count) {
        if (!norm) {
            compute(*params, *op, all, first, count);
            return;
        }
        float epsilon;
        std::memcpy(&epsilon, op->op_params, sizeof epsilon);
        for (int64_t i = first; i < first + count; i++) {
            kernel_.normalize(row(op->src[0], i), op->ne[0], epsilon, row(op, i));
        }
    };
    const auto share = [&](int64_t count, int thread) { return count * thread / params->nth; };
    if (needed == nullptr) {
        const int64_t first = share(all, params->ith);
        some(first, share(all, params->ith + 1) - first);
        return true;
    }
    // Tokens that follow each other at once.
    const int64_t end = share(needed->count, params->ith + 1);
    for (int64_t i = share(needed->count, params->ith), next; i < end; i = next) {
        for (next = i + 1; next < end && needed->tokens[next] == needed->tokens[next - 1] + 1;) {
            next++;
        }
        some(needed->tokens[i], next - i);
    }
    return true;
}

}  // namespace llgtrt::repack
