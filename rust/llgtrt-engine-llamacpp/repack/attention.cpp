// ggml's FLASH_ATTN_EXT over a KV cache of halves or of Q8_0, with the kernels of attention.h.
//
// ggml takes one cell after the other, a row at a time, with sums in halves, and its order of additions depends on what
// else is in the batch. Here an answer's attention is the same alone, beside others, and with several tokens at once.

#include "attention_op.h"

#include "pass.h"
#include "tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

namespace llgtrt::repack {
namespace {

// Cells whose partial results are computed on their own, so that threads share a long context. Sums depend on it.
constexpr int64_t CHUNK = 256;
// Bytes of partial results at most: beyond it a thread takes all cells of its rows.
constexpr int64_t PARTIALS = 32 << 20;
// Tiles that each thread gets at least, as far as there are rows: what they cost differs.
constexpr int64_t TILES = 4;
// Chunks of a sequence that is long beside others.
constexpr int64_t LONG = 4;
// Bytes of the widest vector.
constexpr size_t ALIGNMENT = 64;

// The shape of one operation, and how its rows are cut into tiles.
struct Plan {
    // `needed`: of the pass; null: all.
    Plan(const ggml_tensor * op, const AttentionKernel & kernel, int threads, const Needed * needed) :
        q(op->src[0]), k(op->src[1]), v(op->src[2]), mask(op->src[3]), sinks(op->src[4]), out(op),
        shared(q->ne[2] / k->ne[2]),
        rows(q->ne[1] * shared),
        used(needed != nullptr && needed->streams == q->ne[3] && needed->width == q->ne[1] ? needed->used : nullptr),
        tile_rows(std::clamp<int64_t>(
            all_rows() / (TILES * threads) / kernel.queries * kernel.queries, kernel.queries, kernel.at_once)),
        tiles_per_head((rows + tile_rows - 1) / tile_rows),
        tiles(tiles_per_head * k->ne[2] * k->ne[3]),
        chunks((k->ne[1] + CHUNK - 1) / CHUNK),
        partial(PARTIAL_VALUES + v->ne[0]),
        blocks((k->ne[1] + CELLS_OF_LOOK - 1) / CELLS_OF_LOOK) {}

    // Whether chunks are shared out as well, because there are fewer tiles than would keep the threads busy, or one sequence may be so much
    // longer than others that the few tiles of its heads take most of the time. Changes no result.
    bool    splits(int threads) const {
        const bool uneven = tiles_per_head == 1 && chunks >= LONG;
        return (tiles < TILES * threads || uneven) && chunks > 1 && partials() <= PARTIALS;
    }
    // What threads take turns at: whole streams if there are enough of them, and none may have much more to do than others.
    // The heads of a cell lie side by side, and a core that reads one of them gets its neighbours from memory as well.
    int64_t turns(int threads) const {
        return k->ne[3] >= TILES * threads && tiles_per_head == 1 ? k->ne[3] : tiles;
    }
    int64_t looks() const { return blocks * q->ne[1] * q->ne[3]; }
    int64_t partials() const { return all_rows() * chunks * partial * static_cast<int64_t>(sizeof(float)); }
    int64_t all_rows() const { return rows * k->ne[2] * k->ne[3]; }
    // Rows of one head that are needed: the first ones.
    int64_t needed_rows(int64_t stream) const { return used != nullptr ? used[stream] * shared : rows; }

    const ggml_tensor *q, *k, *v, *mask, *sinks, *out;
    int64_t shared;          // heads of queries for one of the cache
    int64_t rows;            // for one head of the cache: tokens times `shared`
    const int32_t * used;    // tokens of each stream that are needed; null: all
    int64_t tile_rows;
    int64_t tiles_per_head;
    int64_t tiles;
    int64_t chunks;
    int64_t partial;         // floats of one row's partial result
    int64_t blocks;          // of cells that a token is looked at for
};

// Some rows of one head of the cache in one stream; none, in the first tiles of a head, where fewer rows are needed. The last rows come
// first: they see most cells, and what is done last should not take long.
struct Tile {
    Tile(const Plan & plan, int64_t index) :
        plan(plan),
        stream(index / plan.tiles_per_head / plan.k->ne[2]),
        head(index / plan.tiles_per_head % plan.k->ne[2]),
        begin(rows_before(plan.tiles_per_head - 1 - index % plan.tiles_per_head)),
        count(rows_before(plan.tiles_per_head - index % plan.tiles_per_head) - begin) {}

    // Of this head, in tiles of about the same size.
    int64_t rows_before(int64_t tile) const {
        const int64_t rows = plan.needed_rows(stream), tiles = (rows + plan.tile_rows - 1) / plan.tile_rows;
        return tile < tiles ? rows * tile / tiles : rows;
    }

    int64_t token(int64_t row) const { return (begin + row) / plan.shared; }
    int64_t query_head(int64_t row) const { return head * plan.shared + (begin + row) % plan.shared; }
    // The place of a row among all rows.
    int64_t place(int64_t row) const { return (stream * plan.k->ne[2] + head) * plan.rows + begin + row; }

    // One chunk; the result of row i goes to `partials + i * stride`. `looks` are those of all tokens.
    void attend(const AttentionKernel & kernel, uint8_t * looks, int64_t chunk, float * partials, int64_t stride) const {
        AttentionRow rows[MOST_QUERIES];
        for (int64_t i = 0; i < count; i++) {
            const auto * mask = plan.mask == nullptr
                                    ? nullptr
                                    : at<const uint16_t>(plan.mask, token(i), 0, stream % plan.mask->ne[3]);
            uint8_t * const of_token = looks + (stream * plan.q->ne[1] + token(i)) * plan.blocks;
            rows[i] = {at<const float>(plan.q, token(i), query_head(i), stream), mask, of_token, partials + i * stride};
        }
        AttentionCells cells;
        cells.type         = plan.k->type;
        cells.keys         = at<const char>(plan.k, 0, head, stream);
        cells.values       = at<const char>(plan.v, 0, head, stream);
        cells.key_stride   = plan.k->nb[1];
        cells.value_stride = plan.v->nb[1];
        cells.key_depth    = plan.k->ne[0];
        cells.value_depth  = plan.v->ne[0];
        cells.begin        = chunk * CHUNK;
        cells.end          = std::min(cells.begin + CHUNK, plan.k->ne[1]);
        std::memcpy(&cells.scale, plan.out->op_params, sizeof cells.scale);
        std::memcpy(&cells.cap, plan.out->op_params + 2, sizeof cells.cap);
        kernel.attend(cells, rows, count);
    }

    const Plan & plan;
    int64_t      stream, head, begin, count;
};

// Writes what a row has come to. A sink is one cell more, of which its head knows the score, without a value.
void finish(const AttentionKernel & kernel, const Tile & tile, int64_t row, float * partial) {
    const Plan & plan = tile.plan;
    if (plan.sinks != nullptr) {
        alignas(ALIGNMENT) float sink[PARTIAL_VALUES + WIDEST_HEAD] = {};
        sink[PARTIAL_MOST] = static_cast<const float *>(plan.sinks->data)[tile.query_head(row)] * LOG2_E;
        sink[PARTIAL_SUM]  = 1;
        kernel.merge(partial, sink, plan.v->ne[0]);
    }
    // The result is heads by tokens, unlike the queries.
    kernel.finish(partial, plan.v->ne[0], at<float>(plan.out, tile.query_head(row), tile.token(row), tile.stream));
}

// All chunks, one after the other.
void attend_all(const AttentionKernel & kernel, uint8_t * looks, const Tile & tile) {
    if (tile.count == 0) {
        return;
    }
    alignas(ALIGNMENT) float sums[MOST_QUERIES][PARTIAL_VALUES + WIDEST_HEAD];
    alignas(ALIGNMENT) float some[MOST_QUERIES][PARTIAL_VALUES + WIDEST_HEAD];
    tile.attend(kernel, looks, 0, sums[0], PARTIAL_VALUES + WIDEST_HEAD);
    for (int64_t chunk = 1; chunk < tile.plan.chunks; chunk++) {
        tile.attend(kernel, looks, chunk, some[0], PARTIAL_VALUES + WIDEST_HEAD);
        for (int64_t row = 0; row < tile.count; row++) {
            kernel.merge(sums[row], some[row], tile.plan.v->ne[0]);
        }
    }
    for (int64_t row = 0; row < tile.count; row++) {
        finish(kernel, tile, row, sums[row]);
    }
}

}  // namespace

bool Attention::takes(const ggml_tensor * op) const {
    if (op->op != GGML_OP_FLASH_ATTN_EXT) {
        return false;
    }
    const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3], *sinks = op->src[4];
    float bias;
    std::memcpy(&bias, op->op_params + 1, sizeof bias);
    const auto whole = [&](int64_t n) {
        return n % kernel_.rows == 0 && n % ggml_blck_size(k->type) == 0 && n <= WIDEST_HEAD;
    };
    const auto plain = [](const ggml_tensor * tensor, ggml_type type) {
        return tensor->type == type && tensor->nb[0] == ggml_type_size(type);
    };
    return plain(q, GGML_TYPE_F32) && (plain(k, GGML_TYPE_F16) || plain(k, GGML_TYPE_Q8_0)) && plain(v, k->type) && whole(k->ne[0]) &&
           whole(v->ne[0]) && k->ne[1] % kernel_.rows == 0 && q->ne[2] % k->ne[2] == 0 && v->ne[2] == k->ne[2] &&
           q->ne[3] == k->ne[3] && v->ne[3] == k->ne[3] && bias == 0 &&
           (sinks == nullptr || plain(sinks, GGML_TYPE_F32)) && (mask == nullptr || (plain(mask, GGML_TYPE_F16) && mask->ne[2] == 1));
}

bool Attention::work_size(int threads, const ggml_tensor * op, size_t & size) {
    const Plan plan(op, kernel_, threads, nullptr);
    Passes::forget();
    size = plan.looks() + (plan.splits(threads) ? plan.partials() + ALIGNMENT : 0);
    return true;
}

bool Attention::compute_forward(ggml_compute_params * params, ggml_tensor * op) {
    Pass * const   pass   = passes.of(params->threadpool);
    const Needed * needed = needed_of(pass);
    const Plan     plan(op, kernel_, params->nth, needed);
    void *         room   = static_cast<uint8_t *>(params->wdata) + plan.looks();
    size_t         size   = params->wsize - plan.looks();
    const bool     splits = plan.splits(params->nth) && std::align(ALIGNMENT, plan.partials(), room, size) != nullptr;
    auto * const   all    = static_cast<float *>(room);

    Shared * const  shared    = pass != nullptr ? &pass->looks : nullptr;
    const bool      shares    = shared != nullptr && shared->has_room(*params, plan.looks());
    uint8_t * const looks     = static_cast<uint8_t *>(shares ? shared->memory() : params->wdata);
    const bool      are_there = shares && shared->is(plan.mask, nullptr, plan.looks());
    if (!are_there) {
        const auto [begin, end] = share(plan.looks(), *params);
        std::memset(looks + begin, LOOK_UNKNOWN, end - begin);
        ggml_barrier(params->threadpool);
        if (params->ith == 0 && shares) {
            shared->become(plan.mask, nullptr, plan.looks());
        }
    }

    if (!splits) {
        const int64_t turns = plan.turns(params->nth);
        take_shares(pass, *params, turns, [&](int64_t turn) {
            const auto [begin, end] = share(plan.tiles, turn, turns);
            for (int64_t i = begin; i < end; i++) {
                attend_all(kernel_, looks, Tile(plan, i));
            }
        });
        return true;
    }

    // A chunk's heads one after the other: see turns().
    const int64_t tiles = plan.tiles / plan.k->ne[3];  // of a stream
    take_shares(pass, *params, plan.tiles * plan.chunks, [&](int64_t turn) {
        const Tile    tile(plan, turn / (tiles * plan.chunks) * tiles + turn % tiles);
        const int64_t chunk = turn / tiles % plan.chunks;
        if (tile.count > 0) {
            float * const to = all + (tile.place(0) * plan.chunks + chunk) * plan.partial;
            tile.attend(kernel_, looks, chunk, to, plan.chunks * plan.partial);
        }
    });
    ggml_barrier(params->threadpool);
    for (int64_t i = params->ith; i < plan.tiles; i += params->nth) {
        const Tile tile(plan, i);
        for (int64_t row = 0; row < tile.count; row++) {
            float * sum = all + tile.place(row) * plan.chunks * plan.partial;
            for (int64_t chunk = 1; chunk < plan.chunks; chunk++) {
                kernel_.merge(sum, sum + chunk * plan.partial, plan.v->ne[0]);
            }
            finish(kernel_, tile, row, sum);
        }
    }
    return true;
}

}  // namespace llgtrt::repack
