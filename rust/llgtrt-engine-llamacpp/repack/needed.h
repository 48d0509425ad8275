// What is needed of a forward pass, as whoever asks for it says before: found by the threads that compute it.
#pragma once

#include <atomic>
#include <cstdint>

#include "ggml.h"

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

    // Whether a tensor is of the tokens of the pass, along its dimension 1 or 2. Those of logits never are: none is asked for of
    // a token that is not needed, so they have fewer.
    bool has_tokens_of(const ggml_tensor & tensor, int dimension) const {
        return streams > 0 && tensor.ne[dimension] == streams * width && tensor.ne[3] == 1 && (dimension == 2 || tensor.ne[2] == 1);
    }
};

// Passes that are computed, by their threads. More at once than there is room for have all computed.
class Passes {
  public:
    // False if there is no room.
    bool begin(const ggml_threadpool * threads, const Needed * needed) {
        for (auto & pass : passes_) {
            const ggml_threadpool * free = nullptr;
            if (pass.threads.compare_exchange_strong(free, threads)) {
                pass.needed = needed;
                return true;
            }
        }
        return false;
    }

    void end(const ggml_threadpool * threads) {
        for (auto & pass : passes_) {
            if (pass.threads == threads) {
                pass.needed  = nullptr;
                pass.threads = nullptr;
            }
        }
    }

    // Null if all is needed. Threads of a pool are told to compute after what they are to compute was written here.
    const Needed * of(const ggml_threadpool * threads) const {
        for (const auto & pass : passes_) {
            if (pass.threads.load(std::memory_order_acquire) == threads) {
                return pass.needed.load(std::memory_order_acquire);
            }
        }
        return nullptr;
    }

  private:
    struct Pass {
        std::atomic<const ggml_threadpool *> threads = nullptr;
        std::atomic<const Needed *>          needed  = nullptr;
    };

    Pass passes_[16];
};

inline Passes passes;

}  // namespace llgtrt::repack
