// What the cases of the driver share: an engine folder for the stand-in, an engine, requests, answers.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "check.h"
#include "llgtrt_trtllm.h"

// Of the stand-in inside of the plugin.
extern "C" uint64_t llgtrt_standin_count(char const* name);
extern "C" void llgtrt_standin_forget_device();

constexpr int32_t kVocab = 257;
constexpr int32_t kMark = '!';
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();

template <class T>
T sized() {
  T value{};
  value.struct_size = sizeof(T);
  return value;
}

inline std::string make_folder(std::string const& switches, std::string const& dtype = "float32") {
  char name[] = "/tmp/llgtrt-driver-XXXXXX";
  CHECK(mkdtemp(name) != nullptr);
  std::string const folder = name;
  std::ofstream(folder + "/rank0.engine") << "";
  std::ofstream(folder + "/standin.conf") << switches;
  std::ofstream(folder + "/config.json")
      << R"({"pretrained_config":{"vocab_size":257,"dtype":"float32","logits_dtype":")" << dtype
      << R"(","num_hidden_layers":4},"build_config":{"max_batch_size":4,"max_seq_len":512,"max_num_tokens":256,)"
      << R"("max_beam_width":4,"gather_context_logits":true,"lora_config":{"max_lora_rank":16},)"
      << R"("plugin_config":{"tokens_per_block":16,"use_paged_context_fmha":true}}})";
  return folder;
}

/// Replaces the first occurrence.
inline std::string with(std::string text, std::string const& from, std::string const& to) {
  auto const at = text.find(from);
  CHECK(at != std::string::npos);
  return text.replace(at, from.size(), to);
}

/// Every option, none of them at its default.
inline std::string settings_of(std::string const& folder, std::string const& dtype = "float32") {
  return R"({"engine_dir":")" + folder + R"(","vocab_size":257,"logits_dtype":")" + dtype + R"(","max_lora_rank":16,
  "runtime":{"guaranteed_no_evict":true,"max_batch_size":4,"max_num_tokens":128,"enable_chunked_context":true,
    "enable_kv_cache_reuse":true,"kv_cache_free_gpu_mem_fraction":0.8,"kv_cache_host_memory_megabytes":1,
    "kv_cache_onboard_blocks":true,"cross_kv_cache_fraction":null,"secondary_offload_min_priority":20,
    "event_buffer_max_size":16,"enable_batch_size_tuning":true,"enable_max_num_tokens_tuning":true},
  "trtllm":{"encoder_dir":null,"context_chunking_policy":"equal_progress","max_beam_width":4,"tuning_window":64,
    "normalize_log_probs":false,"iter_stats_max_iterations":100,"gpu_weights_percent":0.9,"kv_cache_max_tokens":4000,
    "max_attention_window":[512,256],"sink_token_length":4,"multi_block_mode":false,
    "enable_context_fmha_fp32_acc":true,"cuda_graph_mode":true,"cuda_graph_cache_size":2,"decoding_mode":"eagle",
    "lookahead":[4,3,4],"medusa_choices":[[0],[0,1]],"eagle_choices":[[0],[0,1]],"eagle_greedy_sampling":false,
    "eagle_posterior_threshold":0.1,"eagle_dynamic_tree_top_k":2,"lora_optimal_adapter_size":8,
    "lora_max_adapter_size":16,"lora_cache_gpu_memory_fraction":0.1,"lora_cache_host_memory_megabytes":1,
    "gpu_device_ids":[0],"cache_transceiver_backend":"ucx","cache_transceiver_max_tokens_in_buffer":512,
    "kv_transfer_timeout_ms":60000,"kv_transfer_sender_future_timeout_ms":1000}})";
}

/// What the callback does; changed only while no request is live.
struct Masks {
  bool fail = false;
  bool measure = false;
  std::map<uint64_t, size_t> prompt_lengths;
  size_t rows = 0;
  int32_t columns = kVocab;
  bool skip_odd_clients = false;
  /// Besides the even tokens, one odd one is allowed: another in each step, for clients for which this says so.
  bool (*changes)(uint64_t client) = nullptr;
  /// Only the token of the client's number is allowed.
  bool one_token = false;
  /// Bytes copied to the device before client 2's row with so many tokens.
  std::map<size_t, uint64_t> copied_before;
  /// For client 1: the only token allowed in each step after a prompt of five tokens; 0: no mask.
  std::vector<uint32_t> script;
};

inline int32_t fill(void* user, llgtrt_trtllm_row const* rows, size_t count, uint32_t* masks, size_t words_per_row,
             llgtrt_trtllm_row_plan* plans) {
  auto& state = *static_cast<Masks*>(user);
  CHECK(words_per_row == (kVocab + 31) / 32);
  for (size_t i = 0; i < count; ++i) {
    CHECK(rows[i].struct_size == sizeof(llgtrt_trtllm_row) && rows[i].columns == state.columns);
    CHECK(rows[i].tokens != nullptr && rows[i].token_count > 0);
    ++state.rows;
    if (rows[i].client_id == 2) state.copied_before[rows[i].token_count] = llgtrt_standin_count("bytes_to_device");
    if (state.skip_odd_clients && rows[i].client_id % 2 == 1) continue;
    if (!state.script.empty() && rows[i].client_id == 1) {
      auto const token = state.script[rows[i].token_count - 5];
      plans[i].apply_mask = token > 0 ? 1 : 0;
      if (token > 0) {
        std::fill_n(masks + i * words_per_row, words_per_row, 0U);
        masks[i * words_per_row + token / 32] = 1U << (token % 32);
      }
      continue;
    }
    // Even tokens, and the end.
    for (size_t word = 0; word < words_per_row; ++word) masks[i * words_per_row + word] = 0x55555555U;
    if (state.one_token) {
      std::fill_n(masks + i * words_per_row, words_per_row, 0U);
      masks[i * words_per_row + rows[i].client_id / 32] = 1U << (rows[i].client_id % 32);
    }
    if (state.changes != nullptr && state.changes(rows[i].client_id)) {
      auto const odd = static_cast<uint32_t>(rows[i].token_count * 2 + 1) % 256;
      masks[i * words_per_row + odd / 32] |= 1U << (odd % 32);
    }
    plans[i].apply_mask = 1;
    plans[i].temperature = 0.8F;
    plans[i].min_p = 0.01F;
    plans[i].report_removed_mass = state.measure ? 1 : 0;
    plans[i].keep_logits = state.measure ? 1 : 0;
  }
  return state.fail ? 1 : 0;
}

inline llgtrt_trtllm_lists no_lists() { return sized<llgtrt_trtllm_lists>(); }

class Engine {
 public:
  explicit Engine(std::string const& switches, std::string const& dtype = "float32", std::string const& from = "",
                  std::string const& to = "")
      : folder_(make_folder(switches, dtype)) {
    auto const settings = from.empty() ? settings_of(folder_, dtype) : with(settings_of(folder_, dtype), from, to);
    auto config = sized<llgtrt_trtllm_config>();
    config.settings = settings.c_str();
    config.callbacks = sized<llgtrt_trtllm_callbacks>();
    config.callbacks.user = &masks;
    config.callbacks.fill = fill;
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
    sampling.top_k = LLGTRT_UNSET;
    sampling.top_p = 0.95F;
    sampling.top_p_min = sampling.top_p_decay = sampling.temperature = sampling.min_p = kNone;
    sampling.top_p_reset_id = LLGTRT_UNSET;
    sampling.no_repeat_ngram_size = LLGTRT_UNSET;
    sampling.repetition_penalty = sampling.presence_penalty = sampling.frequency_penalty = kNone;
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
  /// Of the first beam.
  std::vector<int32_t> tokens;
  size_t beams = 0;
  int32_t reason = 0;
  std::string error;
  int32_t error_kind = LLGTRT_NO_ERROR;
  bool final = false;
  int32_t reused = -1;
  size_t context_rows = 0;
  /// What was handed over, if anything.
  uint64_t handed_over_id = 0;
  std::vector<int32_t> first_tokens;
  std::vector<uint8_t> state;
};

/// Waits until `count` requests have ended.
inline std::map<uint64_t, Answer> finish(Engine& engine, size_t count) {
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
      answer.error_kind = std::max(answer.error_kind, response.error_kind);
      answer.beams = std::max(answer.beams, response.tokens.count);
      auto& tokens = answer.tokens;
      if (response.tokens.count > 0)
        tokens.insert(tokens.end(), response.tokens.ids, response.tokens.ids + response.tokens.ends[0]);
      answer.reason = response.finish_reason;
      answer.reused = std::max(answer.reused, response.reused_blocks);
      if (response.context_logits.data != nullptr) answer.context_rows += static_cast<size_t>(response.context_logits.shape[0]);
      if (auto const& handover = response.handover; handover.state != nullptr) {
        answer.handed_over_id = handover.request_id;
        answer.first_tokens.assign(handover.first_tokens, handover.first_tokens + handover.first_token_count);
        answer.state.assign(handover.state, handover.state + handover.state_size);
      }
      if (response.is_final != 0 && !answer.final) {
        answer.final = true;
        ++ended;
      }
    }
  }
  return answers;
}

