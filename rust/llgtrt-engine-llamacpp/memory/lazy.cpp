// Memory of the CPU backend that is cleared takes room in RAM only once it is used.
//
// llama.cpp clears the KV cache of all slots when it starts, and writing zeros makes every page of it resident: more than
// the weights, with a small model, before the first request. Here clearing a buffer gives its pages back to the system, which hands
// out zeroed ones when they are first written to.
//
// A buffer's `clear` is part of ggml's interface of backends, which is no public one: this file is compiled against the
// headers of the llama.cpp that the lock file pins, and an update that changes them fails here.

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "ggml-backend-impl.h"

namespace {

// Smaller ones are written: they may share pages with others.
constexpr size_t LEAST_BYTES = 1 << 20;

using Alloc = ggml_backend_buffer_t (*)(ggml_backend_buffer_type_t type, size_t size);

Alloc alloc_eagerly = nullptr;

// The buffer's memory is private and anonymous: ggml takes it from the C library.
void clear(ggml_backend_buffer_t buffer, uint8_t value) {
    auto * const    begin = static_cast<uint8_t *>(ggml_backend_buffer_get_base(buffer));
    auto * const    end   = begin + ggml_backend_buffer_get_size(buffer);
    const uintptr_t page  = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
    const uintptr_t ahead = (page - reinterpret_cast<uintptr_t>(begin) % page) % page;
    auto * const    first = begin + ahead;
    auto * const    last  = end - reinterpret_cast<uintptr_t>(end) % page;
    // Refused where pages are locked in memory, for instance: then they are written.
    if (value != 0 || first >= last || madvise(first, static_cast<size_t>(last - first), MADV_DONTNEED) != 0) {
        std::memset(begin, value, static_cast<size_t>(end - begin));
        return;
    }
    std::memset(begin, 0, ahead);
    std::memset(last, 0, static_cast<size_t>(end - last));
}

ggml_backend_buffer_t alloc(ggml_backend_buffer_type_t type, size_t size) {
    ggml_backend_buffer_t buffer = alloc_eagerly(type, size);
    if (buffer != nullptr && size >= LEAST_BYTES) {
        buffer->iface.clear = clear;
    }
    return buffer;
}

}  // namespace

// From now on the CPU backend clears memory so. Once, and not beside another call that allocates.
extern "C" void llgtrt_clear_lazily() {
    ggml_backend_buffer_type_t type = ggml_backend_cpu_buffer_type();
    if (type->iface.alloc_buffer != alloc) {
        alloc_eagerly            = type->iface.alloc_buffer;
        type->iface.alloc_buffer = alloc;
    }
}
