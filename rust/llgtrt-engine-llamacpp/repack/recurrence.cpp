// Layers that remember in a state, one row of a cache for each sequence.
//
// llama.cpp gathers the rows of a pass, has ggml make new ones of them, and copies those back: up to six times the bytes of a state for each
// token of an answer, where two would do. Where each row comes from the place that it is copied back to, it is changed in its place here.

#include "recurrence_op.h"

#include "pass.h"
#include "tensors.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace llgtrt::repack {
namespace {

int64_t stride(const ggml_tensor * tensor, int dimension) {
    return static_cast<int64_t>(tensor->nb[dimension] / sizeof(float));
}

// Whether nothing is computed, but what is there read in another shape.
bool is_view(const ggml_tensor * op) {
    return op->op == GGML_OP_VIEW || op->op == GGML_OP_RESHAPE || op->op == GGML_OP_PERMUTE || op->op == GGML_OP_TRANSPOSE;
}

// Whether it is channels, each with the elements of tokens behind it, which lie there token by token.
bool is_extension(const ggml_tensor * op) {
    const ggml_tensor *channels = op->src[0], *tokens = op->src[1];
    return op->op == GGML_OP_CONCAT && op->op_params[0] == 0 && is_plain(op) && is_plain(channels) && tokens->type == GGML_TYPE_F32 &&
           tokens->nb[1] == sizeof(float) && op->ne[3] == 1;
}

bool is_convolution(const ggml_tensor * op) {
    return op->op == GGML_OP_SSM_CONV && is_plain(op) && is_plain(op->src[0]) && is_plain(op->src[1]) && ggml_is_contiguous(op->src[1]);
}

// Whether it is a copy of some elements of each channel to a row of a cache: those that the next token's convolution begins with, or another's.
bool is_end(const ggml_tensor * copy) {
    const ggml_tensor * const from = copy->src[0];
    return copy->op == GGML_OP_CPY && from->op == GGML_OP_VIEW && is_extension(from->view_src) && is_plain(from) && is_plain(copy) &&
           copy->ne[0] == from->ne[0] * from->ne[1] && copy->ne[1] == from->ne[2] && copy->ne[2] == 1 && from->ne[3] == 1;
}

// Calls `some` with channels of one sequence, so many that what is written of a token fills cache lines, as the threads of a pass share them.
template <class Some>
void for_channels(ggml_compute_params & params, int64_t channels, int64_t sequences, const Some & some) {
    constexpr int64_t AT_ONCE = 64;
    const int64_t     parts   = (channels + AT_ONCE - 1) / AT_ONCE;
    take_shares(passes.of(params.threadpool), params, parts * sequences, [&](int64_t turn) {
        const int64_t begin = turn % parts * AT_ONCE;
        some(Range{begin, std::min(begin + AT_ONCE, channels)}, turn / parts);
    });
}

// Whether it is rows of a cache, which some list names.
bool is_gather(const ggml_tensor * op) {
    const ggml_tensor *cache = op->src[0], *places = op->src[1];
    return op->op == GGML_OP_GET_ROWS && cache->op == GGML_OP_RESHAPE && is_plain(cache) && is_plain(op) && ggml_is_contiguous(op) &&
           ggml_is_contiguous(cache) && places->type == GGML_TYPE_I32 && ggml_is_contiguous(places) && ggml_is_vector(places);
}

// The gather that a tensor is a part of; null: none.
const ggml_tensor * gather_of(const ggml_tensor * tensor) {
    const ggml_tensor * const whole = tensor->view_src != nullptr ? tensor->view_src : tensor;
    return is_gather(whole) ? whole : nullptr;
}

// An operation that makes new states of old ones, and beside that what queries find in them, which its result begins with.
struct Rule {
    // `op` is one of a gated delta rule, or of a state space (Mamba 2).
    explicit Rule(const ggml_tensor * op) :
        op(op),
        corrects(op->op == GGML_OP_GATED_DELTA_NET),
        queries(op->src[corrects ? 0 : 5]),
        keys(op->src[corrects ? 1 : 4]),
        values(op->src[corrects ? 2 : 1]),
        rates(op->src[corrects ? 4 : 2]),
        decays(op->src[3]),
        states(op->src[corrects ? 5 : 0]) {}

    static bool is_one(const ggml_tensor * op) { return op->op == GGML_OP_GATED_DELTA_NET || op->op == GGML_OP_SSM_SCAN; }

    int64_t sequences() const { return values->ne[3]; }
    int64_t tokens() const { return values->ne[2]; }
    int64_t heads() const { return values->ne[1]; }
    int64_t width() const { return values->ne[0]; }
    int64_t depth() const { return keys->ne[0]; }
    int64_t of_head() const { return width() * depth(); }
    int64_t all() const { return of_head() * heads() * sequences(); }
    // How many states of each sequence it has the room for, and makes: those behind its last tokens.
    int64_t room() const { return op->op_params[0]; }
    int64_t made() const { return std::min<int64_t>(room(), tokens()); }
    // Bytes before the new states.
    size_t before() const { return ggml_nelements(values) * sizeof(float); }

    // The rows of the cache that the old states are, and what names them. Null: they come from elsewhere.
    const ggml_tensor * gather() const {
        const ggml_tensor * const gather = corrects ? gather_of(states) : nullptr;
        return gather != nullptr && states->view_offs == 0 && gather->nb[1] == states->nb[3] ? gather : nullptr;
    }
    const ggml_tensor * cache() const { return !corrects ? states : gather() != nullptr ? gather()->src[0] : nullptr; }
    // Where all states of the pass come from, those of the rule first.
    const ggml_tensor * list() const {
        const ggml_tensor * const places = corrects ? gather()->src[1] : op->src[6];
        return places->view_src != nullptr && places->view_offs == 0 ? places->view_src : places;
    }
    size_t row() const { return states->nb[3]; }

    const ggml_tensor * op;
    bool                corrects;
    const ggml_tensor *queries, *keys, *values, *rates, *decays, *states;
};

// The operation whose new states a copy is of, all of them and nothing else; null: it is another copy. Where several
// states of a sequence are kept, that behind its last token comes first, then that behind the token before it: each has a part of the cache.
const ggml_tensor * rule_of(const ggml_tensor * copy) {
    const ggml_tensor * const states = copy->src[0];
    if (copy->op != GGML_OP_CPY || states->view_src == nullptr || !Rule::is_one(states->view_src)) {
        return nullptr;
    }
    const Rule rule(states->view_src);
    const bool are_together = copy->nb[1] == copy->ne[0] * sizeof(float) && copy->ne[0] * copy->ne[1] == rule.all();
    return is_plain(copy) && are_together && copy->ne[2] == rule.made() && ggml_is_contiguous(states) &&
                   states->view_offs == rule.before() && ggml_nelements(states) == rule.made() * rule.all()
               ? rule.op
               : nullptr;
}

// Whether a copy is of the last rows of a gather: llama.cpp moves states of sequences that have no tokens in a pass, most often none.
bool is_rest(const ggml_tensor * copy) {
    return copy->op == GGML_OP_CPY && copy->src[0]->op == GGML_OP_VIEW && gather_of(copy->src[0]) != nullptr;
}

// Who is to know of whom is found where a graph is planned: a rule of the copy of its states, and a gather of the rule or else the copy that is
// its only reader, or of itself if there are others. ggml has no use for this pointer of what its CPU backend computes.
void link(const ggml_tensor * from, const ggml_tensor * to) {
    const_cast<ggml_tensor *>(from)->extra = const_cast<ggml_tensor *>(to);
}

const ggml_tensor * linked(const ggml_tensor * from) {
    return static_cast<const ggml_tensor *>(from->extra);
}

// Where the states of a rule stay, if they do; null: they do not. The threads of a pass all find the same, in each of the operations: what it is
// found by changes between passes alone.
float * place_of(const Rule & rule) {
    const ggml_tensor *copy = linked(rule.op), *cache = rule.cache();
    if (copy == nullptr || cache == nullptr || linked(copy) != rule.op || copy->view_src != cache->view_src) {
        return nullptr;
    }
    const auto offset = static_cast<const char *>(copy->data) - static_cast<const char *>(cache->data);
    const auto row    = static_cast<ptrdiff_t>(rule.row());
    if (offset < 0 || offset % row != 0) {
        return nullptr;
    }
    const ggml_tensor * const list  = rule.list();
    const auto * const        from  = static_cast<const int32_t *>(list->data);
    const int64_t             first = offset / row, count = rule.sequences();
    // Rows of a part of the cache: all of them where only the last state is kept.
    const int64_t part = rule.room() > 1 ? static_cast<int64_t>(copy->nb[2]) / row : cache->ne[rule.corrects ? 1 : 3];
    for (int64_t i = 0; i < list->ne[0]; i++) {
        // A sequence goes on from its own row in any part, and those of others are gathered behind the rule of a state space: from
        // rows that are written in none, that is.
        const int64_t own = from[i] % part;
        if (i < count ? own != first + i : own >= first && own < first + count) {
            return nullptr;
        }
    }
    return static_cast<float *>(copy->data);
}

// How many of the first rows of a gather nobody reads.
int64_t unread(const ggml_tensor * gather) {
    const ggml_tensor * const reader = linked(gather);
    if (reader == nullptr || reader == gather) {
        return 0;
    }
    if (reader->op == GGML_OP_CPY) {
        return static_cast<int64_t>(reader->src[0]->view_offs / gather->nb[1]);
    }
    const Rule rule(reader);
    return place_of(rule) != nullptr ? rule.sequences() : 0;
}

}  // namespace

void Recurrence::see(const ggml_tensor * op) const {
    for (const ggml_tensor * from : op->src) {
        const ggml_tensor * const gather = from != nullptr ? gather_of(from) : nullptr;
        if (gather == nullptr || linked(gather) == gather || is_view(op) || is_rest(op)) {
            continue;
        }
        // Whoever is no rule of ours reads all of it.
        if (!Rule::is_one(op) || !takes(op) || Rule(op).gather() != gather) {
            link(gather, gather);
        }
    }
}

bool Recurrence::takes(const ggml_tensor * op) const {
    if (is_extension(op) || is_convolution(op)) {
        return op->src[0]->ne[1] % kernel_.rows == 0;
    }
    if (is_end(op)) {
        return true;
    }
    if (!Rule::is_one(op)) {
        return is_gather(op) || is_rest(op) || (rule_of(op) != nullptr && takes(rule_of(op)));
    }
    const Rule rule(op);
    const auto fits = [](const ggml_tensor * tensor) { return is_plain(tensor) && ggml_is_contiguous_rows(tensor); };
    // With a decay for each head, not for each element.
    return fits(rule.queries) && fits(rule.keys) && fits(rule.values) && fits(rule.rates) && fits(rule.decays) &&
           (!rule.corrects || (ggml_is_contiguous(rule.rates) && ggml_is_contiguous(rule.decays))) && is_plain(rule.states) &&
           ggml_is_contiguous(rule.states) && rule.decays->ne[0] == 1 && rule.queries->ne[0] == rule.depth() &&
           rule.depth() <= WIDEST_STATE && rule.width() <= WIDEST_STATE && rule.depth() % kernel_.rows == 0 &&
           rule.width() % kernel_.state_values == 0 && rule.queries->ne[3] == rule.sequences() && rule.keys->ne[3] == rule.sequences();
}

bool Recurrence::work_size(int, const ggml_tensor * op, size_t & size) {
    Passes::forget();
    link(op, nullptr);
    if (Rule::is_one(op)) {
        const ggml_tensor * const gather = Rule(op).gather();
        if (gather != nullptr && linked(gather) != gather) {
            link(gather, op);
        }
        size = 0;
        return true;
    }
    if (is_rest(op)) {
        const ggml_tensor * const gather = gather_of(op->src[0]);
        link(gather, linked(gather) == nullptr ? op : gather);
    }
    if (const ggml_tensor * const rule = rule_of(op)) {
        link(rule, op);
        link(op, rule);
    }
    return false;
}

bool Recurrence::compute_forward(ggml_compute_params * params, ggml_tensor * op) {
    switch (op->op) {
        case GGML_OP_GATED_DELTA_NET:
        case GGML_OP_SSM_SCAN:
            remember(*params, *op);
            return true;
        case GGML_OP_CONCAT:
            extend(*params, *op);
            return true;
        case GGML_OP_SSM_CONV:
            convolve(*params, *op);
            return true;
        case GGML_OP_GET_ROWS: {
            const int64_t first = unread(op);
            if (first == 0) {
                return false;
            }
            const auto * const places = static_cast<const int32_t *>(op->src[1]->data);
            for (int64_t i = first + params->ith; i < op->ne[1]; i += params->nth) {
                std::memcpy(at(op, i, 0), at(op->src[0], places[i], 0), op->nb[1]);
            }
            return true;
        }
        default:
            if (is_end(op)) {
                keep_end(*params, *op);
                return true;
            }
            return linked(op) != nullptr && place_of(Rule(linked(op))) != nullptr;
    }
}

void Recurrence::remember(ggml_compute_params & params, ggml_tensor & op) const {
    // Heads are shared out as a whole where there are enough of them to keep the threads busy, because what belongs to a head's tokens is found
    // once then.
    constexpr int64_t BUSY = 4;
    const Rule        rule(&op);
    const int64_t     heads = rule.heads(), all = heads * rule.sequences(), width = rule.width();
    const int64_t     parts = all >= BUSY * params.nth ? 1 : width / kernel_.state_values;
    float * const     place = place_of(rule);
    float * const     to    = place != nullptr ? place : reinterpret_cast<float *>(static_cast<char *>(op.data) + rule.before());
    const int64_t     apart = place != nullptr ? stride(linked(&op), 2) : rule.all();
    const auto *      from  = place != nullptr || !rule.corrects ? static_cast<const int32_t *>(rule.list()->data) : nullptr;
    const auto        of    = [heads, &rule](const ggml_tensor * tensor, int64_t head, int64_t sequence) {
        // Heads that share keys or queries are neighbours in one kind, and as far apart as there are of those in the other.
        return at(tensor, rule.corrects ? head % tensor->ne[1] : head / (heads / tensor->ne[1]), 0, sequence);
    };
    take_shares(passes.of(params.threadpool), params, all * parts, [&](int64_t turn) {
        const int64_t i = turn / parts, h = i % heads, sequence = i / heads, part = turn % parts;
        StateHead     head;
        head.corrects     = rule.corrects;
        head.depth        = rule.depth();
        head.width        = width;
        head.tokens       = rule.tokens();
        head.queries      = of(rule.queries, h, sequence);
        head.keys         = of(rule.keys, h, sequence);
        head.values       = of(rule.values, h, sequence);
        head.query_stride = stride(rule.queries, 2);
        head.key_stride   = stride(rule.keys, 2);
        head.value_stride = stride(rule.values, 2);
        if (rule.corrects) {
            head.decays        = at(rule.decays, h, 0, sequence);
            head.rates         = at(rule.rates, h, 0, sequence);
            head.number_stride = stride(rule.rates, 2);
            head.scale         = 1 / std::sqrt(static_cast<float>(width));
        } else {
            head.decay         = *at(rule.decays, h, 0);
            head.rates         = at(rule.rates, 0, sequence) + h;
            head.number_stride = stride(rule.rates, 1);
            head.scale         = 1;
        }
        // Of the rows of the cache, or those that were gathered.
        const auto * const old = static_cast<const char *>((place != nullptr ? rule.cache() : rule.states)->data);
        const int64_t      row = from != nullptr ? from[sequence] : sequence;
        head.from              = reinterpret_cast<const float *>(old + row * rule.row()) + h * rule.of_head();
        head.to                = to + i * rule.of_head();
        head.kept              = rule.made();
        head.kept_stride       = apart;
        head.out             = static_cast<float *>(op.data) + (sequence * head.tokens * heads + h) * width;
        head.out_stride      = heads * width;
        kernel_.remember(head, width * part / parts, width * (part + 1) / parts);
    });
}

void Recurrence::extend(ggml_compute_params & params, ggml_tensor & op) const {
    const ggml_tensor *channels = op.src[0], *tokens = op.src[1];
    const int64_t      before = channels->ne[0];
    for_channels(params, op.ne[1], op.ne[2], [&](Range some, int64_t sequence) {
        for (int64_t c = some.begin; c < some.end; c++) {
            std::copy_n(at(channels, c, sequence), before, at(&op, c, sequence));
        }
        const float * const from = at(tokens, some.begin, sequence);
        float * const       to   = at(&op, some.begin, sequence) + before;
        kernel_.gather_channels(from, stride(tokens, 0), tokens->ne[0], some.end - some.begin, to, stride(&op, 1));
    });
}

// ggml counts its way through both tensors, an element at a time.
void Recurrence::keep_end(ggml_compute_params & params, ggml_tensor & copy) const {
    const ggml_tensor * const from  = copy.src[0];
    const int64_t             count = from->ne[0];
    for_channels(params, from->ne[1], from->ne[2], [&](Range some, int64_t sequence) {
        float * to = at(&copy, sequence, 0) + some.begin * count;
        for (int64_t c = some.begin; c < some.end; c++, to += count) {
            const float * const channel = at(from, c, sequence);
            for (int64_t i = 0; i < count; i++) {
                to[i] = channel[i];
            }
        }
    });
}

void Recurrence::convolve(ggml_compute_params & params, ggml_tensor & op) const {
    const ggml_tensor *from = op.src[0], *weights = op.src[1];
    for_channels(params, from->ne[1], from->ne[2], [&](Range some, int64_t sequence) {
        const Channels channels = {
            at(from, some.begin, sequence), at(weights, some.begin, 0), stride(from, 1), weights->ne[0], some.end - some.begin};
        kernel_.convolve(channels, op.ne[1], at(&op, 0, sequence) + some.begin, stride(&op, 1));
    });
}

}  // namespace llgtrt::repack
