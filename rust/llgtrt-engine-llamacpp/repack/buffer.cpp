// A buffer type of ggml's CPU backend that holds weights as pack.h describes them, beside ggml's own "CPU_REPACK".
//
// ggml multiplies most types row by column, each weight unpacked again for every sequence of a batch, and its
// own rearranged types (Q4_0, Q4_K, IQ4_NL) on x86 at about half the speed of these kernels.
//
// ggml::cpu::extra_buffer_type is llama.cpp's own extension point for this, but no public interface: this file is
// compiled against the headers of the llama.cpp that the lock file pins, and an update that changes them fails here.

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <iterator>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#    include <sys/mman.h>
#    include <unistd.h>
#endif

#include "attention_op.h"
#include "columns.h"
#include "experts.h"
#include "gate.h"
#include "ggml-cpu.h"
#include "kernels.h"
#include "pass.h"
#include "repack.h"
#include "rows_op.h"
#include "sets.h"
#include "tensors.h"
#include "traits.h"
#include "vec.h"

namespace llgtrt::repack {
namespace {

constexpr const char * NAME = "CPU_LLGTRT";

// Bytes of weights that are multiplied with one tile after the other: they stay in the second level cache.
constexpr int64_t ROWS_BYTES = 256 << 10;
// Parts of a product that each thread gets at least, as far as there are rows. Of many tiles there are several for each chunk of rows:
// so many at most, each of so many tiles.
constexpr int64_t CHUNKS = 8;
constexpr int64_t PARTS  = 4;
constexpr int64_t TILES  = 4;
// Elements of a column that a thread quantizes at a time.
constexpr int64_t QUANTIZED_AT_ONCE = 512;
// Elements of a gate's products that are computed at a time: they stay in the first level cache. And rows that are never apart: ggml
// computes what does not fill one of its vectors in another way.
constexpr int64_t GATED_AT_ONCE  = 1024;
constexpr int64_t GATED_TOGETHER = 16;
static_assert(GATED_AT_ONCE >= GATED_TOGETHER * WIDEST_TILE);
// Threads that rearrange a tensor, each at least so many bytes.
constexpr unsigned PACKERS      = 8;
constexpr int64_t  PACKED_BYTES = 1 << 20;

// Asks for numbers that another thread may have written.
void prefetch(const float * from, int64_t count) {
    constexpr int64_t CACHE_LINE = 64 / sizeof *from;
    for (int64_t i = 0; i < count; i += CACHE_LINE) {
        __builtin_prefetch(from + i);
    }
}

// llama.cpp's name of the logits, where they are a product and nothing is done with them afterwards.
constexpr const char * LOGITS = "result_output";

bool are_logits(const ggml_tensor * op) {
    return std::strcmp(op->name, LOGITS) == 0;
}

// A column costs so many times as much alone as it does in a wide tile: it is worth that if fewer than one part in so many
// of its rows are needed.
constexpr int64_t ALONE = 4;

// What is done with weights of one type on this machine.
class Weights : public ggml::cpu::tensor_traits {
  public:
    Weights(const Kernels & kernels, const Kernel & kernel) : rows_(kernels.rows), kernel_(kernel) {}

    bool fits(const ggml_tensor * tensor) const {
        return tensor->type == kernel_.type && ggml_n_dims(tensor) <= 3 && tensor->ne[0] % kernel_.elements == 0 &&
               tensor->ne[1] % rows_ == 0;
    }

    // Whether a product of them is one of those: of a matrix, or of the matrices of experts.
    static bool can_multiply(const ggml_tensor * op) {
        const ggml_tensor *weights = op->src[0], *activations = op->src[1];
        return (op->op == GGML_OP_MUL_MAT_ID || (op->op == GGML_OP_MUL_MAT && ggml_n_dims(weights) <= 2)) &&
               activations->type == GGML_TYPE_F32 && ggml_is_contiguous_rows(activations);
    }

    void pack(const ggml_tensor * tensor, const void * from) const {
        const int64_t blocks = tensor->ne[0] / kernel_.elements;
        const int64_t groups = ggml_nrows(tensor) / rows_;
        const size_t  block  = ggml_type_size(tensor->type);
        const auto *  rows   = static_cast<const uint8_t *>(from);
        auto * const  to     = static_cast<uint8_t *>(tensor->data);
        const auto    some   = [=](int64_t begin, int64_t end) {
            for (int64_t group = begin; group < end; group++) {
                for (int64_t b = 0; b < blocks; b++) {
                    kernel_.pack(
                        rows + (group * rows_ * blocks + b) * block, blocks, to + (group * blocks + b) * kernel_.packed);
                }
            }
        };
        const int64_t most  = groups * blocks * kernel_.packed / PACKED_BYTES;
        const int64_t cores = std::min(PACKERS, std::max(1U, std::thread::hardware_concurrency()));
        const int64_t count = std::clamp<int64_t>(most, 1, cores);

        std::vector<std::thread> others;
        int64_t                  done = groups / count;  // this thread's part comes first
        try {
            for (int64_t i = 1; i < count; i++) {
                const int64_t end = groups * (i + 1) / count;
                others.emplace_back(some, done, end);
                done = end;
            }
        } catch (const std::system_error &) {
            // No more threads: what they would have done is left to this one.
        }
        some(0, groups / count);
        some(done, groups);
        for (auto & other : others) {
            other.join();
        }
    }

    bool work_size(int, const ggml_tensor * op, size_t & size) override {
        if (op->op != GGML_OP_MUL_MAT && op->op != GGML_OP_MUL_MAT_ID) {
            return false;
        }
        Passes::forget();
        if (op->op == GGML_OP_MUL_MAT_ID) {
            const int64_t columns = ggml_nelements(op->src[2]);
            size                  = Routing::bytes(op->src[0]->ne[2], columns) + tiles_size(op, columns);
            return true;
        }
        Gates::plan_product(op);
        size = head(op) + tiles_size(op, ggml_nrows(op->src[1]));
        return true;
    }

    // A product, or a gate of two.
    bool compute_forward(ggml_compute_params * params, ggml_tensor * op) override {
        if (op->op == GGML_OP_MUL_MAT_ID) {
            multiply_by_experts(*params, op);
            return true;
        }
        const bool is_gate = Gates::is_gate(op);
        if (!is_gate && op->op != GGML_OP_MUL_MAT) {
            return false;
        }
        if (!is_gate && Gates::gate_of(op) != nullptr) {
            return true;
        }
        const ggml_tensor * const product     = is_gate ? op->src[0] : op;
        const ggml_tensor * const activations = product->src[1];

        const int64_t  blocks = product->src[0]->ne[0] / kernel_.elements;
        const int64_t  groups = product->src[0]->ne[1] / rows_;
        const int64_t  all    = ggml_nrows(activations);
        Pass * const   pass   = passes.of(params->threadpool);
        char * const   work   = static_cast<char *>(params->wdata);
        Columns        columns{all};
        if (are_logits(op)) {
            if (params->ith == 0) {
                arrange(*new (work) Order(all), needed_of(pass), all, groups);
            }
            ggml_barrier(params->threadpool);
            columns.order = reinterpret_cast<const Order *>(work);
        } else if (const Needed * tokens = needed_of(pass, *op, 1); tokens != nullptr) {
            columns = {tokens->count, nullptr, tokens};
        }
        // Columns of logits have another order each time.
        Shared * const shared = pass != nullptr && !are_logits(op) ? &pass->quantized : nullptr;
        const bool     shares = shared != nullptr && shared->has_room(*params, tiles_size(product, columns.count));
        void * const   memory = shares ? shared->memory() : work + head(op);
        const Tiles    tiles(memory, blocks * kernel_.tile, columns.count, columns.whole(), kernel_.columns);
        const auto     form      = reinterpret_cast<const void *>(kernel_.quantize);
        const bool     are_there = shares && shared->is(activations, form, columns.count);
        if (!are_there) {
            const auto at = [&](int64_t column) { return row(activations, columns.at(column)); };
            quantize(*params, blocks, tiles, [&](int64_t tile) { return tiles[tile]; }, at);
            ggml_barrier(params->threadpool);
            if (params->ith == 0 && shares) {
                shared->become(activations, form, columns.count);
            }
        }

        // Chunks of rows, with some of the tiles each.
        const int64_t together = is_gate ? gated_together() : 1;
        const int64_t units    = (groups + together - 1) / together;
        const int64_t unit     = blocks * kernel_.packed * together * (is_gate ? 2 : 1);
        const int64_t most     = std::max<int64_t>(1, ROWS_BYTES / unit);
        const int64_t chunks   = std::min(units, std::max<int64_t>(CHUNKS * params->nth, (units + most - 1) / most));
        const int64_t parts    = std::clamp<int64_t>(tiles.count() / TILES, 1, PARTS);
        take_shares(pass, *params, chunks * parts, [&](int64_t i) {
            const auto [begin, end] = share(units, i / parts, chunks);
            const Range some        = {begin * together, std::min(end * together, groups)};
            const Range some_tiles  = share(tiles.count(), i % parts, parts);
            if (is_gate) {
                multiply_gated(op, tiles, columns, some, some_tiles);
            } else {
                multiply(op, tiles, columns, some, some_tiles);
            }
        });
        return true;
    }

  private:
    // Bytes of so many columns' tiles.
    size_t tiles_size(const ggml_tensor * op, int64_t columns) const {
        return op->src[0]->ne[0] / kernel_.elements * kernel_.tile * columns + ALIGNMENT;
    }

    // Bytes of the work buffer before the tiles: where the order of the columns is.
    static size_t head(const ggml_tensor * op) { return are_logits(op) ? Order::bytes(ggml_nrows(op->src[1])) : 0; }

    // Asks which logits are needed.
    void arrange(Order & order, const Needed * needed, int64_t columns, int64_t groups) const {
        const bool         asks  = needed != nullptr && needed->masks != nullptr;
        const auto * const masks = asks ? needed->masks(needed->data, columns) : nullptr;
        for (int64_t c = 0; c < columns; c++) {
            const uint32_t * const mask = masks != nullptr ? masks[c] : nullptr;
            if (mask != nullptr && (columns == 1 || are_few_needed(mask, groups))) {
                order.add(c, mask);
            } else {
                order.add(c);
            }
        }
    }

    // Each column by one of some matrices: that of an expert.
    void multiply_by_experts(const ggml_compute_params & params, ggml_tensor * op) const {
        const ggml_tensor *weights = op->src[0], *activations = op->src[1], *ids = op->src[2];
        const int64_t      blocks = weights->ne[0] / kernel_.elements, groups = weights->ne[1] / rows_, experts = weights->ne[2];
        Pass * const       pass   = passes.of(params.threadpool);
        const Needed *     needed = needed_of(pass, *op, 2);

        const int64_t   columns   = (needed != nullptr ? needed->count : ids->ne[1]) * ids->ne[0];
        const size_t    head      = Routing::bytes(experts, columns);
        Shared * const  shared    = pass != nullptr ? &pass->quantized : nullptr;
        const bool      shares    = shared != nullptr && shared->has_room(params, head + tiles_size(op, columns));
        void * const    memory    = shares ? shared->memory() : params.wdata;
        Routing &       routing   = *static_cast<Routing *>(memory);
        uint8_t * const quantized = static_cast<uint8_t *>(memory) + head;
        const auto      tile_at   = [&](int64_t tile) { return routing.at(quantized, tile); };
        const auto      form      = reinterpret_cast<const void *>(kernel_.quantize);
        if (!shares || !shared->is(activations, form, columns, ids)) {
            if (params.ith == 0) {
                new (memory) Routing(*ids, needed, experts, blocks * kernel_.tile, kernel_.columns);
            }
            ggml_barrier(params.threadpool);
            quantize(params, blocks, routing, tile_at, [&](int64_t index) {
                const auto [token, number] = routing.column(index);
                return row(activations, token * activations->ne[1] + number % activations->ne[1]);
            });
            ggml_barrier(params.threadpool);
            if (params.ith == 0 && shares) {
                shared->become(activations, form, columns, ids);
            }
        }

        // Chunks of each expert's rows, with all of its tiles.
        const int64_t used   = routing.used();
        const int64_t most   = std::max<int64_t>(1, ROWS_BYTES / (blocks * kernel_.packed));
        const int64_t parts  = (CHUNKS * params.nth + used - 1) / used;
        const int64_t chunks = std::min(groups, std::max(parts, (groups + most - 1) / most));
        take_shares(pass, params, used * chunks, [&](int64_t i) {
            const auto [begin, end] = share(groups, i % chunks, chunks);
            const auto tiles        = routing.tiles_of(i / chunks);
            for (int64_t tile = tiles.begin; tile < tiles.end; tile++) {
                const int64_t n  = routing.width(tile);
                const int64_t at = (routing.expert(tile) * groups + begin) * blocks * kernel_.packed;
                float *       out[WIDEST_TILE];
                for (int64_t c = 0; c < n; c++) {
                    const auto [token, number] = routing.column(routing.first(tile) + c);
                    out[c]                     = row(op, token * op->ne[1] + number);
                }
                kernel_.multiply(
                    static_cast<const uint8_t *>(weights->data) + at, end - begin, blocks, tile_at(tile), n, out, begin * rows_);
            }
        });
    }

    // This thread's part of the columns' blocks, where `column` has the floats of one and `tile_at` the memory of a tile: the same of all columns of a tile, because what two of them have of one block is in the
    // same cache lines. Where there are more threads than blocks they divide the tiles as well.
    template <class AllTiles, class TileAt, class Column>
    void quantize(
        const ggml_compute_params & params, int64_t blocks, const AllTiles & tiles, const TileAt & tile_at, const Column & column) const {
        const int64_t lanes = std::min<int64_t>(params.nth, blocks), groups = params.nth / lanes;
        if (params.ith / lanes == groups) {
            return;  // a thread that is left over
        }
        const auto [begin, end] = share(blocks, params.ith % lanes, lanes);
        const int64_t most      = QUANTIZED_AT_ONCE / kernel_.elements;
        const int64_t runs      = (end - begin + most - 1) / most;
        const auto    some      = share(tiles.count(), params.ith / lanes, groups);
        for (int64_t t = some.begin; t < some.end; t++) {
            const int64_t   first = tiles.first(t), n = tiles.width(t);
            uint8_t * const to    = tile_at(t);
            const float *   from[WIDEST_TILE];
            for (int64_t c = 0; c < n; c++) {
                from[c] = column(first + c);
            }
            for (int64_t i = 0; i < runs; i++) {
                const auto [at, next] = share(end - begin, i, runs);
                const int64_t b = begin + at, count = next - at;
                const auto    part = [&](int64_t c) { return from[c] + b * kernel_.elements; };
                for (int64_t c = 0; c < n; c++) {
                    if (c + 1 < n) {
                        prefetch(part(c + 1), count * kernel_.elements);
                    }
                    kernel_.quantize(part(c), count, to + b * kernel_.tile * n, c, n);
                }
            }
        }
    }

    // Where the results of `n` columns are: they are contiguous, whatever their shape.
    static void find_results(const ggml_tensor * op, const Columns & columns, int64_t first, int64_t n, float ** out) {
        for (int64_t c = 0; c < n; c++) {
            const size_t at = columns.at(first + c) * op->nb[1];
            out[c]          = reinterpret_cast<float *>(static_cast<char *>(op->data) + at);
        }
    }

    // Groups of rows of a gate that are never apart.
    int64_t gated_together() const { return std::max<int64_t>(1, GATED_TOGETHER / rows_); }

    // What a gate makes of some groups of rows of its two products.
    void multiply_gated(
        const ggml_tensor * op, const Tiles & tiles, const Columns & columns, Range groups, Range some_tiles) const {
        const int64_t blocks = op->src[0]->src[0]->ne[0] / kernel_.elements;
        for (int64_t t = some_tiles.begin; t < some_tiles.end; t++) {
            alignas(ALIGNMENT) float products[2][GATED_AT_ONCE];

            float *       out[WIDEST_TILE], *results[2][WIDEST_TILE];
            const int64_t n = tiles.width(t), together = gated_together();
            const int64_t most = GATED_AT_ONCE / (n * together * rows_) * together;
            find_results(op, columns, tiles.first(t), n, out);
            for (int64_t group = groups.begin, count; group < groups.end; group += count) {
                count = std::min(most, groups.end - group);
                for (int i = 0; i < 2; i++) {
                    const auto * const weights = static_cast<const uint8_t *>(op->src[i]->src[0]->data);
                    for (int64_t c = 0; c < n; c++) {
                        results[i][c] = products[i] + c * count * rows_;
                    }
                    kernel_.multiply(
                        weights + group * blocks * kernel_.packed, count, blocks, tiles[t], n, results[i], 0);
                }
                for (int64_t c = 0; c < n; c++) {
                    ggml_vec_swiglu_f32(
                        static_cast<int>(count * rows_), out[c] + group * rows_, results[0][c], results[1][c]);
                }
            }
        }
    }

    // Groups of rows from `begin` to `end` with all columns. Those of which a column's mask has no bit are -infinity there: the
    // others' results do not depend on them.
    void multiply(ggml_tensor * op, const Tiles & tiles, const Columns & columns, Range groups, Range some_tiles) const {
        const auto [begin, end] = groups;
        const int64_t   blocks  = op->src[0]->ne[0] / kernel_.elements;
        const uint8_t * weights = static_cast<const uint8_t *>(op->src[0]->data);
        for (int64_t t = some_tiles.begin; t < some_tiles.end; t++) {
            float * out[WIDEST_TILE];
            const int64_t column = tiles.first(t), n = tiles.width(t);
            find_results(op, columns, column, n, out);
            const auto some = [&](int64_t first, int64_t last) {
                kernel_.multiply(
                    weights + first * blocks * kernel_.packed, last - first, blocks, tiles[t], n, out, first * rows_);
            };
            const uint32_t * const mask = columns.mask(column);
            if (mask == nullptr) {
                some(begin, end);
                continue;
            }
            for (int64_t group = begin, next; group < end; group = next) {
                const bool need = is_any_needed(mask, group);
                for (next = group + 1; next < end && is_any_needed(mask, next) == need;) {
                    next++;
                }
                if (need) {
                    some(group, next);
                } else {
                    std::fill(out[0] + group * rows_, out[0] + next * rows_, -INFINITY);
                }
            }
        }
    }

    static constexpr int64_t WORD = 32;  // rows whose bits are in one

    bool is_any_needed(const uint32_t * mask, int64_t group) const {
        const int64_t row = group * rows_;
        return (mask[row / WORD] >> row % WORD & ((1U << rows_) - 1)) != 0;
    }

    // Whether so few groups of rows are needed of a column that it is done alone in less time than beside others.
    bool are_few_needed(const uint32_t * mask, int64_t groups) const {
        const int64_t together = WORD / rows_;  // groups of a word
        int64_t       count    = 0;
        for (int64_t first = 0; first < groups && count < groups / ALONE; first += together) {
            if (mask[first / together] != 0) {
                for (int64_t group = first; group < std::min(groups, first + together); group++) {
                    count += is_any_needed(mask, group) ? 1 : 0;
                }
            }
        }
        return count < groups / ALONE;
    }

    int    rows_;
    Kernel kernel_;
};

// What computes attention and operations on each token in place of ggml.
struct Others {
    explicit Others(const AttentionKernel & kernel) : attention(kernel), rows(kernel) {}

    Attention attention;
    Rows      rows;
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
        name_                 = std::string(NAME) + " " + kernels.name;
        type_.iface.get_name  = [](ggml_backend_buffer_type_t type) { return of(type).name_.c_str(); };
        type_.iface.alloc_buffer  = alloc_buffer;
        type_.iface.get_alignment = [](ggml_backend_buffer_type_t) { return ALIGNMENT; };
        type_.device              = ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0);
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
        if (others != nullptr && others->attention.takes(op)) {
            return &others->attention;
        }
        if (others != nullptr && others->rows.takes(op)) {
            return &others->rows;
        }
        if ((op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID) && holds(op->src[0])) {
            return static_cast<Weights *>(op->src[0]->extra);
        }
        // What others store in the cache they store for tokens that are not needed as well, and they put no numbers in order.
        const bool matters = op->op == GGML_OP_MUL_MAT || op->op == GGML_OP_MUL_MAT_ID || op->op == GGML_OP_FLASH_ATTN_EXT ||
                             op->op == GGML_OP_SET_ROWS || op->op == GGML_OP_ARGSORT || op->op == GGML_OP_TOP_K;
        if (matters && !left_to_ggml.load(std::memory_order_relaxed)) {
            left_to_ggml = true;
        }
        return nullptr;
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
