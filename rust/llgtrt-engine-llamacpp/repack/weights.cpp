#include "weights.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <system_error>
#include <thread>
#include <vector>

#include "gate.h"
#include "routing.h"
#include "tensors.h"
#include "vec.h"

namespace llgtrt::repack {
namespace {

// Bytes of weights that are multiplied with one tile after the other: they stay in the second level cache.
constexpr int64_t ROWS_BYTES = 256 << 10;
// Parts of a product that each thread gets at least, as far as there are rows. Of many tiles there are several for each chunk of rows:
// so many at most, each of so many tiles.
constexpr int64_t CHUNKS = 8;
constexpr int64_t PARTS  = 4;
constexpr int64_t TILES  = 4;
// Elements of a column that a thread quantizes at a time.
constexpr int64_t QUANTIZED_AT_ONCE = 512;
// Elements of a gate's products that are computed at a time: they stay in the first level cache. Of many columns these are as many as
// LEAST_GATED rows have. And rows that are never apart: ggml computes what does not fill one of its vectors in another way.
constexpr int64_t GATED_AT_ONCE  = 1024;
constexpr int64_t LEAST_GATED    = 32;
constexpr int64_t GATED_TOGETHER = 16;
constexpr int64_t MOST_GATED     = std::max(GATED_AT_ONCE, LEAST_GATED * WIDEST_TILE);
static_assert(LEAST_GATED % GATED_TOGETHER == 0);
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

constexpr int64_t WORD = 32;  // rows whose bits of a mask are in one

// Bytes of the work buffer before the tiles: where the order of the columns is.
size_t head(const ggml_tensor * op) {
    return are_logits(op) ? Order::bytes(ggml_nrows(op->src[1])) : 0;
}

// Where the results of `n` columns are: they are contiguous, whatever their shape.
void find_results(const ggml_tensor * op, const Columns & columns, int64_t first, int64_t n, float ** out) {
    for (int64_t c = 0; c < n; c++) {
        const size_t at = columns.at(first + c) * op->nb[1];
        out[c]          = reinterpret_cast<float *>(static_cast<char *>(op->data) + at);
    }
}

}  // namespace

template <class AllTiles, class TileAt, class Column>
void Weights::quantize(
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

bool Weights::fits(const ggml_tensor * tensor) const {
    return tensor->type == kernel_.type && ggml_n_dims(tensor) <= 3 && tensor->ne[0] % kernel_.elements == 0;
}

size_t Weights::packed_size(const ggml_tensor * tensor) const {
    return tensor->ne[0] / kernel_.elements * kernel_.packed * groups_of(tensor) * tensor->ne[2];
}

bool Weights::can_multiply(const ggml_tensor * op) {
    const ggml_tensor *weights = op->src[0], *activations = op->src[1];
    const bool is_of_matrix = op->op == GGML_OP_MUL_MAT && (ggml_is_matrix(weights) || weights->ne[2] == activations->ne[2]);
    return (is_of_matrix || op->op == GGML_OP_MUL_MAT_ID) && activations->type == GGML_TYPE_F32 && ggml_is_contiguous_rows(activations);
}

void Weights::pack(const ggml_tensor * tensor, const void * from) const {
    const int64_t blocks = tensor->ne[0] / kernel_.elements;
    const int64_t of_one = groups_of(tensor), groups = of_one * tensor->ne[2];
    const size_t  block  = ggml_type_size(tensor->type);
    const auto *  rows   = static_cast<const uint8_t *>(from);
    auto * const  to     = static_cast<uint8_t *>(tensor->data);
    const auto    some   = [=](int64_t begin, int64_t end) {
        for (int64_t group = begin; group < end; group++) {
            const int64_t   row   = group % of_one * rows_, count = std::min<int64_t>(rows_, tensor->ne[1] - row);
            const uint8_t * first = rows + (group / of_one * tensor->ne[1] + row) * blocks * block;
            uint8_t *       at    = to + group * blocks * kernel_.packed;
            for (int64_t b = 0; b < blocks; b++, first += block, at += kernel_.packed) {
                if (count == rows_) {
                    kernel_.pack(first, blocks, at);
                } else {
                    pack_last(first, count, blocks * block, block, at);
                }
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

void Weights::pack_last(const uint8_t * rows, int64_t count, size_t row, size_t block, uint8_t * to) const {
    uint8_t whole[MOST_PACKED] = {};
    for (int64_t i = 0; i < count; i++) {
        std::memcpy(whole + i * block, rows + i * row, block);
    }
    kernel_.pack(whole, 1, to);
}

int64_t Weights::groups_of(const ggml_tensor * weights) const {
    return (weights->ne[1] + rows_ - 1) / rows_;
}

bool Weights::work_size(int, const ggml_tensor * op, size_t & size) {
    if (op->op != GGML_OP_MUL_MAT && op->op != GGML_OP_MUL_MAT_ID) {
        return false;
    }
    Passes::forget();
    if (ProductOfMany::is_one(op)) {
        const ProductOfMany product(op);
        const int64_t       columns = product.tokens() * product.per_token();
        size                        = Routing::bytes(product.matrices(), columns) + tiles_size(op, columns);
        return true;
    }
    Gates::plan_product(op);
    size = head(op) + tiles_size(op, ggml_nrows(op->src[1]));
    return true;
}

bool Weights::compute_forward(ggml_compute_params * params, ggml_tensor * op) {
    const bool is_gate = Gates::is_gate(op);
    if (!is_gate && op->op != GGML_OP_MUL_MAT && op->op != GGML_OP_MUL_MAT_ID) {
        return false;
    }
    if (!is_gate && ProductOfMany::is_one(op)) {
        multiply_by_many(*params, op);
        return true;
    }
    if (!is_gate && Gates::gate_of(op) != nullptr) {
        return true;
    }
    const ggml_tensor * const product     = is_gate ? op->src[0] : op;
    const ggml_tensor * const activations = product->src[1];

    const int64_t  blocks = product->src[0]->ne[0] / kernel_.elements;
    const int64_t  groups = groups_of(product->src[0]);
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

size_t Weights::tiles_size(const ggml_tensor * op, int64_t columns) const {
    return op->src[0]->ne[0] / kernel_.elements * kernel_.tile * columns + ALIGNMENT;
}

void Weights::arrange(Order & order, const Needed * needed, int64_t columns, int64_t groups) const {
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

void Weights::multiply_by_many(const ggml_compute_params & params, ggml_tensor * op) const {
    const ProductOfMany product(op);
    const ggml_tensor * weights = op->src[0];
    const int64_t       blocks = weights->ne[0] / kernel_.elements, groups = groups_of(weights);
    Pass * const        pass   = passes.of(params.threadpool);
    const Needed *      needed = product.needed(pass);

    const int64_t   columns   = (needed != nullptr ? needed->count : product.tokens()) * product.per_token();
    const size_t    head      = Routing::bytes(product.matrices(), columns);
    // Several products take what experts are given, and one what a head has.
    Shared * const  shared    = pass != nullptr && product.ids() != nullptr ? &pass->quantized : nullptr;
    const bool      shares    = shared != nullptr && shared->has_room(params, head + tiles_size(op, columns));
    void * const    memory    = shares ? shared->memory() : params.wdata;
    Routing &       routing   = *static_cast<Routing *>(memory);
    uint8_t * const quantized = static_cast<uint8_t *>(memory) + head;
    const auto      tile_at   = [&](int64_t tile) { return routing.at(quantized, tile); };
    const auto      form      = reinterpret_cast<const void *>(kernel_.quantize);
    if (!shares || !shared->is(op->src[1], form, columns, product.ids())) {
        if (params.ith == 0) {
            new (memory) Routing(product, needed, blocks * kernel_.tile, kernel_.columns);
        }
        ggml_barrier(params.threadpool);
        quantize(params, blocks, routing, tile_at, [&](int64_t index) { return product.activations(routing.column(index)); });
        ggml_barrier(params.threadpool);
        if (params.ith == 0 && shares) {
            shared->become(op->src[1], form, columns, product.ids());
        }
    }

    // Chunks of each matrix's rows, with all of its tiles.
    const int64_t used   = routing.used();
    const int64_t most   = std::max<int64_t>(1, ROWS_BYTES / (blocks * kernel_.packed));
    const int64_t parts  = (CHUNKS * params.nth + used - 1) / used;
    const int64_t chunks = std::min(groups, std::max(parts, (groups + most - 1) / most));
    take_shares(pass, params, used * chunks, [&](int64_t i) {
        const Range some  = share(groups, i % chunks, chunks);
        const auto  tiles = routing.tiles_of(i / chunks);
        for (int64_t tile = tiles.begin; tile < tiles.end; tile++) {
            const int64_t n = routing.width(tile);
            float *       out[WIDEST_TILE];
            for (int64_t c = 0; c < n; c++) {
                out[c] = product.result(routing.column(routing.first(tile) + c));
            }
            multiply(*weights, routing.matrix(tile), some, tile_at(tile), n, out);
        }
    });
}

int64_t Weights::gated_together() const {
    return std::max<int64_t>(1, GATED_TOGETHER / rows_);
}

void Weights::multiply_gated(
    const ggml_tensor * op, const Tiles & tiles, const Columns & columns, Range groups, Range some_tiles) const {
    const int64_t blocks = op->src[0]->src[0]->ne[0] / kernel_.elements, rows = op->ne[0];
    for (int64_t t = some_tiles.begin; t < some_tiles.end; t++) {
        alignas(ALIGNMENT) float products[2][MOST_GATED];

        float *       out[WIDEST_TILE], *results[2][WIDEST_TILE];
        const int64_t n = tiles.width(t), together = gated_together();
        const int64_t most = std::max(GATED_AT_ONCE / n, LEAST_GATED) / (together * rows_) * together;
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
                const int64_t row = group * rows_;
                ggml_vec_swiglu_f32(
                    static_cast<int>(std::min(count * rows_, rows - row)), out[c] + row, results[0][c], results[1][c]);
            }
        }
    }
}

void Weights::multiply(ggml_tensor * op, const Tiles & tiles, const Columns & columns, Range groups, Range some_tiles) const {
    const auto [begin, end] = groups;
    for (int64_t t = some_tiles.begin; t < some_tiles.end; t++) {
        float * out[WIDEST_TILE];
        const int64_t column = tiles.first(t), n = tiles.width(t);
        find_results(op, columns, column, n, out);
        const auto some = [&](int64_t first, int64_t last) { multiply(*op->src[0], 0, {first, last}, tiles[t], n, out); };
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
                std::fill(out[0] + group * rows_, out[0] + std::min(next * rows_, op->ne[0]), -INFINITY);
            }
        }
    }
}

void Weights::multiply(
    const ggml_tensor & weights, int64_t matrix, Range groups, const uint8_t * tile, int64_t n, float * const * out) const {
    const int64_t blocks = weights.ne[0] / kernel_.elements, whole = weights.ne[1] / rows_, end = std::min(groups.end, whole);
    const auto *  data   = static_cast<const uint8_t *>(weights.data) + matrix * groups_of(&weights) * blocks * kernel_.packed;
    if (groups.begin < end) {
        const int64_t at = groups.begin * blocks * kernel_.packed;
        kernel_.multiply(data + at, end - groups.begin, blocks, tile, n, out, groups.begin * rows_);
    }
    if (end < groups.end) {
        alignas(ALIGNMENT) float products[WIDEST_TILE * MOST_ROWS];
        float *                  results[WIDEST_TILE];
        for (int64_t c = 0; c < n; c++) {
            results[c] = products + c * rows_;
        }
        kernel_.multiply(data + whole * blocks * kernel_.packed, 1, blocks, tile, n, results, 0);
        for (int64_t c = 0; c < n; c++) {
            std::copy_n(results[c], weights.ne[1] % rows_, out[c] + whole * rows_);
        }
    }
}

bool Weights::is_any_needed(const uint32_t * mask, int64_t group) const {
    const int64_t row = group * rows_;
    return (mask[row / WORD] >> row % WORD & ((1U << rows_) - 1)) != 0;
}

bool Weights::are_few_needed(const uint32_t * mask, int64_t groups) const {
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

}  // namespace llgtrt::repack
