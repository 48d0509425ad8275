// What the real executor does and a simpler one would not: see the stand-in for where each behaviour comes from.
#include "driver.h"
#include "json.h"

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
  refused(R"("cache_transceiver_backend":"ucx")", R"("cache_transceiver_backend":"pigeon")", "pigeon");
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
  auto const before = llgtrt_standin_count("calls_without_device");
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
  CHECK(llgtrt_standin_count("calls_without_device") == before);
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

/// shutdown() serves all requests to their ends, which would be 1200 passes here. In lockstep nothing goes on before that.
void destruction_does_not_drain() {
  Engine engine("lockstep=1\n");
  auto const before = llgtrt_standin_count("forward_passes");
  for (uint64_t i = 0; i < 12; ++i) Request("long", i + 1, 400).submit(engine);
  llgtrt_trtllm_destroy(engine.engine);
  engine.engine = nullptr;
  // A pass for each batch that waited: what is cancelled in the queue is dequeued and runs once. One more had begun.
  CHECK(llgtrt_standin_count("forward_passes") - before <= 8);
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

/// A mask goes to the device when it is another one than in the step before, also if the row's place is new.
void masks_that_did_not_change_are_not_copied() {
  constexpr size_t kRow = (kVocab + 31) / 32 * sizeof(uint32_t);
  // What ten steps copy, once the first request has left and the others run together.
  auto const of_ten = [](bool (*changes)(uint64_t)) {
    constexpr int32_t tokens = 30;
    Engine engine("lockstep=1\n");
    engine.masks.changes = changes;
    std::vector<uint64_t> ids;
    for (uint64_t client = 1; client <= 3; ++client) {
      Request request("row " + std::to_string(client), client, client == 1 ? 2 : tokens);
      request.plain.post_process = 1;
      ids.push_back(request.submit(engine));
    }
    auto answers = finish(engine, 3);
    // Each under its own mask: an odd token is that of its step.
    for (size_t i = 0; i < ids.size(); ++i) {
      auto const& answer = answers[ids[i]].tokens;
      CHECK(answer.size() == static_cast<size_t>(i == 0 ? 2 : tokens));
      for (size_t t = 0; t < answer.size(); ++t) {
        auto const odd = static_cast<int32_t>(((5 + t) * 2 + 1) % 256);
        CHECK(answer[t] % 2 == 0 || (changes(i + 1) && answer[t] == odd));
      }
    }
    return engine.masks.copied_before.at(25) - engine.masks.copied_before.at(15);
  };
  auto const never = [](uint64_t) { return false; };
  auto const second = [](uint64_t client) { return client == 2; };
  auto const always = [](uint64_t) { return true; };
  auto const descriptions = of_ten(never);
  CHECK(descriptions > 0 && descriptions < 2 * 10 * 64);
  CHECK(of_ten(second) == descriptions + 10 * kRow);
  CHECK(of_ten(always) == descriptions + 2 * 10 * kRow);
}

/// What lies in the host's memory of a step without a mask is of an earlier one, and is not what the device has.
void a_mask_after_none_is_copied() {
  Engine engine("lockstep=1\n");
  // The third is as the first, and the memory of the fourth still has the second.
  engine.masks.script = {3, 4, 3, 0, 4, 4, 0, 0, 3, 4};
  Request neighbour("masked in every step", 2, 30);
  neighbour.plain.post_process = 1;
  neighbour.submit(engine);
  Request request("five!", 1, static_cast<int32_t>(engine.masks.script.size()));
  request.plain.post_process = 1;
  auto const id = request.submit(engine);
  auto const tokens = finish(engine, 1)[id].tokens;
  CHECK(tokens.size() == engine.masks.script.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto const only = static_cast<int32_t>(engine.masks.script[i]);
    CHECK(only == 0 || tokens[i] == only);
  }
}

/// Requests come and go, so that rows move, while each has a mask of its own that does not change.
void rows_that_move_keep_their_masks() {
  Engine engine("");
  engine.masks.one_token = true;
  std::map<uint64_t, uint64_t> clients;
  for (uint64_t client = 1; client <= 40; ++client) {
    Request request("moving", client, static_cast<int32_t>(1 + client * 7 % 11));
    request.plain.post_process = 1;
    clients[request.submit(engine)] = client;
  }
  auto const answers = finish(engine, clients.size());
  for (auto const& [id, client] : clients) {
    auto const& tokens = answers.at(id).tokens;
    CHECK(tokens.size() == 1 + client * 7 % 11);
    for (auto const token : tokens) CHECK(token == static_cast<int32_t>(client));
  }
}

/// The device's memory is empty when it has grown for more rows, also where a mask did not change.
void memory_that_grew_gets_all_masks() {
  Engine engine("lockstep=1\n");
  engine.masks.one_token = true;
  auto const submit = [&engine](uint64_t client) {
    Request request("grow", client, 20);
    request.plain.post_process = 1;
    return request.submit(engine);
  };
  std::map<uint64_t, uint64_t> clients{{submit(1), 1}};
  llgtrt_trtllm_response const* responses = nullptr;
  size_t size = 0;
  for (size_t answers = 0; answers < 3; answers += size)
    CHECK(llgtrt_trtllm_await(engine.engine, 1000, &responses, &size) == LLGTRT_OK);
  for (uint64_t client = 2; client <= 4; ++client) clients[submit(client)] = client;
  for (auto const& [id, answer] : finish(engine, clients.size())) {
    CHECK(answer.tokens.size() >= 17);
    for (auto const token : answer.tokens) CHECK(token == static_cast<int32_t>(clients.at(id)));
  }
}

/// Once as much was measured at the same time as ever will be, nothing is allocated any more.
void measuring_allocates_nothing_in_the_long_run() {
  Engine engine("");
  engine.masks.measure = true;
  auto const run = [&engine] {
    Request request("measured", 5, 20);
    request.plain.post_process = 1;
    auto const id = request.submit(engine);
    CHECK(finish(engine, 1)[id].tokens.size() == 20);
    llgtrt_trtllm_forget(engine.engine, id);
  };
  run();
  auto const before = llgtrt_standin_count("allocations");
  CHECK(before > 20);
  for (int i = 0; i < 3; ++i) run();
  CHECK(llgtrt_standin_count("allocations") == before);
}

/// Logits that were not masked may have been sampled from: no answer can be trusted any more.
void a_device_lost_under_the_masks_is_the_end() {
  Engine engine("fatal_mask_iteration=3\n");
  Request request("masked", 1, 50);
  request.plain.post_process = 1;
  request.submit(engine);
  llgtrt_trtllm_response const* responses = nullptr;
  size_t size = 0;
  while (llgtrt_trtllm_await(engine.engine, 1000, &responses, &size) == LLGTRT_OK) {
  }
  CHECK(std::string(llgtrt_trtllm_last_error()).find("masks could not be applied") != std::string::npos);
  CHECK(llgtrt_trtllm_health(engine.engine) == LLGTRT_FATAL);
}

/// The executor serves one width at a time and makes its decoder anew for another: beams wait for all others, and these for them.
void another_beam_width_waits() {
  Engine engine("lockstep=1\n");
  auto const before = llgtrt_standin_count("beam_width_changes");
  std::vector<uint64_t> ids;
  for (int32_t width : {1, 1, 2, 1}) {
    Request request("of a width", ids.size() + 1, 6);
    request.plain.sampling.beam_width = width;
    request.plain.sampling.seed = 7;
    ids.push_back(request.submit(engine));
  }
  auto answers = finish(engine, ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    CHECK(answers[ids[i]].tokens.size() == 6);
    CHECK(answers[ids[i]].beams == (i == 2 ? 2 : 1));
  }
  CHECK(answers[ids[3]].tokens == answers[ids[0]].tokens);
  CHECK(llgtrt_standin_count("beam_width_changes") - before == 3);
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
  masks_that_did_not_change_are_not_copied();
  a_mask_after_none_is_copied();
  rows_that_move_keep_their_masks();
  memory_that_grew_gets_all_masks();
  measuring_allocates_nothing_in_the_long_run();
  a_device_lost_under_the_masks_is_the_end();
  another_beam_width_waits();
}
