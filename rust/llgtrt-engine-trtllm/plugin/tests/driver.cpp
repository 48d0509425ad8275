// Drives the plugin over its C interface alone, in one process, for the sanitizers: every field of a request, every
// fault of the stand-in, cancellation at any moment, live requests at the end.
#include <csignal>

#include "driver.h"

namespace {

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
  CHECK(answers[first].tokens.size() == 9 && answers[first].reason == 3);
  CHECK(answers[second].tokens.size() == 9);
  for (auto token : answers[second].tokens) CHECK(token % 2 == 0 && token < kVocab);
  // Once for each of 9 tokens: a prompt in pieces asks with its last one.
  CHECK(engine.masks.rows == 9);

  auto stats = sized<llgtrt_trtllm_stats>();
  CHECK(llgtrt_trtllm_get_stats(engine.engine, &stats) == LLGTRT_OK);
  CHECK(stats.iterations >= 15 && stats.kv_tokens_per_block == 16 && stats.kv_blocks_max > 0);
  CHECK(std::string(llgtrt_trtllm_stats_json(engine.engine)).find("iter") != std::string::npos);
  auto const again = plain.submit(engine);
  CHECK(finish(engine, 1)[again].tokens == answers[first].tokens);
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
  plain.sampling.repetition_penalty = 1.1F;
  plain.sampling.presence_penalty = 0.1F;
  plain.sampling.frequency_penalty = 0.1F;
  plain.sampling.no_repeat_ngram_size = 4;
  llgtrt_trtllm_bias const biases[] = {{5, 3.0F}, {5, 1.0F}, {6, -100.0F}};
  plain.biases = biases;
  plain.bias_count = 3;
  plain.return_context_logits = 1;
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
  auto const count = answer.tokens.size();
  CHECK(count > 1);
  CHECK(answer.context_rows == request.tokens.size() && answer.reused == 0);
}

void beams() {
  Engine engine("chunk_tokens=4\n");
  Request request("a prompt with beams", 12, 5);
  request.plain.sampling.beam_width = 4;
  auto const id = request.submit(engine);
  auto const answer = finish(engine, 1)[id];
  CHECK(answer.beams == 4 && answer.tokens.size() == 5);
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
      CHECK(result.logits.data != nullptr && result.logits.rank == 1 && result.logits.shape[0] == kVocab);
    }
    CHECK(llgtrt_trtllm_row_results(engine.engine, id, request.tokens.size(), &result) == LLGTRT_REFUSED);
    llgtrt_trtllm_forget(engine.engine, id);
    CHECK(llgtrt_trtllm_row_results(engine.engine, id, 100, &result) == LLGTRT_REFUSED);
  }
}

void two_executors() {
  Engine whole("chunk_tokens=5\n");
  Engine context("chunk_tokens=5\n");
  Engine generation("chunk_tokens=5\n");
  for (int32_t const post_process : {0, 1}) {
    Request request("a prompt of more than sixteen tokens", 7, 9);
    request.plain.post_process = post_process;
    auto const of_one = request.submit(whole);
    auto const expected = finish(whole, 1)[of_one];
    request.plain.phase = LLGTRT_CONTEXT_ONLY;
    auto const first = request.submit(context);
    auto const handed = finish(context, 1)[first];
    CHECK(handed.error.empty() && handed.reason == 0 && handed.tokens.size() == 1);
    CHECK(handed.handed_over_id == first && handed.first_tokens == handed.tokens && !handed.state.empty());
    request.plain.phase = LLGTRT_GENERATION_ONLY;
    uint64_t id = 0;
    CHECK(llgtrt_trtllm_submit(generation.engine, &request.plain, &id) == LLGTRT_INVALID);
    auto& handover = request.plain.handover;
    handover = sized<llgtrt_trtllm_handover>();
    CHECK(llgtrt_trtllm_submit(generation.engine, &request.plain, &id) == LLGTRT_INVALID);
    handover.request_id = handed.handed_over_id;
    handover.first_tokens = handed.first_tokens.data();
    handover.first_token_count = handed.first_tokens.size();
    handover.draft_tokens = handed.first_tokens.data();
    handover.draft_token_count = 1;
    handover.state = handed.state.data();
    handover.state_size = handed.state.size();
    auto const second = request.submit(generation);
    CHECK(finish(generation, 1)[second].tokens == expected.tokens);
    // Of another prompt.
    Request other("another prompt", 8, 9);
    other.plain.phase = LLGTRT_GENERATION_ONLY;
    other.plain.handover = handover;
    auto const wrong = other.submit(generation);
    CHECK(!finish(generation, 1)[wrong].error.empty());
    other.plain.phase = 7;
    CHECK(llgtrt_trtllm_submit(generation.engine, &other.plain, &id) == LLGTRT_INVALID);
  }
  // Over with its first token: nothing is handed over.
  Request ended("a prompt", 9, 9);
  ended.plain.phase = LLGTRT_CONTEXT_ONLY;
  int32_t tokens[kVocab];
  size_t ends[kVocab];
  for (int32_t i = 0; i < kVocab; ++i) {
    tokens[i] = i;
    ends[i] = static_cast<size_t>(i) + 1;
  }
  ended.plain.stop_words = {sizeof(llgtrt_trtllm_lists), tokens, ends, kVocab};
  auto const id = ended.submit(context);
  auto const answer = finish(context, 1)[id];
  CHECK(answer.reason == 2 && answer.state.empty() && answer.tokens.size() == 1);
  Engine single("", "float32", R"("cache_transceiver_backend":"ucx")", R"("cache_transceiver_backend":null)");
  ended.plain.stop_words = no_lists();
  auto const refused = ended.submit(single);
  CHECK(finish(single, 1)[refused].error.find("cacheTransceiverConfig") != std::string::npos);
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
  CHECK(request(1, false).error_kind == LLGTRT_ADAPTER_MISSING);
  CHECK(request(1, true).error.empty());
  CHECK(request(1, false).error.empty());
  CHECK(request(2, true).error.empty());
  auto const missing = request(1, false);
  CHECK(missing.error_kind == LLGTRT_ADAPTER_MISSING && !missing.error.empty());
}

void faults() {
  std::string const mark = std::to_string(kMark);
  {
    Engine engine("error_token=" + mark + "\nodd_finish_token=63\n");
    auto const failing = Request("fail!", 1, 9).submit(engine);
    auto const odd = Request("odd?", 2, 9).submit(engine);
    auto const good = Request("good", 3, 9).submit(engine);
    auto answers = finish(engine, 3);
    CHECK(!answers[failing].error.empty() && answers[failing].error_kind == LLGTRT_REQUEST_FAILED);
    CHECK(answers[odd].reason == 42);
    CHECK(answers[good].tokens.size() == 9);
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
    // A callback that fails leaves the rows alone; an idle wait ends.
    Engine engine("");
    engine.masks.fail = true;
    Request request("hello", 1, 4);
    request.plain.post_process = 1;
    auto const id = request.submit(engine);
    CHECK(finish(engine, 1)[id].tokens.size() == 4);
    llgtrt_trtllm_response const* responses = nullptr;
    size_t size = 1;
    CHECK(llgtrt_trtllm_await(engine.engine, 1, &responses, &size) == LLGTRT_OK && size == 0);
    // Destroyed with a request that runs.
    Request("stay", 2, 400).submit(engine);
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

namespace {

using Handler = void (*)(int);

/// What happens if the process crashes.
std::vector<Handler> crash_handlers() {
  std::vector<Handler> handlers;
  for (int const signal : {SIGABRT, SIGSEGV}) {
    struct sigaction action {};
    CHECK(sigaction(signal, nullptr, &action) == 0);
    handlers.push_back(action.sa_handler);
  }
  return handlers;
}

}  // namespace

int main() {
  auto const handlers = crash_handlers();
  float16_test();
  mask_kernel_test();
  wrong_arguments();
  plain_and_masked();
  every_field();
  beams();
  measured_rows();
  two_executors();
  lora_cache();
  faults();
  cancellations("chunk_tokens=3\n");
  cancellations("chunk_tokens=3\nlockstep=1\n");
  as_the_real_one();
  CHECK(crash_handlers() == handlers);
  std::puts("the driver passed");
}
