// What a layer does to each token by itself, as ggml's CPU backend asks for it: norms, rotations and products of weights that are floats, with the
// instructions of one set, the choice of experts, and sums and gates, by ggml.
#pragma once

#include "kernels.h"
#include "traits.h"

namespace llgtrt::repack {

class Rows : public ggml::cpu::tensor_traits {
  public:
    explicit Rows(const AttentionKernel & kernel) : kernel_(kernel) {}

    // Whether an operation is one of these, on floats and of a shape that is known here. What is left out stays with ggml.
    bool takes(const ggml_tensor * op) const;

    bool work_size(int threads, const ggml_tensor * op, size_t & size) override;
    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override;

  private:
    bool is_product(const ggml_tensor * op) const;
    // Whether rows of weights do not fill a vector.
    bool is_short(const ggml_tensor * weights) const;
    void multiply(ggml_compute_params & params, ggml_tensor & op) const;
    void rotate(ggml_compute_params & params, ggml_tensor & op) const;

    const AttentionKernel & kernel_;
};

}  // namespace llgtrt::repack
