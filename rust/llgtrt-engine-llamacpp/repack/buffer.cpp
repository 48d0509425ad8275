// A buffer type of ggml's CPU backend that holds weights as kernel.h wants them, beside ggml's own "CPU_REPACK".
//
// ggml has kernels for batches of the K types and of Q4_0. The types of 32-element blocks that the rows of small
// models fall back to (Q4_1, Q5_0, Q5_1, Q8_0) have none on x86: they are multiplied row by column, each weight
// unpacked again for every sequence of a batch. Here they get one.
//
// ggml::cpu::extra_buffer_type is llama.cpp's own extension point for this, but no public interface: this file is
// compiled against the headers of the llama.cpp that the lock file pins, and an update that changes them fails here.

#include "kernel.h"

#if defined(LLGTRT_REPACK_AVX512) || defined(LLGTRT_REPACK_AVX2)

#include <algorithm>
#include <numeric>
#include <type_traits>
#include <vector>

#include "ggml-cpu.h"
#include "traits.h"

namespace llgtrt::repack {
namespace {

constexpr size_t ALIGNMENT = 64;  // of a tensor: a cache line
// Blocks of a column that a thread quantizes at a time.
constexpr int64_t QUANTIZED_AT_ONCE = 8;

ggml_backend_buffer_type_t buffer_type();

int64_t columns_of(const ggml_tensor * activations) {
    return ggml_nrows(activations);
}

// The quantized columns in the work buffer, tile by tile. The tiles are of about the same width: one column more than a
// tile holds must not cost another pass over the weights alone.
class Tiles {
  public:
    Tiles(void * memory, int64_t blocks, int64_t columns) :
        memory_(static_cast<uint8_t *>(memory)),
        blocks_(blocks),
        columns_(columns),
        count_((columns + Isa::COLUMNS - 1) / Isa::COLUMNS) {}

    static size_t size(int64_t blocks, int64_t columns) { return Tile::size(blocks * columns); }

    int64_t   count() const { return count_; }
    int64_t   first(int64_t tile) const { return columns_ * tile / count_; }
    int64_t   width(int64_t tile) const { return first(tile + 1) - first(tile); }
    uint8_t * operator[](int64_t tile) const { return memory_ + size(blocks_, first(tile)); }

    // Quantizes `count` blocks of a column of a tile from `block` on.
    template <class Format>
    void quantize(int64_t tile, int64_t column, int64_t block, const float * from, int64_t count) const {
        const int64_t n  = width(tile);
        uint8_t *     at = (*this)[tile] + Tile::size(n) * block;
        // The types that ggml's own kernels multiply these weights with.
        using Quantized      = std::conditional_t<Format::MINIMUM, block_q8_1, block_q8_0>;
        constexpr auto  TYPE = Format::MINIMUM ? GGML_TYPE_Q8_1 : GGML_TYPE_Q8_0;
        Quantized       quantized[QUANTIZED_AT_ONCE];
        ggml_get_type_traits_cpu(TYPE)->from_float(from, quantized, count * BLOCK);
        for (int64_t i = 0; i < count; i++, at += Tile::size(n)) {
            const Quantized & source = quantized[i];
            std::memcpy(at + BLOCK * column, source.qs, BLOCK);
            ggml_half halves[2];  // the scale; of block_q8_1 the sum as well
            std::memcpy(halves, &source, sizeof halves);
            const float scale = ggml_fp16_to_fp32(halves[0]);
            std::memcpy(at + Tile::scale(n) + sizeof scale * column, &scale, sizeof scale);
            if constexpr (Format::MINIMUM) {
                const float sum = ggml_fp16_to_fp32(halves[1]);
                std::memcpy(at + Tile::sum(n) + sizeof sum * column, &sum, sizeof sum);
            } else {
                const int32_t sum = std::accumulate(std::begin(source.qs), std::end(source.qs), int32_t{0});
                std::memcpy(at + Tile::sum(n) + sizeof sum * column, &sum, sizeof sum);
            }
        }
    }

  private:
    uint8_t * memory_;
    int64_t   blocks_;
    int64_t   columns_;
    int64_t   count_;
};

// Column `index` of a matrix of floats with up to three outer dimensions.
const float * column(const ggml_tensor * tensor, int64_t index) {
    const int64_t i1 = index % tensor->ne[1];
    const int64_t i2 = index / tensor->ne[1] % tensor->ne[2];
    const int64_t i3 = index / tensor->ne[1] / tensor->ne[2];
    const size_t  at = i1 * tensor->nb[1] + i2 * tensor->nb[2] + i3 * tensor->nb[3];
    return reinterpret_cast<const float *>(static_cast<const char *>(tensor->data) + at);
}

class Weights : public ggml::cpu::tensor_traits {
  public:
    virtual void pack_all(const ggml_tensor * tensor, const void * from) const = 0;
};

template <class Format> class WeightsOf : public Weights {
    using Block = typename Format::Block;

    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        if (op->op != GGML_OP_MUL_MAT) {
            return false;
        }
        size = Tiles::size(op->src[0]->ne[0] / BLOCK, columns_of(op->src[1]));
        return true;
    }

    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        if (op->op != GGML_OP_MUL_MAT) {
            return false;
        }
        const ggml_tensor * weights     = op->src[0];
        const ggml_tensor * activations = op->src[1];
        const int64_t       blocks      = weights->ne[0] / BLOCK;
        const Tiles         tiles(params->wdata, blocks, columns_of(activations));

        const int64_t parts = (blocks + QUANTIZED_AT_ONCE - 1) / QUANTIZED_AT_ONCE;
        int64_t       part  = 0;  // of all columns together; the threads take turns
        for (int64_t t = 0; t < tiles.count(); t++) {
            for (int64_t c = 0; c < tiles.width(t); c++) {
                const float * from = column(activations, tiles.first(t) + c);
                for (int64_t b = 0; b < parts; b++, part++) {
                    if (part % params->nth == params->ith) {
                        const int64_t first = b * QUANTIZED_AT_ONCE;
                        tiles.quantize<Format>(
                            t, c, first, from + first * BLOCK, std::min(QUANTIZED_AT_ONCE, blocks - first));
                    }
                }
            }
        }
        if (params->ith == 0) {
            ggml_threadpool_chunk_set(params->threadpool, params->nth);
        }
        ggml_barrier(params->threadpool);

        // Threads take chunks of rows as they get done: none waits long for one that was interrupted.
        const int64_t groups = weights->ne[1] / Isa::ROWS;
        const int64_t chunks = std::min<int64_t>(groups, 8 * params->nth);
        for (int64_t chunk = params->ith; chunk < chunks;
             chunk         = ggml_threadpool_chunk_add(params->threadpool, 1)) {
            multiply_groups(op, tiles, groups * chunk / chunks, groups * (chunk + 1) / chunks);
        }
        return true;
    }

    static void multiply_groups(ggml_tensor * op, const Tiles & tiles, int64_t begin, int64_t end) {
        const int64_t   blocks  = op->src[0]->ne[0] / BLOCK;
        const int64_t   size    = blocks * Layout<Format, Isa>::SIZE;
        const uint8_t * weights = static_cast<const uint8_t *>(op->src[0]->data);
        for (int64_t t = 0; t < tiles.count(); t++) {
            for (int64_t group = begin; group < end; group++) {
                // A result is contiguous, whatever its shape.
                char * out =
                    static_cast<char *>(op->data) + tiles.first(t) * op->nb[1] + group * Isa::ROWS * sizeof(float);
                multiply<Format, Isa>(weights + group * size, blocks, tiles[t], tiles.width(t), out, op->nb[1]);
            }
        }
    }

    void pack_all(const ggml_tensor * tensor, const void * from) const override {
        const int64_t blocks = tensor->ne[0] / BLOCK;
        const auto *  rows   = static_cast<const Block *>(from);
        auto *        to     = static_cast<uint8_t *>(tensor->data);
        for (int64_t row = 0; row < tensor->ne[1]; row += Isa::ROWS) {
            for (int64_t b = 0; b < blocks; b++, to += Layout<Format, Isa>::SIZE) {
                pack<Format, Isa>(rows + row * blocks + b, blocks, to);
            }
        }
    }
};

// What can be done with a tensor of this type and shape; null if it stays as it is.
Weights * weights_for(const ggml_tensor * tensor) {
    static WeightsOf<Q4_1> q4_1;
    static WeightsOf<Q5_0> q5_0;
    static WeightsOf<Q5_1> q5_1;
    static WeightsOf<Q8_0> q8_0;
    if (ggml_n_dims(tensor) != 2 || tensor->ne[0] % BLOCK != 0 || tensor->ne[1] % Isa::ROWS != 0) {
        return nullptr;
    }
    switch (tensor->type) {
        case GGML_TYPE_Q4_1: return &q4_1;
        case GGML_TYPE_Q5_0: return &q5_0;
        case GGML_TYPE_Q5_1: return &q5_1;
        case GGML_TYPE_Q8_0: return Isa::BYTES ? &q8_0 : nullptr;
        default: return nullptr;
    }
}

bool is_ours(const ggml_tensor * tensor) {
    return tensor->buffer != nullptr && tensor->buffer->buft == buffer_type();
}

class BufferType : public ggml::cpu::extra_buffer_type {
    bool supports_op(ggml_backend_dev_t, const ggml_tensor * op) override {
        if (op->op != GGML_OP_MUL_MAT || !is_ours(op->src[0]) || weights_for(op->src[0]) == nullptr) {
            return false;
        }
        const ggml_tensor * activations = op->src[1];
        return activations->type == GGML_TYPE_F32 && ggml_is_contiguous_rows(activations) &&
               (activations->buffer == nullptr || ggml_backend_buft_is_host(activations->buffer->buft));
    }

    ggml::cpu::tensor_traits * get_tensor_traits(const ggml_tensor * op) override {
        const bool mine = op->op == GGML_OP_MUL_MAT && is_ours(op->src[0]);
        return mine ? static_cast<Weights *>(op->src[0]->extra) : nullptr;
    }
};

ggml_status init_tensor(ggml_backend_buffer_t, ggml_tensor * tensor) {
    tensor->extra = weights_for(tensor);
    return GGML_STATUS_SUCCESS;
}

void set_tensor(ggml_backend_buffer_t, ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
    GGML_ASSERT(tensor->extra != nullptr && offset == 0 && size == ggml_nbytes(tensor));
    static_cast<const Weights *>(tensor->extra)->pack_all(tensor, data);
}

ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
    if (buffer != nullptr) {
        buffer->buft              = type;
        buffer->iface.init_tensor = init_tensor;
        buffer->iface.set_tensor  = set_tensor;
        buffer->iface.get_tensor  = nullptr;
        buffer->iface.cpy_tensor  = nullptr;
    }
    return buffer;
}

ggml_backend_buffer_type_t buffer_type() {
    static BufferType               context;
    static ggml_backend_buffer_type type = [] {
        ggml_backend_buffer_type made = {};
        made.iface.get_name           = [](ggml_backend_buffer_type_t) { return "CPU_LLGTRT"; };
        made.iface.alloc_buffer       = alloc_buffer;
        made.iface.get_alignment      = [](ggml_backend_buffer_type_t) { return ALIGNMENT; };
        made.device                   = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
        // ggml casts this pointer back to its own base class.
        made.context = static_cast<ggml::cpu::extra_buffer_type *>(&context);
        return made;
    }();
    return &type;
}

}  // namespace
}  // namespace llgtrt::repack

// Adds the buffer type to those of the CPU backend, once. To be called before the first model is loaded: llama.cpp
// copies the list when it first reads it.
extern "C" ggml_backend_buffer_type_t llgtrt_repack_buffer_type(void) {
    static ggml_backend_buffer_type_t added =
        ggml_backend_cpu_get_extra_buffer_types().emplace_back(llgtrt::repack::buffer_type());
    return added;
}

#else  // no vector instructions to do better with

extern "C" void * llgtrt_repack_buffer_type(void) {
    return nullptr;
}

#endif
