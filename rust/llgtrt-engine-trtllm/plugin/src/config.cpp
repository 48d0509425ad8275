#include "config.h"

#include <type_traits>

#include "json.h"

namespace llgtrt {
namespace {

constexpr size_t kMegabyte = 1024 * 1024;

/// The value of an option that may be null.
template <class Read>
auto optional(JsonObject& object, char const* name, Read read) -> std::optional<decltype((object.*read)(name))> {
  if (!object.has(name)) return std::nullopt;
  return (object.*read)(name);
}

/// One of a few names.
template <class T>
T one_of(std::string const& option, std::string const& value, std::initializer_list<std::pair<char const*, T>> known) {
  for (auto const& [name, result] : known)
    if (value == name) return result;
  throw InvalidArgument(option + " is not known to this plugin: " + value);
}

/// Options of both sections, as they are asked for in more than one place.
struct Sections {
  JsonObject runtime;
  JsonObject trtllm;
};

te::SchedulerConfig scheduler(Sections& sections) {
  auto& [runtime, trtllm] = sections;
  std::optional<te::ContextChunkingPolicy> chunking;
  if (trtllm.has("context_chunking_policy")) {
    chunking = one_of<te::ContextChunkingPolicy>(
        "context_chunking_policy", trtllm.text("context_chunking_policy"),
        {{"first_come_first_served", te::ContextChunkingPolicy::kFIRST_COME_FIRST_SERVED},
         {"equal_progress", te::ContextChunkingPolicy::kEQUAL_PROGRESS}});
  }
  bool const batch = runtime.boolean("enable_batch_size_tuning");
  bool const tokens = runtime.boolean("enable_max_num_tokens_tuning");
  auto const window = optional(trtllm, "tuning_window", &JsonObject::integer);
  std::optional<te::DynamicBatchConfig> dynamic;
  if (batch || tokens)
    dynamic = window ? te::DynamicBatchConfig(batch, tokens, *window) : te::DynamicBatchConfig(batch, tokens);
  auto const policy = runtime.boolean("guaranteed_no_evict") ? te::CapacitySchedulerPolicy::kGUARANTEED_NO_EVICT
                                                             : te::CapacitySchedulerPolicy::kMAX_UTILIZATION;
  return te::SchedulerConfig(policy, chunking, dynamic);
}

te::KvCacheConfig kv_cache(Sections& sections) {
  auto& [runtime, trtllm] = sections;
  auto const windows = trtllm.integers("max_attention_window");
  auto const megabytes = runtime.long_integer("kv_cache_host_memory_megabytes");
  std::optional<size_t> host;
  if (megabytes > 0) host = static_cast<size_t>(megabytes) * kMegabyte;
  auto const events = optional(runtime, "event_buffer_max_size", &JsonObject::long_integer).value_or(0);
  return te::KvCacheConfig(runtime.boolean("enable_kv_cache_reuse"),
                           optional(trtllm, "kv_cache_max_tokens", &JsonObject::integer),
                           windows.empty() ? std::nullopt : std::make_optional(windows),
                           optional(trtllm, "sink_token_length", &JsonObject::integer),
                           runtime.number("kv_cache_free_gpu_mem_fraction"), host,
                           runtime.boolean("kv_cache_onboard_blocks"),
                           optional(runtime, "cross_kv_cache_fraction", &JsonObject::number),
                           optional(runtime, "secondary_offload_min_priority", &JsonObject::integer),
                           static_cast<size_t>(events));
}

/// TensorRT-LLM lays its pages out for ranks up to 64 unless it is told, also where the engine takes larger ones.
te::PeftCacheConfig peft_cache(JsonObject& trtllm, int32_t max_lora_rank) {
  auto const optimal = optional(trtllm, "lora_optimal_adapter_size", &JsonObject::integer);
  auto const largest = optional(trtllm, "lora_max_adapter_size", &JsonObject::integer);
  auto const device = optional(trtllm, "lora_cache_gpu_memory_fraction", &JsonObject::number);
  auto const megabytes = optional(trtllm, "lora_cache_host_memory_megabytes", &JsonObject::long_integer);
  std::optional<size_t> host;
  if (megabytes) host = static_cast<size_t>(*megabytes) * kMegabyte;
  return te::PeftCacheConfig(0, 0, optimal.value_or(te::PeftCacheConfig::kDefaultOptimalAdapterSize),
                             largest.value_or(max_lora_rank), 1, 1, 1,
                             te::PeftCacheConfig::kDefaultMaxPagesPerBlockHost,
                             te::PeftCacheConfig::kDefaultMaxPagesPerBlockDevice, device, host);
}

std::optional<te::DecodingConfig> decoding(JsonObject& trtllm) {
  auto const window = trtllm.has("lookahead") ? trtllm.integers("lookahead") : std::vector<int32_t>{};
  auto const medusa = trtllm.integer_lists("medusa_choices");
  auto const eagle = trtllm.integer_lists("eagle_choices");
  bool const greedy = trtllm.boolean("eagle_greedy_sampling");
  auto const threshold = optional(trtllm, "eagle_posterior_threshold", &JsonObject::number);
  auto const top_k = optional(trtllm, "eagle_dynamic_tree_top_k", &JsonObject::integer);
  if (!trtllm.has("decoding_mode")) return std::nullopt;
  auto const name = trtllm.text("decoding_mode");
  auto const mode = one_of<te::DecodingMode>("decoding_mode", name,
                                             {{"auto", te::DecodingMode::Auto()},
                                              {"top_k", te::DecodingMode::TopK()},
                                              {"top_p", te::DecodingMode::TopP()},
                                              {"top_k_top_p", te::DecodingMode::TopKTopP()},
                                              {"beam_search", te::DecodingMode::BeamSearch()},
                                              {"medusa", te::DecodingMode::Medusa()},
                                              {"redrafter", te::DecodingMode::ExplicitDraftTokens()},
                                              {"lookahead", te::DecodingMode::Lookahead()},
                                              {"eagle", te::DecodingMode::Eagle()}});
  std::optional<te::LookaheadDecodingConfig> lookahead;
  if (name == "lookahead") {
    if (!window.empty() && window.size() != 3) throw InvalidArgument("trtllm.lookahead has not 3 numbers");
    lookahead = window.empty() ? te::LookaheadDecodingConfig()
                               : te::LookaheadDecodingConfig(window[0], window[1], window[2]);
  }
  std::optional<te::EagleConfig> eagle_config;
  if (name == "eagle")
    eagle_config = te::EagleConfig(eagle.empty() ? std::nullopt : std::make_optional(eagle), greedy, threshold,
                                   top_k.has_value(), top_k);
  return te::DecodingConfig(mode, lookahead, medusa.empty() ? std::nullopt : std::make_optional(medusa), eagle_config);
}

/// Later versions of the 1.2 line have a time limit of the sender as well.
template <class Config, class = void>
struct SenderTimeout {
  static void set(Config&, int32_t) {
    throw InvalidArgument("trtllm.kv_transfer_sender_future_timeout_ms: this TensorRT-LLM does not have it");
  }
};

template <class Config>
struct SenderTimeout<Config, std::void_t<decltype(&Config::setKvTransferSenderFutureTimeoutMs)>> {
  static void set(Config& config, int32_t milliseconds) { config.setKvTransferSenderFutureTimeoutMs(milliseconds); }
};

std::optional<te::CacheTransceiverConfig> cache_transceiver(JsonObject& trtllm) {
  using Backend = te::CacheTransceiverConfig::BackendType;
  auto const tokens = optional(trtllm, "cache_transceiver_max_tokens_in_buffer", &JsonObject::integer);
  auto const timeout = optional(trtllm, "kv_transfer_timeout_ms", &JsonObject::integer);
  auto const sender = optional(trtllm, "kv_transfer_sender_future_timeout_ms", &JsonObject::integer);
  if (!trtllm.has("cache_transceiver_backend")) return std::nullopt;
  te::CacheTransceiverConfig config(one_of<Backend>("cache_transceiver_backend",
                                                    trtllm.text("cache_transceiver_backend"),
                                                    {{"default", Backend::DEFAULT},
                                                     {"mpi", Backend::MPI},
                                                     {"ucx", Backend::UCX},
                                                     {"nixl", Backend::NIXL}}));
  if (tokens) config.setMaxTokensInBuffer(static_cast<size_t>(*tokens));
  if (timeout) config.setKvTransferTimeoutMs(*timeout);
  if (sender) SenderTimeout<te::CacheTransceiverConfig>::set(config, *sender);
  return config;
}

te::ExecutorConfig executor(Sections& sections, int32_t max_lora_rank) {
  auto& [runtime, trtllm] = sections;
  te::ExecutorConfig result(trtllm.integer("max_beam_width"));
  result.setSchedulerConfig(scheduler(sections));
  result.setKvCacheConfig(kv_cache(sections));
  result.setEnableChunkedContext(runtime.boolean("enable_chunked_context"));
  result.setNormalizeLogProbs(trtllm.boolean("normalize_log_probs"));
  result.setIterStatsMaxIterations(trtllm.integer("iter_stats_max_iterations"));
  if (auto size = optional(runtime, "max_batch_size", &JsonObject::integer)) result.setMaxBatchSize(*size);
  if (auto tokens = optional(runtime, "max_num_tokens", &JsonObject::integer)) result.setMaxNumTokens(*tokens);
  result.setGpuWeightsPercent(trtllm.number("gpu_weights_percent"));
  result.setExtendedRuntimePerfKnobConfig(te::ExtendedRuntimePerfKnobConfig(
      trtllm.boolean("multi_block_mode"), trtllm.boolean("enable_context_fmha_fp32_acc"),
      trtllm.boolean("cuda_graph_mode"), trtllm.integer("cuda_graph_cache_size")));
  // Read in any case, so that no option is left over.
  auto const peft = peft_cache(trtllm, max_lora_rank);
  if (max_lora_rank > 0) result.setPeftCacheConfig(peft);
  if (auto mode = decoding(trtllm)) result.setDecodingConfig(*mode);
  if (auto transceiver = cache_transceiver(trtllm)) result.setCacheTransceiverConfig(*transceiver);
  // A KV cache that cannot hold one window is an error at the start, not a hang at the first request.
  result.setFailFastOnAttentionWindowTooLarge(true);
  // Leader mode: every rank is started by mpirun or Slurm and makes its own executor.
  te::ParallelConfig parallel(te::CommunicationType::kMPI, te::CommunicationMode::kLEADER);
  if (auto const devices = trtllm.integers("gpu_device_ids"); !devices.empty()) parallel.setDeviceIds(devices);
  result.setParallelConfig(parallel);
  return result;
}

}  // namespace

Settings read_settings(char const* json) {
  if (json == nullptr) throw InvalidArgument("there are no settings");
  Json const document = Json::parse(json);
  JsonObject all(document, "settings");
  Sections sections{JsonObject(all.member("runtime"), "runtime"), JsonObject(all.member("trtllm"), "trtllm")};
  Settings settings{
      all.text("engine_dir"),
      sections.trtllm.has("encoder_dir") ? sections.trtllm.text("encoder_dir") : std::string(),
      all.integer("vocab_size"),
      one_of<te::DataType>("logits_dtype", all.text("logits_dtype"),
                           {{"float32", te::DataType::kFP32},
                            {"float16", te::DataType::kFP16},
                            {"bfloat16", te::DataType::kBF16}}),
      executor(sections, all.integer("max_lora_rank"))};
  if (settings.vocab_size <= 0) throw InvalidArgument("vocab_size is not positive");
  all.end();
  sections.runtime.end();
  sections.trtllm.end();
  return settings;
}

}  // namespace llgtrt
