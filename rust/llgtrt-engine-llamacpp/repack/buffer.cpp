// A buffer type of ggml's CPU backend that holds weights as pack.h describes them, beside ggml's own "CPU_REPACK".
//
// ggml multiplies most types row by column, each weight unpacked again for every sequence of a batch, and its
// own rearranged types (Q4_0, Q4_K, IQ4_NL) on x86 at about half the speed of these kernels.
//
// ggml::cpu::extra_buffer_type is llama.cpp's own extension point for this, but no public interface: this file is
// compiled against the headers of the llama.cpp that the lock file pins, and an update that changes them fails here.

#include <algorithm>
#include <atomic>
#include <iterator>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#if defined(__linux__)
#    include <sys/mman.h>
#    include <unistd.h>
#endif

#include "attention_op.h"
#include "gate.h"
#include "ggml-cpu.h"
#include "kernels.h"
#include "pass.h"
#include "recurrence_op.h"
#include "repack.h"
#include "rows_op.h"
#include "sets.h"
#include "traits.h"
#include "weights.h"

namespace llgtrt::repack {
namespace {

constexpr const char * NAME = "CPU_LLGTRT";

// What computes attention, operations on each token and what remembers in place of ggml.
struct Others {
    explicit Others(const AttentionKernel & kernel) : attention(kernel), rows(kernel), recurrence(kernel) {}

    Attention  attention;
    Rows       rows;
    Recurrence recurrence;
};

// Null: ggml computes them.
std::atomic<Others *> chosen = nullptr;

// Whether an operation whose results may depend on what else is in a batch was left to ggml.
std::atomic<bool> left_to_ggml = false;

// The buffer type of one set of instructions. ggml asks it about every operation, so it answers for others as well.
class BufferType : public ggml::cpu::extra_buffer_type {
  public:
    explicit BufferType(const Kernels & kernels) {
        for (int i = 0; i < kernels.count; i++) {
            weights_.push_back(std::make_unique<Weights>(kernels, kernels.kernels[i]));
        }
        name_                      = std::string(NAME) + " " + kernels.name;
        type_.iface.get_name       = [](ggml_backend_buffer_type_t type) { return of(type).name_.c_str(); };
        type_.iface.alloc_buffer   = alloc_buffer;
        type_.iface.get_alloc_size = [](ggml_backend_buffer_type_t type, const ggml_tensor * tensor) {
            const Weights * const weights = of(type).weights(tensor);
            return weights != nullptr ? weights->packed_size(tensor) : ggml_nbytes(tensor);
        };
        type_.iface.get_alignment  = [](ggml_backend_buffer_type_t) { return ALIGNMENT; };
        type_.device               = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
        // ggml casts this pointer back to its own base class.
        type_.context = static_cast<ggml::cpu::extra_buffer_type *>(this);
    }

    ggml_backend_buffer_type_t type() { return &type_; }

    // Whether a tensor is packed in a buffer of this kind, of whichever set.
    static bool packs(const ggml_tensor * tensor) {
        return tensor->buffer != nullptr && tensor->buffer->buft->iface.alloc_buffer == alloc_buffer && tensor->extra != nullptr;
    }

  private:
    static BufferType & of(ggml_backend_buffer_type_t type) {
        return *static_cast<BufferType *>(static_cast<ggml::cpu::extra_buffer_type *>(type->context));
    }

    // Every pass reads all weights, and they take more pages of the usual size than a core knows the places of. Where the system has
    // no larger ones, nothing changes.
    static void ask_for_huge_pages([[maybe_unused]] void * memory, [[maybe_unused]] size_t size) {
#if defined(__linux__)
        const auto page  = static_cast<size_t>(sysconf(_SC_PAGESIZE));
        void *     first = memory;
        if (std::align(page, page, first, size) != nullptr) {
            madvise(first, size / page * page, MADV_HUGEPAGE);
        }
#endif
    }

    static ggml_backend_buffer_t alloc_buffer(ggml_backend_buffer_type_t type, size_t size) {
        ggml_backend_buffer_t buffer = ggml_backend_buft_alloc_buffer(ggml_backend_cpu_buffer_type(), size);
        if (buffer != nullptr) {
            ask_for_huge_pages(ggml_backend_buffer_get_base(buffer), size);
            buffer->buft              = type;
            buffer->iface.init_tensor = [](ggml_backend_buffer_t buffer, ggml_tensor * tensor) {
                tensor->extra = of(buffer->buft).weights(tensor);
                return GGML_STATUS_SUCCESS;
            };
            buffer->iface.set_tensor =
                [](ggml_backend_buffer_t, ggml_tensor * tensor, const void * data, size_t offset, size_t size) {
                    GGML_ASSERT(tensor->extra != nullptr && offset == 0 && size == ggml_nbytes(tensor));
                    static_cast<const Weights *>(tensor->extra)->pack(tensor, data);
                };
            buffer->iface.get_tensor = nullptr;
            buffer->iface.cpy_tensor = nullptr;
        }
        return buffer;
    }

    // What can be done with a tensor of this type and shape; null if it stays as it is.
    Weights * weights(const ggml_tensor * tensor) const {
        const auto fits  = [tensor](const auto & weights) { return weights->fits(tensor); };
        const auto found = std::find_if(weights_.begin(), weights_.end(), fits);
        return found == weights_.end() ? nullptr : found->get();
    }

    bool holds(const ggml_tensor * tensor) const { return tensor->buffer != nullptr && tensor->buffer->buft == &type_; }

    bool supports_op(ggml_backend_dev_t, const ggml_tensor * op) override {
        const ggml_tensor *held = op->src[0], *activations = op->src[1];
        return (op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID) && holds(held) && weights(held) != nullptr &&
               Weights::can_multiply(op) &&
               (activations->buffer == nullptr || ggml_backend_buft_is_host(activations->buffer->buft));
    }

    ggml::cpu::tensor_traits * get_tensor_traits(const ggml_tensor * op) override {
        Gates::see(op);
        if (Gates::is_gate(op)) {
            return static_cast<Weights *>(op->src[0]->src[0]->extra);
        }
        Others * const others = chosen;
        if (others != nullptr) {
            others->recurrence.see(op);
        }
        if (others != nullptr && others->attention.takes(op)) {
            return &others->attention;
        }
        if (others != nullptr && others->rows.takes(op)) {
            return &others->rows;
        }
        if (others != nullptr && others->recurrence.takes(op)) {
            return &others->recurrence;
        }
        if ((op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID) && holds(op->src[0])) {
            return static_cast<Weights *>(op->src[0]->extra);
        }
        // What others store in the cache they store for tokens that are not needed as well, and they put no numbers in order.
        const bool matters = (op->op == GGML_OP_MUL_MAT && !mixes(op)) || op->op == GGML_OP_MUL_MAT_ID || op->op == GGML_OP_FLASH_ATTN_EXT ||
                             op->op == GGML_OP_SET_ROWS || op->op == GGML_OP_ARGSORT || op->op == GGML_OP_TOP_K;
        if (matters && !left_to_ggml.load(std::memory_order_relaxed)) {
            left_to_ggml = true;
        }
        return nullptr;
    }

    // Whether it mixes vectors of each token by a square matrix of its own (Gemma 3n): ggml computes one token as it computes many.
    static bool mixes(const ggml_tensor * product) {
        const ggml_tensor *vectors = product->src[0], *matrices = product->src[1];
        return vectors->op == GGML_OP_CONT && vectors->type == GGML_TYPE_F32 && matrices->type == GGML_TYPE_F32 &&
               matrices->ne[0] == matrices->ne[1] && vectors->ne[2] == matrices->ne[2];
    }

    std::vector<std::unique_ptr<Weights>> weights_;
    std::string                           name_;
    ggml_backend_buffer_type              type_ = {};
};

}  // namespace

bool is_packed(const ggml_tensor * weights) {
    return BufferType::packs(weights);
}

}  // namespace llgtrt::repack

// The buffer type for a set of instructions, the lower the faster, as one that the CPU backend has from now on. Null if
// the machine lacks the set, or there are no more. Models must be loaded after the first call, and not beside one:
// llama.cpp copies the list of buffer types when it first reads it.
extern "C" ggml_backend_buffer_type_t llgtrt_repack_buffer_type(int set) {
    using namespace llgtrt::repack;
    constexpr int COUNT = std::size(SETS);
    if (set < 0 || set >= COUNT || !SETS[set].is_there()) {
        return nullptr;
    }
    static std::unique_ptr<BufferType> types[COUNT];
    if (types[set] == nullptr) {
        types[set] = std::make_unique<BufferType>(SETS[set].kernels);
    }
    const auto type = types[set]->type();
    auto &     all  = ggml_backend_cpu_get_extra_buffer_types();
    if (std::find(all.begin(), all.end(), type) == all.end()) {
        // What is first in the list is tried first: ggml's rearranged types come after ours.
        all.insert(std::find(all.begin(), all.end(), ggml_backend_cpu_repack_buffer_type()), type);
    }
    return type;
}

// From now on attention and operations on each token are computed with a set of instructions, the lower the faster, in every
// model of the process; by ggml if `set` is negative. False, and nothing changes, if the machine lacks the set, or there are no
// more. Not while a graph is planned or computed.
extern "C" bool llgtrt_repack_attention(int set) {
    using namespace llgtrt::repack;
    if (set < 0) {
        chosen = nullptr;
        return true;
    }
    constexpr int COUNT = std::size(ATTENTION_SETS);
    if (set >= COUNT || !ATTENTION_SETS[set].is_there()) {
        return false;
    }
    static std::unique_ptr<Others> all[COUNT];
    if (all[set] == nullptr) {
        all[set] = std::make_unique<Others>(ATTENTION_SETS[set].kernel);
    }
    chosen = all[set].get();
    return true;
}

// Whether products or attention have been left to ggml since the last call, by any model of the process. What is done
// here comes to the same bits alone, in any batch, and with any number of tokens at once; ggml's does not.
extern "C" bool llgtrt_repack_left_to_ggml() {
    return llgtrt::repack::left_to_ggml.exchange(false);
}

// What is needed of the passes that these threads compute from now on; null: all. It must stay until then, and is not called
// beside such a pass. The logits that are not needed become -infinity, where leaving them out saves time, and of tokens that are
// not nothing is stored in the cache. False, and all is computed, if there is no room for it.
extern "C" bool llgtrt_repack_needed(const ggml_threadpool * threads, const llgtrt::repack::Needed * needed) {
    llgtrt::repack::passes.end(threads);
    return needed == nullptr || llgtrt::repack::passes.begin(threads, needed);
}

// Takes ggml's buffer type for AMX from those of the CPU backend. Its kernels end the process where they were compiled by
// GCC before 11.5, 12.4, 13.3 or 14: `_tile_loadconfig` there reads 8 of 64 bytes as far as the compiler knows, so that
// the others are not written (GCC's bug 114098). Nor do they come to the same bits alone and in a batch. As
// llgtrt_repack_buffer_type: before the first load of a model.
extern "C" void llgtrt_repack_without_amx() {
    auto & all = ggml_backend_cpu_get_extra_buffer_types();
    all.erase(std::remove_if(all.begin(), all.end(),
                             [](ggml_backend_buffer_type_t type) {
                                 return std::string_view(ggml_backend_buft_name(type)) == "AMX";
                             }),
              all.end());
}
