// How the threads of a pass divide an operation among them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "ggml-cpu-impl.h"

namespace llgtrt::repack {

struct Range {
    int64_t begin, end;
};

// A thread's share of `count` things. What lies side by side is, in all operations, about the same part of them, so that a core finds
// in its cache what it wrote there itself.
inline Range share(int64_t count, int64_t thread, int64_t threads) {
    return {count * thread / threads, count * (thread + 1) / threads};
}

inline Range share(int64_t count, const ggml_compute_params & params) {
    return share(count, params.ith, params.nth);
}

// As share(), in whole cache lines of floats.
inline Range share_of_lines(int64_t count, const ggml_compute_params & params) {
    constexpr int64_t LINE  = 64 / sizeof(float);
    const auto [begin, end] = share((count + LINE - 1) / LINE, params);
    return {begin * LINE, end * LINE < count ? end * LINE : count};
}

// The parts of an operation: each thread begins with its share, and then takes of others' what they have not begun. None waits long for
// one that was interrupted. There is a count for each thread, because one for all goes from core to core with every part; and a thread
// looks at those of 1, 2, 4 and so on ahead of it, because many threads would have many to look at.
class Shares {
  public:
    // To be called where a graph is planned, before its threads compute it.
    void forget() { graph_++; }

    // Calls `part` with the number of each of `parts` that this thread takes. All threads call it, once between two barriers.
    template <class Part> void take(const ggml_compute_params & params, int64_t parts, const Part & part) {
        Share & own = shares_[params.ith];
        if (own.graph != graph_) {
            own.graph    = graph_;
            own.turn     = 0;
            own.taken[0] = own.taken[1] = 0;
            ggml_barrier(params.threadpool);
        } else {
            // Nobody takes any more what the operation before was counted with, nor yet what the next one will be.
            own.turn = 1 - own.turn;
            own.taken[1 - own.turn].store(0, std::memory_order_relaxed);
        }
        for (int ahead = 0; ahead < params.nth; ahead = std::max(1, 2 * ahead)) {
            const int      thread = (params.ith + ahead) % params.nth;
            const Range    some   = share(parts, thread, params.nth);
            Share::Count & taken  = shares_[thread].taken[own.turn];
            const auto     next   = [&] { return some.begin + taken.fetch_add(1, std::memory_order_relaxed); };
            if (some.begin + taken.load(std::memory_order_relaxed) < some.end) {
                for (int64_t i = next(); i < some.end; i = next()) {
                    part(i);
                }
            }
        }
    }

  private:
    struct alignas(128) Share {  // two cache lines: some cores fetch the neighbour as well
        using Count = std::atomic<int64_t>;

        Count    taken[2] = {};  // of the parts, of one operation and the next in turns
        int      turn     = 0;
        uint64_t graph    = 0;
    };

    uint64_t graph_ = 1;
    Share    shares_[GGML_MAX_N_THREADS];
};

}  // namespace llgtrt::repack
