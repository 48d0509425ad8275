// What the real executor does and a simpler one would not: see the stand-in for where each behaviour comes from.
#include "driver.h"
#include "json.h"
#include "pool.h"

namespace {

void options_that_do_not_match_are_named() {
  auto const refused = [](std::string const& from, std::string const& to, char const* name) {
    Engine engine("", "float32", from, to);
    CHECK(engine.status == LLGTRT_INVALID && engine.engine == nullptr);
    if (std::string(llgtrt_trtllm_last_error()).find(name) == std::string::npos) {
      std::fprintf(stderr, "%s: %s\n", name, llgtrt_trtllm_last_error());
      CHECK(false);
    }
  };
  refused(R"("max_beam_width":4,)", "", "trtllm has no max_beam_width");
  refused(R"("max_beam_width":4,)", R"("max_beam_width":4,"new_option":1,)", "trtllm.new_option is not known");
  refused(R"("max_batch_size":4)", R"("max_batch_size":"four")", "runtime.max_batch_size: not an integer");
  refused(R"("max_batch_size":4)", R"("max_batch_size":4294967296)", "not an integer of 32 bits");
  refused(R"("decoding_mode":"eagle")", R"("decoding_mode":"magic")", "magic");
  refused(R"("logits_dtype":"float32")", R"("logits_dtype":"fp8")", "fp8");
  refused(R"("vocab_size":257)", R"("vocab_size":0)", "vocab_size");
  refused(R"("max_lora_rank":16,)", R"("max_lora_rank":16,"other":1,)", "settings.other is not known");
}

void documents() {
  using llgtrt::Json;
  auto const text = Json::parse(R"( {"a\u00e9\ud83d\ude00\n": [1, -2.5e3, true, null, {}, []]} )");
  auto const& [name, value] = text.members().front();
  CHECK(name == "a\xc3\xa9\xf0\x9f\x98\x80\n" && value.items().size() == 6);
  CHECK(value.items()[0].as_int() == 1 && value.items()[1].as_double() == -2500.0 && value.items()[2].as_bool());
  CHECK(Json::parse("9223372036854775807").as_int() == std::numeric_limits<int64_t>::max());
  for (char const* wrong :
       {"", "{", "[1,]", "{\"a\":1,\"a\":2}", "{\"a\" 1}", "tru", "1 2", "\"\\x\"", "\"\\ud800\"", "\"a", "\"\n\"", "--1", "{1:2}"}) {
    bool threw = false;
    try {
      Json::parse(wrong);
    } catch (llgtrt::InvalidArgument const&) {
      threw = true;
    }
    if (!threw) std::fprintf(stderr, "%s\n", wrong);
    CHECK(threw);
  }
  CHECK(Json::parse(std::string(64, '[') + std::string(64, ']')).items().size() == 1);
  bool deep = false;
  try {
    Json::parse(std::string(100000, '['));
  } catch (llgtrt::InvalidArgument const&) {
    deep = true;
  }
  CHECK(deep);
}

/// The thread that makes the events and the buffers is not the one that made the engine, and who uses the engine later may
/// be a third, with device 0 until somebody tells it.
void every_thread_uses_the_engines_device() {
  int const before = llgtrt_standin_calls_without_device();
  Engine engine("", "float32", R"("gpu_device_ids":[0])", R"("gpu_device_ids":[1])");
  CHECK(engine.status == LLGTRT_OK);
  engine.masks.measure = true;
  Request request("on the second one", 1, 5);
  request.plain.post_process = 1;
  auto const id = request.submit(engine);
  llgtrt_standin_forget_device();
  CHECK(finish(engine, 1)[id].tokens.size() == 5);
  auto result = sized<llgtrt_trtllm_row_result>();
  CHECK(llgtrt_trtllm_row_results(engine.engine, id, request.tokens.size(), &result) == LLGTRT_OK);
  llgtrt_standin_forget_device();
  CHECK(llgtrt_trtllm_health(engine.engine) == LLGTRT_OK);
  llgtrt_standin_forget_device();
  llgtrt_trtllm_destroy(engine.engine);
  engine.engine = nullptr;
  CHECK(llgtrt_standin_calls_without_device() == before);
}

/// Every streaming response has the logits of the prompt; they are handed out once.
void context_logits_come_once() {
  Engine engine("chunk_tokens=3\n");
  Request request("a prompt of some length", 1, 9);
  request.plain.return_context_logits = 1;
  auto const first = request.submit(engine);
  CHECK(finish(engine, 1)[first].context_rows == request.tokens.size());
  auto const second = request.submit(engine);
  CHECK(finish(engine, 1)[second].context_rows == request.tokens.size());
}

/// shutdown() serves all requests to their ends, which would take 40 s here. A hang is found by the test's own time limit.
void destruction_does_not_drain() {
  Engine engine("step_us=10000\n");
  for (uint64_t i = 0; i < 12; ++i) Request("long", i + 1, 400).submit(engine);
  llgtrt_trtllm_destroy(engine.engine);
  engine.engine = nullptr;
}

void a_pass_that_fails_is_no_end() {
  // In lockstep, so that the third pass does not come before the second request.
  Engine engine("fail_iteration=3\nlockstep=1\n");
  auto const first = Request("hello", 1, 50).submit(engine);
  auto const second = Request("neighbour", 2, 50).submit(engine);
  auto answers = finish(engine, 2);
  for (auto const id : {first, second}) {
    CHECK(answers[id].error.find("forwardAsync") != std::string::npos);
    CHECK(answers[id].error_kind == LLGTRT_REQUEST_FAILED);
  }
  CHECK(llgtrt_trtllm_health(engine.engine) == LLGTRT_OK);
  auto const third = Request("again", 3, 5).submit(engine);
  CHECK(finish(engine, 1)[third].tokens.size() == 5);
}

void a_lost_device_is_told() {
  Engine engine("fatal_iteration=3\n");
  CHECK(llgtrt_trtllm_health(engine.engine) == LLGTRT_OK);
  auto const first = Request("hello", 1, 50).submit(engine);
  CHECK(!finish(engine, 1)[first].error.empty());
  // Awaiting goes on as if nothing had happened, and the next request fails as well.
  llgtrt_trtllm_response const* responses = nullptr;
  size_t size = 0;
  CHECK(llgtrt_trtllm_await(engine.engine, 0, &responses, &size) == LLGTRT_OK);
  auto const second = Request("late", 2, 3).submit(engine);
  CHECK(!finish(engine, 1)[second].error.empty());
  CHECK(llgtrt_trtllm_health(engine.engine) == LLGTRT_FATAL);
  CHECK(std::string(llgtrt_trtllm_last_error()).find("illegal memory access") != std::string::npos);
}

void a_full_adapter_cache() {
  Engine engine("lora_cache=1\nstep_us=200\n");
  float const weights[8] = {};
  int32_t const config[3] = {0, 0, 8};
  auto const request = [&](uint64_t task, int32_t tokens) {
    Request lora("adapt", task, tokens);
    lora.plain.has_lora = 1;
    lora.plain.lora_task = task;
    lora.plain.lora_weights = {sizeof(llgtrt_trtllm_tensor), weights, LLGTRT_FP32, 2, {1, 8}};
    lora.plain.lora_config = {sizeof(llgtrt_trtllm_tensor), config, LLGTRT_INT32, 2, {1, 3}};
    return lora.submit(engine);
  };
  request(1, 400);
  auto const second = request(2, 3);
  auto answers = finish(engine, 1);
  CHECK(answers[second].error_kind == LLGTRT_ADAPTER_CACHE_FULL);
}

/// A row of each kind among neighbours without: masks are found where they were uploaded.
void rows_without_masks_between() {
  Engine engine("padded_vocab_size=320\nlockstep=1\n");
  engine.masks.columns = 320;
  engine.masks.measure = true;
  engine.masks.skip_odd_clients = true;
  std::vector<uint64_t> ids;
  for (uint64_t client = 1; client <= 4; ++client) {
    Request request("row " + std::to_string(client), client, 12);
    request.plain.post_process = 1;
    ids.push_back(request.submit(engine));
  }
  auto answers = finish(engine, 4);
  for (size_t i = 0; i < ids.size(); ++i) {
    bool const masked = (i + 1) % 2 == 0;
    auto const& tokens = answers[ids[i]].tokens;
    CHECK(tokens.size() == 12);
    bool const even = std::all_of(tokens.begin(), tokens.end(), [](int32_t token) { return token % 2 == 0; });
    CHECK(even == masked);
  }
}

void buffers_come_back() {
  auto const pool = std::make_shared<llgtrt::PinnedPool>();
  auto first = pool->take(100);
  void* const place = first->data();
  CHECK(pool->idle() == 0);
  first.reset();
  CHECK(pool->idle() == 1);
  auto again = pool->take(50);
  CHECK(again->data() == place && pool->idle() == 0);
}

}  // namespace

void as_the_real_one() {
  documents();
  options_that_do_not_match_are_named();
  every_thread_uses_the_engines_device();
  context_logits_come_once();
  destruction_does_not_drain();
  a_pass_that_fails_is_no_end();
  a_lost_device_is_told();
  a_full_adapter_cache();
  rows_without_masks_between();
  buffers_come_back();
}
