// Rows of ggml's tensors.
#pragma once

#include <cstdint>

#include "ggml.h"

namespace llgtrt::repack {

// Row `index` of a tensor of floats with up to three outer dimensions.
inline float * row(const ggml_tensor * tensor, int64_t index) {
    char * const data = static_cast<char *>(tensor->data);
    if (index < tensor->ne[1]) {  // of a matrix: divisions take as long as a row does
        return reinterpret_cast<float *>(data + index * tensor->nb[1]);
    }
    const int64_t i1 = index % tensor->ne[1];
    const int64_t i2 = index / tensor->ne[1] % tensor->ne[2];
    const int64_t i3 = index / tensor->ne[1] / tensor->ne[2];
    return reinterpret_cast<float *>(data + i1 * tensor->nb[1] + i2 * tensor->nb[2] + i3 * tensor->nb[3]);
}

}  // namespace llgtrt::repack
