// A gate and what goes through it: two products of the same activations of which nothing else is made. They are left to the operation that
// makes one of both, which has a few of their rows computed at a time: as a whole they are never in memory.
#pragma once

#include "ggml-impl.h"
#include "ggml.h"

namespace llgtrt::repack {

// Whether these are weights of ours, packed.
bool is_packed(const ggml_tensor * weights);

class Gates {
  public:
    // The operation that a product of ours is left to; null: none. ggml has no use for this pointer of what its CPU backend computes.
    static const ggml_tensor * gate_of(const ggml_tensor * product) { return static_cast<const ggml_tensor *>(product->extra); }

    // Whether both products are left to it.
    static bool is_gate(const ggml_tensor * op) {
        return is_pair(op) && gate_of(op->src[0]) == op && gate_of(op->src[1]) == op;
    }

    // To be called where a product of ours is planned.
    static void plan_product(const ggml_tensor * product) { const_cast<ggml_tensor *>(product)->extra = nullptr; }

    // To be called where any operation is planned, before what follows. Nothing changes where one is computed that was planned.
    static void see(const ggml_tensor * op) {
        if (op != seen_[0]) {
            seen_[2] = seen_[1];
            seen_[1] = seen_[0];
            seen_[0] = op;
        }
        for (ggml_tensor * from : op->src) {
            const ggml_tensor * const gate = from != nullptr && is_product(from) ? gate_of(from) : nullptr;
            if (gate != nullptr && gate != op) {  // there is another reader
                gate->src[0]->extra = gate->src[1]->extra = nullptr;
            }
        }
    }

    // To be called where an operation is planned that may be a gate. Its products must be what comes before it: later the memory of their
    // activations may hold something else.
    static void plan_gate(const ggml_tensor * op) {
        const bool follows = (seen_[1] == op->src[0] && seen_[2] == op->src[1]) ||
                             (seen_[1] == op->src[1] && seen_[2] == op->src[0]);
        if (is_pair(op) && follows) {
            op->src[0]->extra = op->src[1]->extra = const_cast<ggml_tensor *>(op);
        }
    }

  private:
    static bool is_product(const ggml_tensor * op) { return op->op == GGML_OP_MUL_MAT && ggml_is_matrix(op->src[0]) && is_packed(op->src[0]); }

    // Whether it is of a kind that is computed here, of two products that can be computed together.
    static bool is_pair(const ggml_tensor * op) {
        const ggml_tensor *one = op->src[0], *other = op->src[1];
        return op->op == GGML_OP_GLU && ggml_get_glu_op(op) == GGML_GLU_OP_SWIGLU && other != nullptr && one != other &&
               is_product(one) && is_product(other) && one->src[1] == other->src[1] &&
               one->src[0]->extra == other->src[0]->extra && ggml_are_same_shape(one->src[0], other->src[0]) &&
               ((one->flags | other->flags) & GGML_TENSOR_FLAG_OUTPUT) == 0;
    }

    static inline thread_local const ggml_tensor * seen_[3] = {};  // by this thread, the latest first
};

}  // namespace llgtrt::repack
