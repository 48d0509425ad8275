// A second llama.cpp context over the cells of another one: what one of them evaluates the other one attends to.
//
// llama.cpp gives every context a memory of its own. Here one is given another's, through the interface that it calls its memory by.
// Which context a context's memory is private of it, and the interface is no public one: this file is compiled against the headers of the
// llama.cpp that the lock file pins, and an update that changes them fails here.

#include <map>

#include "llama-context.h"

namespace {

// Hands all on to the memory of the context that owns it.
class SharedMemory final : public llama_memory_i {
  public:
    explicit SharedMemory(llama_memory_i & owned) : owned_(owned) {}

    llama_memory_context_ptr init_batch(llama_batch_allocr & batch, uint32_t tokens, bool all) override {
        return owned_.init_batch(batch, tokens, all);
    }
    llama_memory_context_ptr init_full() override { return owned_.init_full(); }
    llama_memory_context_ptr init_update(llama_context * context, bool optimize) override {
        return owned_.init_update(context, optimize);
    }

    bool get_can_shift() const override { return owned_.get_can_shift(); }
    void clear(bool data) override { owned_.clear(data); }

    bool seq_rm(llama_seq_id seq, llama_pos begin, llama_pos end) override { return owned_.seq_rm(seq, begin, end); }
    void seq_cp(llama_seq_id from, llama_seq_id to, llama_pos begin, llama_pos end) override { owned_.seq_cp(from, to, begin, end); }
    void seq_keep(llama_seq_id seq) override { owned_.seq_keep(seq); }
    void seq_add(llama_seq_id seq, llama_pos begin, llama_pos end, llama_pos shift) override { owned_.seq_add(seq, begin, end, shift); }
    void seq_div(llama_seq_id seq, llama_pos begin, llama_pos end, int by) override { owned_.seq_div(seq, begin, end, by); }

    llama_pos seq_pos_min(llama_seq_id seq) const override { return owned_.seq_pos_min(seq); }
    llama_pos seq_pos_max(llama_seq_id seq) const override { return owned_.seq_pos_max(seq); }

    // It is counted where it is owned.
    std::map<ggml_backend_buffer_type_t, size_t> memory_breakdown() const override { return {}; }

    void state_write(llama_io_write_i & io, llama_seq_id seq, llama_state_seq_flags flags) const override { owned_.state_write(io, seq, flags); }
    void state_read(llama_io_read_i & io, llama_seq_id seq, llama_state_seq_flags flags) override { owned_.state_read(io, seq, flags); }

  private:
    llama_memory_i & owned_;
};

llama_memory_ptr & memory_of(llama_context & context);

// An explicit instantiation may name what is private.
template <llama_memory_ptr llama_context::*member> struct Reach {
    friend llama_memory_ptr & memory_of(llama_context & context) { return context.*member; }
};
template struct Reach<&llama_context::memory>;

}  // namespace

// Gives `context` the cells of `owner` in place of its own. Both are of the same model, for as many sequences of as many tokens, and `owner`
// lives longer. No two calls of the two are made at once, and a pass of one may begin and end while one of the other is paused, over other
// sequences.
extern "C" void llgtrt_share_memory(llama_context * context, llama_context * owner) {
    memory_of(*context) = std::make_unique<SharedMemory>(*memory_of(*owner));
}
