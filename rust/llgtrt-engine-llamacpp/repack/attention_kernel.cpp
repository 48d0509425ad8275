// Attention with the instructions that this file is compiled for. As kernels.cpp: nothing here may be used by other files
// but the table.

#include "attention.h"
#include "kernels.h"

namespace llgtrt::repack {

const AttentionKernel LLGTRT_OF(ATTENTION_) = {Isa::ROWS, Isa::QUERIES, attend<Isa>};

}  // namespace llgtrt::repack
