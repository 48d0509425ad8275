// The attention of one set of instructions, as ggml's CPU backend asks for it.
#pragma once

#include "kernels.h"
#include "traits.h"

namespace llgtrt::repack {

class Attention : public ggml::cpu::tensor_traits {
  public:
    explicit Attention(const AttentionKernel & kernel) : kernel_(kernel) {}

    // Whether an operation is attention of a kind that the kernel knows: queries in floats, a cache of halves or of
    // Q8_0, no slopes. What is left out stays with ggml.
    bool takes(const ggml_tensor * op) const;

    bool work_size(int threads, const ggml_tensor * op, size_t & size) override;
    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override;

  private:
    const AttentionKernel & kernel_;
};

}  // namespace llgtrt::repack
