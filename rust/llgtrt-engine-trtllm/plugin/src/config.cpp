#include "config.h"

#include "optional_setters.h"

namespace llgtrt {
namespace {

te::SchedulerConfig scheduler(llgtrt_trtllm_config const& config) {
  std::optional<te::ContextChunkingPolicy> chunking;
  if (auto policy = given(config.chunking_policy)) chunking = static_cast<te::ContextChunkingPolicy>(*policy);
  std::optional<te::DynamicBatchConfig> dynamic;
  if (config.enable_batch_size_tuning != 0 || config.enable_max_num_tokens_tuning != 0) {
    bool const batch = config.enable_batch_size_tuning != 0;
    bool const tokens = config.enable_max_num_tokens_tuning != 0;
    auto const window = given(config.tuning_window);
    dynamic = window ? te::DynamicBatchConfig(batch, tokens, *window) : te::DynamicBatchConfig(batch, tokens);
  }
  return te::SchedulerConfig(static_cast<te::CapacitySchedulerPolicy>(config.scheduler_policy), chunking, dynamic);
}

te::KvCacheConfig kv_cache(llgtrt_trtllm_config const& config) {
  std::optional<std::vector<te::SizeType32>> windows;
  if (config.kv_attention_window_count > 0)
    windows = to_vector(config.kv_attention_windows, config.kv_attention_window_count);
  std::optional<size_t> host;
  if (auto bytes = given_count(config.kv_host_cache_bytes)) host = static_cast<size_t>(*bytes);
  auto const events = given_count(config.kv_event_buffer_max_size).value_or(0);
  return te::KvCacheConfig(config.kv_enable_reuse != 0, given(config.kv_max_tokens), windows,
                           given(config.kv_sink_token_length), given(config.kv_free_gpu_mem_fraction), host,
                           config.kv_onboard_blocks != 0, given(config.kv_cross_fraction),
                           given(config.kv_secondary_offload_min_priority), static_cast<size_t>(events));
}

std::optional<te::PeftCacheConfig> peft_cache(llgtrt_trtllm_config const& config) {
  auto const optimal = given(config.lora_optimal_adapter_size);
  auto const largest = given(config.lora_max_adapter_size);
  auto const device = given(config.lora_device_cache_fraction);
  auto const prefetch = given(config.lora_prefetch_dir);
  std::optional<size_t> host;
  if (auto bytes = given_count(config.lora_host_cache_bytes)) host = static_cast<size_t>(*bytes);
  if (!optimal && !largest && !device && !prefetch && !host) return std::nullopt;
  return te::PeftCacheConfig(0, 0, optimal.value_or(te::PeftCacheConfig::kDefaultOptimalAdapterSize),
                             largest.value_or(te::PeftCacheConfig::kDefaultMaxAdapterSize), 1, 1, 1,
                             te::PeftCacheConfig::kDefaultMaxPagesPerBlockHost,
                             te::PeftCacheConfig::kDefaultMaxPagesPerBlockDevice, device, host, prefetch);
}

std::optional<te::DecodingMode> decoding_mode(int32_t mode) {
  switch (mode) {
    case LLGTRT_DECODING_DEFAULT: return std::nullopt;
    case LLGTRT_DECODING_AUTO: return te::DecodingMode::Auto();
    case LLGTRT_DECODING_TOP_K: return te::DecodingMode::TopK();
    case LLGTRT_DECODING_TOP_P: return te::DecodingMode::TopP();
    case LLGTRT_DECODING_TOP_K_TOP_P: return te::DecodingMode::TopKTopP();
    case LLGTRT_DECODING_BEAM_SEARCH: return te::DecodingMode::BeamSearch();
    case LLGTRT_DECODING_MEDUSA: return te::DecodingMode::Medusa();
    case LLGTRT_DECODING_REDRAFTER: return te::DecodingMode::ExplicitDraftTokens();
    case LLGTRT_DECODING_LOOKAHEAD: return te::DecodingMode::Lookahead();
    case LLGTRT_DECODING_EAGLE: return te::DecodingMode::Eagle();
    default: throw InvalidArgument("unknown decoding mode " + std::to_string(mode));
  }
}

std::optional<te::DecodingConfig> decoding(llgtrt_trtllm_config const& config) {
  auto const mode = decoding_mode(config.decoding_mode);
  if (!mode) return std::nullopt;
  std::optional<te::LookaheadDecodingConfig> lookahead;
  if (config.decoding_mode == LLGTRT_DECODING_LOOKAHEAD) {
    lookahead = given(config.lookahead_window)
                    ? te::LookaheadDecodingConfig(config.lookahead_window, config.lookahead_ngram,
                                                  config.lookahead_verification_set)
                    : te::LookaheadDecodingConfig();
  }
  std::optional<te::MedusaChoices> medusa;
  if (config.medusa_choices.count > 0) medusa = to_lists(config.medusa_choices);
  std::optional<te::EagleConfig> eagle;
  if (config.decoding_mode == LLGTRT_DECODING_EAGLE) {
    std::optional<te::EagleChoices> choices;
    if (config.eagle_choices.count > 0) choices = to_lists(config.eagle_choices);
    eagle = te::EagleConfig(choices, config.eagle_greedy_sampling != 0, given(config.eagle_posterior_threshold),
                            config.eagle_use_dynamic_tree != 0, given(config.eagle_dynamic_tree_max_top_k));
  }
  return te::DecodingConfig(mode, lookahead, medusa, eagle);
}

}  // namespace

te::ExecutorConfig to_executor_config(llgtrt_trtllm_config const& config) {
  te::ExecutorConfig result(config.max_beam_width);
  result.setSchedulerConfig(scheduler(config));
  result.setKvCacheConfig(kv_cache(config));
  result.setEnableChunkedContext(config.enable_chunked_context != 0);
  result.setNormalizeLogProbs(config.normalize_log_probs != 0);
  result.setIterStatsMaxIterations(config.iter_stats_max_iterations);
  if (auto size = given(config.max_batch_size)) result.setMaxBatchSize(*size);
  if (auto tokens = given(config.max_num_tokens)) result.setMaxNumTokens(*tokens);
  if (auto size = given(config.max_queue_size)) result.setMaxQueueSize(size);
  result.setGpuWeightsPercent(config.gpu_weights_percent);
  result.setExtendedRuntimePerfKnobConfig(
      te::ExtendedRuntimePerfKnobConfig(config.multi_block_mode != 0, config.context_fmha_fp32_acc != 0,
                                        config.cuda_graph_mode != 0, config.cuda_graph_cache_size));
  if (auto peft = peft_cache(config)) result.setPeftCacheConfig(*peft);
  if (auto modes = decoding(config)) result.setDecodingConfig(*modes);

  te::ParallelConfig parallel(te::CommunicationType::kMPI, te::CommunicationMode::kLEADER);
  if (config.device_id_count > 0) parallel.setDeviceIds(to_vector(config.device_ids, config.device_id_count));
  result.setParallelConfig(parallel);

  if (config.gather_generation_logits != 0)
    require(try_set_gather_generation_logits(result, true), "gather_generation_logits");
  // Otherwise a cache that is too small for one sequence shows as requests that never start.
  try_set_fail_fast(result, true);
  return result;
}

}  // namespace llgtrt
