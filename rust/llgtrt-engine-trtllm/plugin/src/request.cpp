#include "request.h"

#include <chrono>

#include "float16.h"
#include "handover.h"
#include "lora.h"

namespace llgtrt {
namespace {

te::SamplingConfig sampling(llgtrt_trtllm_sampling const& plain) {
  checked(&plain, "sampling");
  te::SamplingConfig config(plain.beam_width);
  if (auto value = given(plain.top_k)) config.setTopK(value);
  if (auto value = given(plain.top_p)) config.setTopP(value);
  if (auto value = given(plain.top_p_min)) config.setTopPMin(value);
  if (auto value = given(plain.top_p_decay)) config.setTopPDecay(value);
  if (auto value = given(plain.top_p_reset_id)) config.setTopPResetIds(value);
  if (auto value = given(plain.temperature)) config.setTemperature(value);
  if (auto value = given(plain.min_p)) config.setMinP(value);
  if (auto value = given(plain.repetition_penalty)) config.setRepetitionPenalty(value);
  if (auto value = given(plain.presence_penalty)) config.setPresencePenalty(value);
  if (auto value = given(plain.frequency_penalty)) config.setFrequencyPenalty(value);
  if (auto value = given(plain.no_repeat_ngram_size)) config.setNoRepeatNgramSize(value);
  if (plain.has_seed != 0) config.setSeed(std::optional<te::RandomSeedType>(plain.seed));
  return config;
}

/// The executor wants a full row in the type of the logits.
te::Tensor bias_row(llgtrt_trtllm_request const& request, EngineShape const& shape) {
  std::vector<float> row(static_cast<size_t>(shape.vocab_size), 0.0F);
  for (auto const& [token, bias] : to_vector(request.biases, request.bias_count)) {
    if (token < 0 || token >= shape.vocab_size) throw InvalidArgument("a bias is for a token that does not exist");
    row[static_cast<size_t>(token)] += bias;
  }
  auto const dtype = shape.logits_dtype;
  auto tensor = te::Tensor::cpu(dtype, te::Shape{shape.vocab_size});
  if (dtype == te::DataType::kFP32) {
    std::copy(row.begin(), row.end(), static_cast<float*>(tensor.getData()));
  } else {
    auto* out = static_cast<uint16_t*>(tensor.getData());
    bool const bf16 = dtype == te::DataType::kBF16;
    for (size_t i = 0; i < row.size(); ++i) out[i] = bf16 ? float_to_bf16(row[i]) : float_to_fp16(row[i]);
  }
  return tensor;
}

std::optional<std::chrono::milliseconds> milliseconds(int64_t value) {
  if (value < 0) return std::nullopt;
  return std::chrono::milliseconds(value);
}

void set_retention(te::Request& target, llgtrt_trtllm_request const& request) {
  auto const decode = given(request.decode_retention_priority);
  if (request.retention_count == 0 && !decode) return;
  std::vector<te::KvCacheRetentionConfig::TokenRangeRetentionConfig> ranges;
  for (auto const& range : to_vector(request.retention, request.retention_count)) {
    checked(&range, "retention");
    ranges.emplace_back(range.token_start, given(range.token_end), range.priority, milliseconds(range.duration_ms));
  }
  te::KvCacheRetentionConfig const config(
      ranges, decode.value_or(te::KvCacheRetentionConfig::kDefaultRetentionPriority),
      milliseconds(request.decode_retention_ms));
  target.setKvCacheRetentionConfig(config);
}

void set_encoder(te::Request& target, llgtrt_trtllm_request const& request) {
  if (request.encoder_token_count > 0)
    target.setEncoderInputTokenIds(to_vector(request.encoder_tokens, request.encoder_token_count));
  if (auto features = to_tensor(request.encoder_features)) target.setEncoderInputFeatures(*features);
  if (auto length = given(request.encoder_output_length)) target.setEncoderOutputLength(*length);
  if (auto mask = to_tensor(request.cross_attention_mask)) target.setCrossAttentionMask(*mask);
  if (auto skip = to_tensor(request.skip_cross_attention)) target.setSkipCrossAttnBlocks(*skip);
}

void set_phase(te::Request& target, llgtrt_trtllm_request const& request) {
  switch (request.phase) {
    case LLGTRT_WHOLE:
      return;
    case LLGTRT_CONTEXT_ONLY:
      target.setRequestType(te::RequestType::REQUEST_TYPE_CONTEXT_ONLY);
      return;
    case LLGTRT_GENERATION_ONLY:
      target.setRequestType(te::RequestType::REQUEST_TYPE_GENERATION_ONLY);
      target.setContextPhaseParams(to_context_phase(request.handover));
      return;
    default:
      throw InvalidArgument("the phase is not known to this plugin");
  }
}

}  // namespace

te::Request to_request(llgtrt_trtllm_request const& request, EngineShape const& shape) {
  te::OutputConfig output;
  output.returnContextLogits = request.return_context_logits != 0;
  // They tell how much of the prompt was in the cache.
  output.returnPerfMetrics = true;
  output.excludeInputFromOutput = true;

  // With several beams a streaming response is the whole answer so far, because beams change what they said before.
  bool const streaming = request.sampling.beam_width <= 1;
  te::Request target(to_vector(request.tokens, request.token_count), request.max_tokens, streaming,
                     sampling(request.sampling), output);
  target.setClientId(request.client_id);
  if (auto id = given(request.end_id)) target.setEndId(*id);
  if (auto id = given(request.pad_id)) target.setPadId(*id);
  if (auto words = to_words(request.stop_words)) target.setStopWords(*words);
  if (auto words = to_words(request.bad_words)) target.setBadWords(*words);
  if (request.bias_count > 0) target.setEmbeddingBias(bias_row(request, shape));
  if (request.post_process != 0) target.setLogitsPostProcessorName(te::Request::kBatchedPostProcessorName);
  if (auto priority = given(request.priority)) target.setPriority(*priority);
  if (auto time = milliseconds(request.allotted_time_ms)) target.setAllottedTimeMs(*time);
  if (request.has_cache_salt != 0) target.setCacheSaltID(request.cache_salt);
  if (auto lora = to_lora(request)) target.setLoraConfig(*lora);
  if (auto table = to_tensor(request.prompt_table)) {
    std::optional<te::VecTokenExtraIds> extra;
    if (request.prompt_extra_id_count > 0)
      extra = to_vector(request.prompt_extra_ids, request.prompt_extra_id_count);
    target.setPromptTuningConfig(te::PromptTuningConfig(*table, extra));
  }
  if (request.position_id_count > 0)
    target.setPositionIds(to_vector(request.position_ids, request.position_id_count));
  if (auto rotary = to_tensor(request.mrope_cos_sin))
    target.setMropeConfig(te::MropeConfig(*rotary, request.mrope_position_deltas));
  set_encoder(target, request);
  set_retention(target, request);
  set_phase(target, request);
  if (given(request.lookahead_window)) {
    target.setLookaheadConfig(te::LookaheadDecodingConfig(request.lookahead_window, request.lookahead_ngram,
                                                          request.lookahead_verification_set));
  }
  return target;
}

}  // namespace llgtrt
