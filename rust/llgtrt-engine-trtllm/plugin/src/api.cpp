// The C interface. Nothing is thrown out of this file.
#include <string>

#include "engine.h"

using llgtrt::checked;
using llgtrt::guard;
using llgtrt::InvalidArgument;

namespace {

llgtrt_trtllm_engine& engine_of(llgtrt_trtllm_engine* engine) {
  if (engine == nullptr) throw InvalidArgument("the engine is null");
  return *engine;
}

template <class T>
T& out(T* pointer) {
  if (pointer == nullptr) throw InvalidArgument("there is no place for the result");
  return *pointer;
}

}  // namespace

extern "C" {

uint32_t llgtrt_trtllm_abi_version(void) { return LLGTRT_TRTLLM_ABI_VERSION; }

const char* llgtrt_trtllm_version(void) { return llgtrt::te::version(); }

const char* llgtrt_trtllm_last_error(void) { return llgtrt::last_error(); }

llgtrt_trtllm_status llgtrt_trtllm_create(const llgtrt_trtllm_config* config, llgtrt_trtllm_engine** engine) {
  return guard(LLGTRT_FATAL, [&] {
    auto& target = out(engine);
    target = nullptr;
    target = new llgtrt_trtllm_engine(checked(config, "the configuration"));
    return LLGTRT_OK;
  });
}

void llgtrt_trtllm_destroy(llgtrt_trtllm_engine* engine) {
  guard(LLGTRT_FATAL, [&] {
    delete engine;
    return LLGTRT_OK;
  });
}

int32_t llgtrt_trtllm_is_leader(const llgtrt_trtllm_engine* engine) {
  int32_t leader = 0;
  guard(LLGTRT_FATAL, [&] {
    if (engine == nullptr) throw InvalidArgument("the engine is null");
    leader = engine->is_leader() ? 1 : 0;
    return LLGTRT_OK;
  });
  return leader;
}

llgtrt_trtllm_status llgtrt_trtllm_submit(llgtrt_trtllm_engine* engine, const llgtrt_trtllm_request* request,
                                          uint64_t* request_id) {
  return guard(LLGTRT_REFUSED, [&] {
    auto& id = out(request_id);
    id = engine_of(engine).submit(checked(request, "the request"));
    return LLGTRT_OK;
  });
}

llgtrt_trtllm_status llgtrt_trtllm_cancel(llgtrt_trtllm_engine* engine, uint64_t request_id) {
  return guard(LLGTRT_REFUSED, [&] {
    engine_of(engine).cancel(request_id);
    return LLGTRT_OK;
  });
}

llgtrt_trtllm_status llgtrt_trtllm_await(llgtrt_trtllm_engine* engine, int64_t timeout_ms,
                                         const llgtrt_trtllm_response** responses, size_t* count) {
  return guard(LLGTRT_FATAL, [&] {
    auto& list = out(responses);
    auto& size = out(count);
    auto const& plain = engine_of(engine).await(timeout_ms);
    list = plain.data();
    size = plain.size();
    return LLGTRT_OK;
  });
}

llgtrt_trtllm_status llgtrt_trtllm_health(llgtrt_trtllm_engine* engine) {
  return guard(LLGTRT_FATAL, [&] {
    engine_of(engine).check_health();
    return LLGTRT_OK;
  });
}

llgtrt_trtllm_status llgtrt_trtllm_row_results(llgtrt_trtllm_engine* engine, uint64_t request_id,
                                               size_t token_count, llgtrt_trtllm_row_result* result) {
  return guard(LLGTRT_FATAL, [&] {
    auto& target = out(result);
    if (engine_of(engine).row_result(request_id, token_count, target)) return LLGTRT_OK;
    llgtrt::set_last_error("nothing was measured of that row");
    return LLGTRT_REFUSED;
  });
}

void llgtrt_trtllm_forget(llgtrt_trtllm_engine* engine, uint64_t request_id) {
  guard(LLGTRT_FATAL, [&] {
    engine_of(engine).forget(request_id);
    return LLGTRT_OK;
  });
}

llgtrt_trtllm_status llgtrt_trtllm_get_stats(llgtrt_trtllm_engine* engine, llgtrt_trtllm_stats* stats) {
  return guard(LLGTRT_FATAL, [&] {
    auto& target = out(stats);
    target = engine_of(engine).stats().plain();
    return LLGTRT_OK;
  });
}

const char* llgtrt_trtllm_stats_json(llgtrt_trtllm_engine* engine) {
  const char* json = "{}";
  guard(LLGTRT_FATAL, [&] {
    json = engine_of(engine).stats_json().c_str();
    return LLGTRT_OK;
  });
  return json;
}

llgtrt_trtllm_status llgtrt_trtllm_kv_events(llgtrt_trtllm_engine* engine, int64_t timeout_ms,
                                             const llgtrt_trtllm_kv_event** events, size_t* count) {
  return guard(LLGTRT_REFUSED, [&] {
    auto& list = out(events);
    auto& size = out(count);
    auto* const source = engine_of(engine).kv_events();
    if (source == nullptr) {
      llgtrt::set_last_error("the executor tells of no events of its KV cache");
      return LLGTRT_REFUSED;
    }
    auto const& plain = source->await(std::chrono::milliseconds(timeout_ms));
    list = plain.data();
    size = plain.size();
    return LLGTRT_OK;
  });
}

}  // extern "C"
