// A forward pass as the threads that compute it find it: what is needed of it, as whoever asks for it says before, and what its operations
// share.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <vector>

#include "ggml-cpu-impl.h"
#include "ggml.h"
#include "shares.h"

namespace llgtrt::repack {

// Both parts may be missing: all is needed then.
struct Needed {
    // Which logits are needed where so many rows of them are computed: for each row a bit for each token, of as many words as
    // that takes, or null for all tokens; or null for all rows. Asked on the thread that began the pass, where all before
    // the logits is computed, so that whoever makes the masks has had that time. The words stay until the pass ends.
    const uint32_t * const * (*masks)(void * data, int64_t rows);
    void * data;
    // Which tokens are needed: of each of `streams` streams the first `used[stream]` of `width`; the others are there because
    // llama.cpp wants as many of each. No streams: all tokens.
    int64_t         streams, width;
    const int32_t * used;
    // The places of the needed tokens among all of the pass, in order.
    const int32_t * tokens;
    int64_t         count;
    // Whether the pass has one graph, of which one part after the other is planned and computed: what a part has found out holds for the next.
    bool in_parts;

    bool is_needed(int64_t token) const { return token % width < used[token / width]; }

    // Whether a tensor is of the tokens of the pass, along its dimension 1 or 2. Those of logits never are: none is asked for of
    // a token that is not needed, so they have fewer.
    bool has_tokens_of(const ggml_tensor & tensor, int dimension) const {
        return streams > 0 && tensor.ne[dimension] == streams * width && tensor.ne[3] == 1 && (dimension == 2 || tensor.ne[2] == 1);
    }
};

// What an operation has found out of a tensor: the next one that needs it finds it here. Read by all threads of a pass, changed by the
// first one, with a barrier between.
class Shared {
  public:
    // To be called where a graph is planned: the same tensor holds something else in another graph.
    void forget() { tensor_ = nullptr; }

    // Whether it is there, of so many columns of that tensor, as `form` makes it, for the experts that `ids` says.
    bool is(const ggml_tensor * tensor, const void * form, int64_t columns, const ggml_tensor * ids = nullptr) const {
        return tensor_ == tensor && form_ == form && columns_ == columns && ids_ == ids;
    }

    void become(const ggml_tensor * tensor, const void * form, int64_t columns, const ggml_tensor * ids = nullptr) {
        tensor_  = tensor;
        form_    = form;
        columns_ = columns;
        ids_     = ids;
    }

    // It begins a cache line.
    void * memory() { return reinterpret_cast<void *>(GGML_PAD(reinterpret_cast<uintptr_t>(memory_.data()), CACHE_LINE)); }

    // Makes room for so many bytes, which may forget what is there. False if there is none: nothing may be thrown into ggml. All
    // threads call it.
    bool has_room(const ggml_compute_params & params, size_t size) {
        if (size > MOST_BYTES) {
            return false;
        }
        size += CACHE_LINE;
        if (memory_.size() < size) {
            ggml_barrier(params.threadpool);  // all have come to that
            if (params.ith == 0) {
                resize(size);
            }
            ggml_barrier(params.threadpool);
        }
        return memory_.size() >= size;
    }

  private:
    static constexpr size_t MOST_BYTES = 8 << 20;
    static constexpr size_t CACHE_LINE = 64;

    void resize(size_t size) {
        forget();
        try {
            memory_.resize(size);
        } catch (const std::bad_alloc &) {
        }
    }

    const ggml_tensor *  tensor_  = nullptr;
    const void *         form_    = nullptr;
    int64_t              columns_ = 0;
    const ggml_tensor *  ids_     = nullptr;
    std::vector<uint8_t> memory_;
};

// A pass that is computed, by the threads of one pool.
struct Pass {
    std::atomic<const ggml_threadpool *> threads = nullptr;
    std::atomic<const Needed *>          needed  = nullptr;  // null: all
    Pass *                               outer   = nullptr;  // that the same thread has begun before
    bool                                 planned = false;    // whether a part of it was
    // Their memory stays for the next pass that takes this place.
    Shared quantized;  // activations: those of queries, keys and values are the same, and those of a gate and what goes through it
    Shared looks;      // what tokens see, the same in all layers
    Shared turns;      // what tokens are rotated by, likewise
    Shares shares;     // of an operation, that the threads take

    // To be called where a graph is planned, or a part of one.
    void forget() {
        const Needed * of = needed.load(std::memory_order_relaxed);
        if (of != nullptr && of->in_parts && planned) {
            return;
        }
        planned = true;
        quantized.forget();
        looks.forget();
        turns.forget();
        shares.forget();
    }
};

// What is needed of a pass; null if all is, or nobody has begun it.
inline const Needed * needed_of(const Pass * pass) {
    return pass != nullptr ? pass->needed.load(std::memory_order_acquire) : nullptr;
}

// What is needed of a pass where a tensor is of its tokens, along its dimension 1 or 2; null if all of it is.
inline const Needed * needed_of(const Pass * pass, const ggml_tensor & tensor, int dimension) {
    const Needed * needed = needed_of(pass);
    return needed != nullptr && needed->has_tokens_of(tensor, dimension) ? needed : nullptr;
}

// Passes that are computed, by their threads. More at once than there is room for have all computed.
class Passes {
  public:
    // False if there is no room.
    bool begin(const ggml_threadpool * threads, const Needed * needed) {
        for (auto & pass : passes_) {
            const ggml_threadpool * free = nullptr;
            if (pass.threads.compare_exchange_strong(free, threads)) {
                pass.needed  = needed;
                pass.outer   = begun_here_;
                pass.planned = false;
                begun_here_  = &pass;
                return true;
            }
        }
        return false;
    }

    void end(const ggml_threadpool * threads) {
        for (auto & pass : passes_) {
            if (pass.threads == threads) {
                begun_here_  = pass.outer;
                pass.needed  = nullptr;
                pass.threads = nullptr;
            }
        }
    }

    // To be called where an operation is planned: by the thread that has begun the pass, before its threads compute it.
    static void forget() {
        if (begun_here_ != nullptr) {
            begun_here_->forget();
        }
    }

    // Null if nobody has begun it. Threads of a pool are told to compute after what they are to compute was written here.
    Pass * of(const ggml_threadpool * threads) {
        for (auto & pass : passes_) {
            if (pass.threads.load(std::memory_order_acquire) == threads) {
                return &pass;
            }
        }
        return nullptr;
    }

  private:
    static inline thread_local Pass * begun_here_ = nullptr;  // by this thread, the last one

    Pass passes_[16];
};

inline Passes passes;

// Calls `part` with the number of each of `parts` that this thread takes of an operation: in a pass that nobody has begun those of its
// share. All threads call it, once between two barriers.
template <class Part> void take_shares(Pass * pass, const ggml_compute_params & params, int64_t parts, const Part & part) {
    if (pass != nullptr) {
        pass->shares.take(params, parts, part);
        return;
    }
    const auto [begin, end] = share(parts, params);
    for (int64_t i = begin; i < end; i++) {
        part(i);
    }
}

}  // namespace llgtrt::repack
