// Drives the plugin over its C interface alone, in one process, for the sanitizers: every field of a request, every
// fault of the stand-in, cancellation at any moment, live requests at the end.
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "check.h"
#include "llgtrt_trtllm.h"

namespace {

constexpr int32_t kVocab = 257;
constexpr int32_t kMark = '!';
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

template <class T>
T sized() {
  T value{};
  value.struct_size = sizeof(T);
  return value;
}

std::string make_folder(std::string const& switches, char const* dtype = "float32") {
  char name[] = "/tmp/llgtrt-driver-XXXXXX";
  CHECK(mkdtemp(name) != nullptr);
  std::string const folder = name;
  std::ofstream(folder + "/rank0.engine") << "";
  std::ofstream(folder + "/standin.conf") << switches;
  std::ofstream(folder + "/config.json")
      << "{\"pretrained_config\":{\"vocab_size\":257,\"logits_dtype\":\"" << dtype
      << "\"},\"build_config\":{\"max_batch_size\":4,\"max_seq_len\":512,\"max_num_tokens\":256,"
         "\"max_beam_width\":4,\"tokens_per_block\":16}}";
  return folder;
}

/// What the callback does; changed only while no request is live.
struct Masks {
  bool fail = false;
  bool measure = false;
  std::map<uint64_t, size_t> prompt_lengths;
  size_t rows = 0;
};

int32_t fill(void* user, llgtrt_trtllm_row const* rows, size_t count, uint32_t* masks, size_t words_per_row,
             llgtrt_trtllm_row_plan* plans) {
  auto& state = *static_cast<Masks*>(user);
  CHECK(words_per_row == (kVocab + 31) / 32);
  for (size_t i = 0; i < count; ++i) {
    CHECK(rows[i].struct_size == sizeof(llgtrt_trtllm_row) && rows[i].columns == 320);
    CHECK(rows[i].tokens != nullptr && rows[i].token_count > 0);
    ++state.rows;
    // Even tokens, and the end.
    for (size_t word = 0; word < words_per_row; ++word) masks[i * words_per_row + word] = 0x55555555U;
    plans[i].apply_mask = 1;
    plans[i].temperature = 0.8F;
    plans[i].min_p = 0.01F;
    plans[i].report_removed_mass = state.measure ? 1 : 0;
    plans[i].keep_logits = state.measure ? 1 : 0;
  }
  return state.fail ? 1 : 0;
}

llgtrt_trtllm_lists no_lists() { return sized<llgtrt_trtllm_lists>(); }

class Engine {
 public:
  explicit Engine(std::string const& switches, char const* dtype = "float32") : folder_(make_folder(switches, dtype)) {
    auto config = sized<llgtrt_trtllm_config>();
    config.engine_dir = folder_.c_str();
    config.callbacks = sized<llgtrt_trtllm_callbacks>();
    config.callbacks.user = &masks;
    config.callbacks.fill = fill;
    config.vocab_size = kVocab;
    config.logits_dtype = std::strcmp(dtype, "float32") == 0 ? LLGTRT_FP32 : LLGTRT_FP16;
    config.scheduler_policy = 1;
    config.chunking_policy = 0;
    config.max_beam_width = 4;
    config.max_batch_size = 4;
    config.max_num_tokens = 128;
    config.max_queue_size = 100;
    config.enable_chunked_context = 1;
    config.normalize_log_probs = 1;
    config.enable_batch_size_tuning = 1;
    config.enable_max_num_tokens_tuning = 1;
    config.tuning_window = 64;
    config.iter_stats_max_iterations = 100;
    config.gather_generation_logits = 1;
    config.gpu_weights_percent = 1.0F;
    config.kv_enable_reuse = 1;
    config.kv_max_tokens = LLGTRT_UNSET;
    config.kv_sink_token_length = 4;
    config.kv_secondary_offload_min_priority = 20;
    config.kv_free_gpu_mem_fraction = 0.9F;
    config.kv_cross_fraction = kNone;
    config.kv_host_cache_bytes = 1 << 20;
    int32_t const windows[] = {512, 256};
    config.kv_attention_windows = windows;
    config.kv_attention_window_count = 2;
    config.multi_block_mode = 1;
    config.decoding_mode = LLGTRT_DECODING_EAGLE;
    int32_t const ids[] = {0, 0, 1};
    size_t const ends[] = {1, 3};
    config.eagle_choices = {sizeof(llgtrt_trtllm_lists), ids, ends, 2};
    config.medusa_choices = config.eagle_choices;
    config.lookahead_window = LLGTRT_UNSET;
    config.eagle_dynamic_tree_max_top_k = LLGTRT_UNSET;
    config.eagle_posterior_threshold = 0.1F;
    config.lora_optimal_adapter_size = 8;
    config.lora_max_adapter_size = 16;
    config.lora_device_cache_fraction = 0.1F;
    config.lora_host_cache_bytes = 1 << 20;
    int32_t const devices[] = {0};
    config.device_ids = devices;
    config.device_id_count = 1;
    status = llgtrt_trtllm_create(&config, &engine);
  }

  ~Engine() {
    llgtrt_trtllm_destroy(engine);
    for (char const* file : {"rank0.engine", "standin.conf", "config.json"}) unlink((folder_ + "/" + file).c_str());
    rmdir(folder_.c_str());
  }

  llgtrt_trtllm_engine* engine = nullptr;
  llgtrt_trtllm_status status;
  Masks masks;

 private:
  std::string folder_;
};

/// A request with a text for a prompt.
struct Request {
  explicit Request(std::string const& text, uint64_t client, int32_t max_tokens) : tokens(text.begin(), text.end()) {
    plain = sized<llgtrt_trtllm_request>();
    plain.client_id = client;
    plain.tokens = tokens.data();
    plain.token_count = tokens.size();
    plain.max_tokens = max_tokens;
    plain.streaming = 1;
    plain.end_id = LLGTRT_UNSET;
    plain.pad_id = LLGTRT_UNSET;
    plain.stop_words = no_lists();
    plain.bad_words = no_lists();
    plain.priority = kNone;
    plain.allotted_time_ms = -1;
    auto none = sized<llgtrt_trtllm_tensor>();
    plain.lora_weights = plain.lora_config = plain.prompt_table = plain.mrope_cos_sin = none;
    plain.encoder_features = plain.cross_attention_mask = plain.skip_cross_attention = none;
    plain.encoder_output_length = LLGTRT_UNSET;
    plain.decode_retention_priority = LLGTRT_UNSET;
    plain.decode_retention_ms = -1;
    plain.lookahead_window = LLGTRT_UNSET;
    auto& sampling = plain.sampling;
    sampling = sized<llgtrt_trtllm_sampling>();
    sampling.beam_width = 1;
    sampling.num_return_sequences = 1;
    sampling.top_k = LLGTRT_UNSET;
    sampling.top_p = 0.95F;
    sampling.top_p_min = sampling.top_p_decay = sampling.temperature = sampling.min_p = kNone;
    sampling.top_p_reset_id = sampling.min_tokens = sampling.early_stopping = LLGTRT_UNSET;
    sampling.no_repeat_ngram_size = LLGTRT_UNSET;
    sampling.repetition_penalty = sampling.presence_penalty = sampling.frequency_penalty = kNone;
    sampling.length_penalty = sampling.beam_diversity_rate = kNone;
    sampling.has_seed = 1;
    sampling.seed = client;
  }

  uint64_t submit(Engine& engine) {
    uint64_t id = 0;
    CHECK(llgtrt_trtllm_submit(engine.engine, &plain, &id) == LLGTRT_OK);
    return id;
  }

  std::vector<int32_t> tokens;
  llgtrt_trtllm_request plain{};
};

struct Answer {
  /// Of each sequence, the first beam.
  std::map<int32_t, std::vector<int32_t>> tokens;
  size_t beams = 0;
  int32_t reason = 0;
  std::string error;
  bool lora_missing = false;
  bool final = false;
  int32_t reused = -1;
  size_t log_probs = 0;
  size_t context_rows = 0;
  size_t generation_rows = 0;
};

/// Waits until `count` requests have ended.
std::map<uint64_t, Answer> finish(Engine& engine, size_t count) {
  std::map<uint64_t, Answer> answers;
  size_t ended = 0;
  while (ended < count) {
    llgtrt_trtllm_response const* responses = nullptr;
    size_t size = 0;
    CHECK(llgtrt_trtllm_await(engine.engine, 1000, &responses, &size) == LLGTRT_OK);
    for (size_t i = 0; i < size; ++i) {
      auto const& response = responses[i];
      auto& answer = answers[response.request_id];
      if (response.error != nullptr) answer.error = response.error;
      answer.lora_missing |= response.lora_missing != 0;
      answer.beams = std::max(answer.beams, response.tokens.count);
      auto& tokens = answer.tokens[response.sequence_index];
      if (response.tokens.count > 0)
        tokens.insert(tokens.end(), response.tokens.ids, response.tokens.ids + response.tokens.ends[0]);
      answer.reason = response.finish_reason;
      answer.reused = std::max(answer.reused, response.reused_blocks);
      for (size_t p = 0; p < response.log_prob_count; ++p) CHECK(response.log_probs[p] <= 1e-5F);
      answer.log_probs += response.log_prob_count;
      if (response.context_logits.data != nullptr) answer.context_rows += static_cast<size_t>(response.context_logits.shape[0]);
      if (response.generation_logits.data != nullptr)
        answer.generation_rows += static_cast<size_t>(response.generation_logits.shape[0]);
      if (response.is_final != 0 && !answer.final) {
        answer.final = true;
        ++ended;
      }
    }
  }
  return answers;
}

void wrong_arguments() {
  CHECK(llgtrt_trtllm_abi_version() == LLGTRT_TRTLLM_ABI_VERSION);
  CHECK(std::string(llgtrt_trtllm_version()).find("1.2") == 0);
  llgtrt_trtllm_engine* engine = nullptr;
  CHECK(llgtrt_trtllm_create(nullptr, &engine) == LLGTRT_INVALID);
  auto config = sized<llgtrt_trtllm_config>();
  config.struct_size -= 8;
  CHECK(llgtrt_trtllm_create(&config, &engine) == LLGTRT_INVALID && engine == nullptr);
  CHECK(std::strlen(llgtrt_trtllm_last_error()) > 0);
  config.struct_size += 8;
  CHECK(llgtrt_trtllm_create(&config, nullptr) == LLGTRT_INVALID);
  CHECK(llgtrt_trtllm_create(&config, &engine) == LLGTRT_INVALID);
  CHECK(llgtrt_trtllm_submit(nullptr, nullptr, nullptr) == LLGTRT_INVALID);
  CHECK(llgtrt_trtllm_cancel(nullptr, 1) == LLGTRT_INVALID);
  CHECK(llgtrt_trtllm_is_leader(nullptr) == 0);
  llgtrt_trtllm_forget(nullptr, 1);
  llgtrt_trtllm_destroy(nullptr);
  Engine broken("broken=1\n");
  CHECK(broken.status == LLGTRT_FATAL && broken.engine == nullptr);

  Engine good("");
  CHECK(good.status == LLGTRT_OK && llgtrt_trtllm_is_leader(good.engine) == 1);
  uint64_t id = 0;
  Request request("hello", 1, 4);
  request.plain.sampling.struct_size = 1;
  CHECK(llgtrt_trtllm_submit(good.engine, &request.plain, &id) == LLGTRT_INVALID);
  Request halved("hello", 1, 4);
  float const weights[4] = {};
  halved.plain.has_lora = 1;
  halved.plain.lora_weights = {sizeof(llgtrt_trtllm_tensor), weights, LLGTRT_FP32, 2, {1, 4}};
  CHECK(llgtrt_trtllm_submit(good.engine, &halved.plain, &id) == LLGTRT_INVALID);
  halved.plain.lora_config = {sizeof(llgtrt_trtllm_tensor), weights, 77, 2, {1, 3}};
  CHECK(llgtrt_trtllm_submit(good.engine, &halved.plain, &id) == LLGTRT_INVALID);
  Request biased("hello", 1, 4);
  llgtrt_trtllm_bias const bias{kVocab, 1.0F};
  biased.plain.biases = &bias;
  biased.plain.bias_count = 1;
  CHECK(llgtrt_trtllm_submit(good.engine, &biased.plain, &id) == LLGTRT_INVALID);
}

void plain_and_masked() {
  Engine engine("chunk_tokens=5\n");
  Request plain("a prompt of more than sixteen tokens", 7, 9);
  Request masked("another prompt in several pieces", 8, 9);
  masked.plain.post_process = 1;
  auto const first = plain.submit(engine);
  auto const second = masked.submit(engine);
  auto answers = finish(engine, 2);
  CHECK(answers[first].tokens[0].size() == 9 && answers[first].reason == 3);
  CHECK(answers[second].tokens[0].size() == 9);
  for (auto token : answers[second].tokens[0]) CHECK(token % 2 == 0 && token < kVocab);
  // 32 tokens in pieces of 5, then 8 more steps.
  CHECK(engine.masks.rows == 15);

  auto stats = sized<llgtrt_trtllm_stats>();
  CHECK(llgtrt_trtllm_get_stats(engine.engine, &stats) == LLGTRT_OK);
  CHECK(stats.iterations >= 15 && stats.kv_tokens_per_block == 16 && stats.kv_blocks_max > 0);
  CHECK(std::string(llgtrt_trtllm_stats_json(engine.engine)).find("iter") != std::string::npos);
  auto const again = plain.submit(engine);
  CHECK(finish(engine, 1)[again].tokens[0] == answers[first].tokens[0]);
}

void every_field() {
  Engine engine("", "float16");
  Request request("all that can be asked for, and a few tokens more", 3, 6);
  auto& plain = request.plain;
  int32_t const words[] = {1, 2, 3};
  size_t const ends[] = {2, 3};
  plain.stop_words = {sizeof(llgtrt_trtllm_lists), words, ends, 2};
  plain.bad_words = plain.stop_words;
  plain.end_id = 256;
  plain.pad_id = 256;
  plain.sampling.top_k = 40;
  plain.sampling.top_p_min = 0.1F;
  plain.sampling.top_p_decay = 0.9F;
  plain.sampling.top_p_reset_id = 1;
  plain.sampling.temperature = 0.7F;
  plain.sampling.min_p = 0.02F;
  plain.sampling.min_tokens = 3;
  plain.sampling.repetition_penalty = 1.1F;
  plain.sampling.presence_penalty = 0.1F;
  plain.sampling.frequency_penalty = 0.1F;
  plain.sampling.length_penalty = 1.0F;
  plain.sampling.beam_diversity_rate = 0.5F;
  plain.sampling.early_stopping = 1;
  plain.sampling.no_repeat_ngram_size = 4;
  llgtrt_trtllm_bias const biases[] = {{5, 3.0F}, {5, 1.0F}, {6, -100.0F}};
  plain.biases = biases;
  plain.bias_count = 3;
  plain.return_log_probs = plain.return_context_logits = plain.return_generation_logits = 1;
  plain.return_perf_metrics = 1;
  plain.priority = 0.7F;
  plain.allotted_time_ms = 60000;
  plain.has_cache_salt = 1;
  plain.cache_salt = 9;
  float const floats[12] = {};
  int32_t const integers[3] = {1, 2, 8};
  auto const tensor = [&](int64_t rows, int64_t columns) {
    return llgtrt_trtllm_tensor{sizeof(llgtrt_trtllm_tensor), floats, LLGTRT_FP32, 2, {rows, columns}};
  };
  plain.has_lora = 1;
  plain.lora_task = 4;
  plain.lora_weights = tensor(1, 8);
  plain.lora_config = {sizeof(llgtrt_trtllm_tensor), integers, LLGTRT_INT32, 2, {1, 3}};
  plain.prompt_table = tensor(2, 4);
  std::vector<uint64_t> const extra(request.tokens.size(), 1);
  plain.prompt_extra_ids = extra.data();
  plain.prompt_extra_id_count = extra.size();
  std::vector<int32_t> const positions(request.tokens.size(), 0);
  plain.position_ids = positions.data();
  plain.position_id_count = positions.size();
  plain.mrope_cos_sin = tensor(1, 12);
  plain.mrope_position_deltas = 2;
  plain.encoder_tokens = integers;
  plain.encoder_token_count = 3;
  plain.encoder_features = tensor(3, 4);
  plain.encoder_output_length = 3;
  plain.cross_attention_mask = tensor(3, 4);
  plain.skip_cross_attention = tensor(1, 1);
  auto range = sized<llgtrt_trtllm_retention>();
  range.token_end = LLGTRT_UNSET;
  range.priority = 80;
  range.duration_ms = 1000;
  plain.retention = &range;
  plain.retention_count = 1;
  plain.decode_retention_priority = 10;
  plain.lookahead_window = 4;
  plain.lookahead_ngram = 3;
  plain.lookahead_verification_set = 4;
  auto const id = request.submit(engine);
  auto answer = finish(engine, 1)[id];
  if (!answer.error.empty()) std::fprintf(stderr, "%s\n", answer.error.c_str());
  CHECK(answer.error.empty());
  auto const count = answer.tokens[0].size();
  CHECK(count > 0 && answer.log_probs == count && answer.generation_rows >= count);
  CHECK(answer.context_rows == request.tokens.size() && answer.reused == 0);
}

void several_sequences_and_beams() {
  Engine engine("chunk_tokens=4\n");
  Request several("a prompt with choices", 11, 8);
  several.plain.sampling.num_return_sequences = 3;
  several.plain.post_process = 1;
  auto const first = several.submit(engine);
  auto answer = finish(engine, 1)[first];
  CHECK(answer.tokens.size() == 3);
  for (auto const& [index, tokens] : answer.tokens) {
    CHECK(tokens.size() == 8);
    for (auto token : tokens) CHECK(token % 2 == 0);
  }
  CHECK(answer.tokens[0] != answer.tokens[1] || answer.tokens[1] != answer.tokens[2]);

  Request beams("a prompt with beams", 12, 5);
  beams.plain.sampling.beam_width = 4;
  beams.plain.streaming = 0;
  auto const second = beams.submit(engine);
  answer = finish(engine, 1)[second];
  CHECK(answer.beams == 4 && answer.tokens[0].size() == 5);
}

void measured_rows() {
  for (char const* dtype : {"float32", "float16"}) {
    Engine engine("chunk_tokens=6\n", dtype);
    engine.masks.measure = true;
    Request request("a measured prompt", 21, 5);
    request.plain.post_process = 1;
    auto const id = request.submit(engine);
    finish(engine, 1);
    auto result = sized<llgtrt_trtllm_row_result>();
    for (size_t position : {0, 1, 3, 4}) {
      CHECK(llgtrt_trtllm_row_results(engine.engine, id, request.tokens.size() + position, &result) == LLGTRT_OK);
      CHECK(result.removed_mass > 0.1F && result.removed_mass < 0.9F);
      CHECK(result.logits.data != nullptr && result.logits.rank == 1 && result.logits.shape[0] == 320);
    }
    CHECK(llgtrt_trtllm_row_results(engine.engine, id, request.tokens.size(), &result) == LLGTRT_REFUSED);
    llgtrt_trtllm_forget(engine.engine, id);
    CHECK(llgtrt_trtllm_row_results(engine.engine, id, 100, &result) == LLGTRT_REFUSED);
  }
}

void lora_cache() {
  Engine engine("lora_cache=1\n");
  float const weights[8] = {};
  int32_t const config[3] = {0, 0, 8};
  auto const request = [&](uint64_t task, bool send) {
    Request lora("adapt", task, 3);
    lora.plain.has_lora = 1;
    lora.plain.lora_task = task;
    if (send) {
      lora.plain.lora_weights = {sizeof(llgtrt_trtllm_tensor), weights, LLGTRT_FP32, 2, {1, 8}};
      lora.plain.lora_config = {sizeof(llgtrt_trtllm_tensor), config, LLGTRT_INT32, 2, {1, 3}};
    }
    auto const id = lora.submit(engine);
    return finish(engine, 1)[id];
  };
  CHECK(request(1, false).lora_missing);
  CHECK(request(1, true).error.empty());
  CHECK(request(1, false).error.empty());
  CHECK(request(2, true).error.empty());
  auto const missing = request(1, false);
  CHECK(missing.lora_missing && !missing.error.empty());
}

void faults() {
  std::string const mark = std::to_string(kMark);
  {
    Engine engine("error_token=" + mark + "\nodd_finish_token=63\n");
    auto const failing = Request("fail!", 1, 9).submit(engine);
    auto const odd = Request("odd?", 2, 9).submit(engine);
    auto const good = Request("good", 3, 9).submit(engine);
    auto answers = finish(engine, 3);
    CHECK(!answers[failing].error.empty() && !answers[failing].lora_missing);
    CHECK(answers[odd].reason == 42);
    CHECK(answers[good].tokens[0].size() == 9);
  }
  {
    Engine engine("refuse_token=" + mark + "\nodd_exception=1\n");
    Request refused("no!", 1, 3);
    uint64_t id = 0;
    CHECK(llgtrt_trtllm_submit(engine.engine, &refused.plain, &id) == LLGTRT_REFUSED);
    CHECK(std::string(llgtrt_trtllm_last_error()).find("refuse") != std::string::npos);
    CHECK(llgtrt_trtllm_cancel(engine.engine, 1) == LLGTRT_REFUSED);
  }
  {
    Engine engine("fatal_iteration=3\n");
    Request("hello", 1, 50).submit(engine);
    llgtrt_trtllm_response const* responses = nullptr;
    size_t size = 0;
    while (llgtrt_trtllm_await(engine.engine, 1000, &responses, &size) == LLGTRT_OK) {
    }
    CHECK(std::string(llgtrt_trtllm_last_error()).find("told to fail") != std::string::npos);
    Request late("late", 2, 3);
    uint64_t id = 0;
    CHECK(llgtrt_trtllm_submit(engine.engine, &late.plain, &id) == LLGTRT_REFUSED);
  }
  {
    // A callback that fails leaves the rows alone; an idle wait ends.
    Engine engine("hang_iteration=20\n");
    engine.masks.fail = true;
    Request request("hello", 1, 4);
    request.plain.post_process = 1;
    auto const id = request.submit(engine);
    CHECK(finish(engine, 1)[id].tokens[0].size() == 4);
    llgtrt_trtllm_response const* responses = nullptr;
    size_t size = 1;
    CHECK(llgtrt_trtllm_await(engine.engine, 1, &responses, &size) == LLGTRT_OK && size == 0);
    // Destroyed with a request that hangs.
    Request("stay", 2, 100).submit(engine);
  }
}

void cancellations(std::string const& switches) {
  Engine engine(switches);
  llgtrt_trtllm_response const* responses = nullptr;
  size_t size = 0;
  for (uint64_t round = 0; round < 100; ++round) {
    Request request("cancel me somewhere", round + 1, 6);
    request.plain.post_process = round % 2 == 0 ? 1 : 0;
    auto const id = request.submit(engine);
    for (uint64_t i = 0; i < round % 9; ++i)
      CHECK(llgtrt_trtllm_await(engine.engine, 0, &responses, &size) == LLGTRT_OK);
    CHECK(llgtrt_trtllm_cancel(engine.engine, id) == LLGTRT_OK);
    CHECK(llgtrt_trtllm_cancel(engine.engine, id + 1000000) == LLGTRT_OK);
  }
  Request last("the last one", 999, 6);
  auto const id = last.submit(engine);
  bool ended = false;
  while (!ended) {
    CHECK(llgtrt_trtllm_await(engine.engine, 1000, &responses, &size) == LLGTRT_OK);
    for (size_t i = 0; i < size; ++i) ended |= responses[i].request_id == id && responses[i].is_final != 0;
  }
  for (int i = 0; i < 6; ++i) Request("live at the end", 2000, 400).submit(engine);
}

}  // namespace

int main() {
  float16_test();
  mask_kernel_test();
  wrong_arguments();
  plain_and_masked();
  every_field();
  several_sequences_and_beams();
  measured_rows();
  lora_cache();
  faults();
  cancellations("chunk_tokens=3\n");
  cancellations("chunk_tokens=3\nlockstep=1\n");
  std::puts("the driver passed");
}
