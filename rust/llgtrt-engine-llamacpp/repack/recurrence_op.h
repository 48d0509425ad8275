// What layers that remember in a state do, as ggml's CPU backend asks for it: convolutions and states that tokens change, with the instructions
// of one set, and the copies of states around them.
#pragma once

#include "kernels.h"
#include "traits.h"

namespace llgtrt::repack {

class Recurrence : public ggml::cpu::tensor_traits {
  public:
    explicit Recurrence(const AttentionKernel & kernel) : kernel_(kernel) {}

    // To be called where any operation is planned, before what follows. Nothing changes where one is computed that was planned.
    void see(const ggml_tensor * op) const;

    // Whether an operation is one of these, on floats and of a shape that is known here. What is left out stays with ggml.
    bool takes(const ggml_tensor * op) const;

    bool work_size(int threads, const ggml_tensor * op, size_t & size) override;
    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override;

  private:
    void remember(ggml_compute_params & params, ggml_tensor & op) const;
    void extend(ggml_compute_params & params, ggml_tensor & op) const;
    void convolve(ggml_compute_params & params, ggml_tensor & op) const;
    void keep_end(ggml_compute_params & params, ggml_tensor & copy) const;

    const AttentionKernel & kernel_;
};

}  // namespace llgtrt::repack
