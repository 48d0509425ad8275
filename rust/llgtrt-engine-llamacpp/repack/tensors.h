// Parts of ggml's tensors.
#pragma once

#include <cstdint>

#include "ggml.h"

namespace llgtrt::repack {

inline bool is_plain(const ggml_tensor * tensor) {
    return tensor->type == GGML_TYPE_F32 && tensor->nb[0] == sizeof(float);
}

// Element (0, i1, i2, i3) of a tensor.
template <class T = float> T * at(const ggml_tensor * tensor, int64_t i1, int64_t i2, int64_t i3 = 0) {
    return reinterpret_cast<T *>(
        static_cast<char *>(tensor->data) + i1 * tensor->nb[1] + i2 * tensor->nb[2] + i3 * tensor->nb[3]);
}

// Row `index` of a tensor of floats with up to three outer dimensions.
inline float * row(const ggml_tensor * tensor, int64_t index) {
    if (index < tensor->ne[1]) {  // of a matrix: divisions take as long as a row does
        return at(tensor, index, 0);
    }
    const int64_t i1 = index % tensor->ne[1];
    const int64_t i2 = index / tensor->ne[1] % tensor->ne[2];
    const int64_t i3 = index / tensor->ne[1] / tensor->ne[2];
    return at(tensor, i1, i2, i3);
}

}  // namespace llgtrt::repack
