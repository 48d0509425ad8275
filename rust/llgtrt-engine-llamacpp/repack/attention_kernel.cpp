// Attention, norms, rotations, products of floats and layers that remember with the instructions that this file is compiled for. As kernels.cpp: nothing here may be used by
// other files but the table.

#include "attention.h"
#include "convolution.h"
#include "float_products.h"
#include "kernels.h"
#include "norm.h"
#include "rotation.h"
#include "state.h"

namespace llgtrt::repack {

const AttentionKernel LLGTRT_OF(ATTENTION_) = {
    Isa::ROWS, QUERIES<Isa>, ROWS_AT_ONCE, attend<Isa>, merge<Isa>, finish<Isa>, normalize<Isa>, rotate<Isa>,
    FLOAT_COLUMNS<Isa>, multiply_floats<Isa>, STATE_VALUES<Isa>, remember<Isa>, gather_channels<Isa>, convolve<Isa>};

static_assert(ROWS_AT_ONCE <= MOST_QUERIES);
static_assert(FLOAT_COLUMNS<Isa> <= MOST_FLOAT_COLUMNS);

}  // namespace llgtrt::repack
