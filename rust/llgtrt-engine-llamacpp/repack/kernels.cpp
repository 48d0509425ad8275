// The kernels for the instructions that this file is compiled for. Nothing here may be used by other files but that table:
// they run on machines without these instructions.

#include "kernels.h"

#include "kernel.h"

#if defined(__AMX_INT8__)
#    include "amx.h"
#elif defined(__AVX2__) && !defined(__AVXVNNI__) && !defined(__AVX512VNNI__)
#    define LLGTRT_AVX2_ALONE
#    include "avx2.h"
#endif

namespace llgtrt::repack {
namespace {

#if !defined(LLGTRT_AVX2_ALONE)
constexpr int GROUP_ROWS   = Isa::ROWS;
constexpr int TILE_COLUMNS = Isa::COLUMNS;

template <class Format> void pack_group(const typename Format::Block * rows, int64_t stride, uint8_t * to) {
    pack<Format, Isa>(rows, stride, to);
}

template <class Format> constexpr auto multiply_groups = multiply<Format, Isa>;
#endif

template <class Format> void pack_rows(const void * rows, int64_t stride, uint8_t * to) {
    pack_group<Format>(static_cast<const typename Format::Block *>(rows), stride, to);
}

template <class Format> constexpr Kernel kernel(ggml_type type) {
    static_assert(GROUP_ROWS <= MOST_ROWS && GROUP_ROWS * sizeof(typename Format::Block) <= MOST_PACKED);
    Kernel kernel = {
        type,
        ELEMENTS<Format>,
        static_cast<int64_t>(GROUP_ROWS * sizeof(typename Format::Block)),
        Tile<Format>::COLUMN,
        TILE_COLUMNS,
        pack_rows<Format>,
        quantize<Format, Isa>,
        multiply_groups<Format>,
    };
#if defined(__AMX_INT8__)
    static_assert(AMX_COLUMNS <= WIDEST_TILE, "weights.cpp has room for the columns of a tile");
    kernel.columns  = AMX_COLUMNS;
    kernel.multiply = multiply_amx<Format>;
#endif
    return kernel;
}

#if defined(__AMX_INT8__)
constexpr const char * NAME = "AMX";
#else
constexpr const char * NAME = Isa::NAME;
#endif

constexpr Kernel ALL[] = {
    kernel<Q4_0>(GGML_TYPE_Q4_0),
    kernel<Q4_1>(GGML_TYPE_Q4_1),
    kernel<Q5_0>(GGML_TYPE_Q5_0),
    kernel<Q5_1>(GGML_TYPE_Q5_1),
    kernel<Q2_K>(GGML_TYPE_Q2_K),
    kernel<Q3_K>(GGML_TYPE_Q3_K),
    kernel<Q4_K>(GGML_TYPE_Q4_K),
    kernel<Q5_K>(GGML_TYPE_Q5_K),
    kernel<Q6_K>(GGML_TYPE_Q6_K),
    kernel<Q8_0>(GGML_TYPE_Q8_0),
    kernel<IQ4_NL>(GGML_TYPE_IQ4_NL),
    kernel<IQ4_XS>(GGML_TYPE_IQ4_XS),
    kernel<MXFP4>(GGML_TYPE_MXFP4),
};

}  // namespace

const Kernels LLGTRT_OF(KERNELS_) = {NAME, GROUP_ROWS, sizeof ALL / sizeof *ALL, ALL};

}  // namespace llgtrt::repack
