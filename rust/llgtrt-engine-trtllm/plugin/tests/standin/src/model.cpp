#include "model.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "../../../src/float16.h"

namespace standin {
namespace {

constexpr float kNever = -std::numeric_limits<float>::infinity();

float unit(uint64_t hash) { return static_cast<float>(hash >> 40) / 16777216.0F; }

}  // namespace

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = ((a << 32) | (a >> 32)) ^ (b + 0x9e3779b97f4a7c15ULL);
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

float load(void const* row, te::DataType type, size_t index) {
  if (type == te::DataType::kFP32) return static_cast<float const*>(row)[index];
  auto const bits = static_cast<uint16_t const*>(row)[index];
  return type == te::DataType::kBF16 ? llgtrt::bf16_to_float(bits) : llgtrt::fp16_to_float(bits);
}

void store(void* row, te::DataType type, size_t index, float value) {
  if (type == te::DataType::kFP32) {
    static_cast<float*>(row)[index] = value;
  } else {
    static_cast<uint16_t*>(row)[index] =
        type == te::DataType::kBF16 ? llgtrt::float_to_bf16(value) : llgtrt::float_to_fp16(value);
  }
}

void write_logits(void* row, Settings const& settings, uint64_t context, std::optional<int32_t> end_id,
                  size_t generated) {
  for (int32_t token = 0; token < settings.padded_vocab_size; ++token) {
    float const value = token < settings.vocab_size ? 8.0F * unit(mix(context, static_cast<uint64_t>(token))) : 99.0F;
    store(row, settings.logits_type, static_cast<size_t>(token), value);
  }
  if (end_id && *end_id >= 0 && *end_id < settings.vocab_size) {
    float const value = std::min(0.25F * static_cast<float>(generated) - 8.0F, 20.0F);
    store(row, settings.logits_type, static_cast<size_t>(*end_id), value);
  }
}

Decoder::Decoder(te::Request const& request, Settings const& settings, uint64_t sequence_index)
    : config_(request.getSamplingConfig()),
      type_(settings.logits_type),
      vocab_size_(settings.vocab_size),
      seed_(config_.getSeed().value_or(0) + sequence_index),
      end_id_(request.getEndId()) {
  if (auto const bias = request.getEmbeddingBias())
    for (size_t i = 0; i < bias->getSize(); ++i) bias_.push_back(load(bias->getData(), bias->getDataType(), i));
  for (auto const& word : request.getBadWords().value_or(std::list<te::VecTokens>{}))
    if (word.size() == 1) bad_.push_back(word.front());
}

void Decoder::adjust(std::vector<float>& logits, te::VecTokens const& tokens, size_t prompt_length) const {
  for (size_t i = 0; i < std::min(bias_.size(), logits.size()); ++i) logits[i] += bias_[i];
  float const repetition = config_.getRepetitionPenalty().value_or(1.0F);
  float const presence = config_.getPresencePenalty().value_or(0.0F);
  float const frequency = config_.getFrequencyPenalty().value_or(0.0F);
  std::vector<int32_t> counts(logits.size(), 0);
  for (auto token : tokens)
    if (token >= 0 && static_cast<size_t>(token) < counts.size()) ++counts[static_cast<size_t>(token)];
  for (size_t i = 0; i < logits.size(); ++i) {
    if (counts[i] == 0) continue;
    logits[i] = logits[i] < 0 ? logits[i] * repetition : logits[i] / repetition;
    logits[i] -= presence + frequency * static_cast<float>(counts[i]);
  }
  for (auto token : bad_)
    if (token >= 0 && token < vocab_size_) logits[static_cast<size_t>(token)] = kNever;
  if (auto const size = static_cast<size_t>(config_.getNoRepeatNgramSize().value_or(0)); size > 0) {
    for (size_t i = 0; i + size <= tokens.size(); ++i) {
      auto const next = tokens[i + size - 1];
      if (std::equal(tokens.end() - static_cast<int64_t>(size - 1), tokens.end(), tokens.begin() + static_cast<int64_t>(i)) &&
          next >= 0 && next < vocab_size_)
        logits[static_cast<size_t>(next)] = kNever;
    }
  }
  auto const generated = static_cast<int32_t>(tokens.size() - prompt_length);
  if (end_id_ && *end_id_ >= 0 && *end_id_ < vocab_size_ && generated < config_.getMinTokens().value_or(0))
    logits[static_cast<size_t>(*end_id_)] = kNever;
}

Decoder::Choice Decoder::sample(void const* row, te::VecTokens const& tokens, size_t prompt_length, size_t rank) {
  std::vector<float> logits(static_cast<size_t>(vocab_size_));
  for (size_t i = 0; i < logits.size(); ++i) logits[i] = load(row, type_, i);
  adjust(logits, tokens, prompt_length);
  float const temperature = config_.getTemperature().value_or(1.0F);
  for (auto& logit : logits) logit /= temperature;

  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  float const best = logits[order.front()];
  double sum = 0.0;
  for (auto logit : logits) sum += std::exp(static_cast<double>(logit - best));
  auto const choice = [&](size_t index) {
    return Choice{static_cast<int32_t>(index), static_cast<float>(logits[index] - best - std::log(sum))};
  };
  auto const top_k = static_cast<size_t>(config_.getTopK().value_or(0));
  if (top_k == 1 || rank > 0 || config_.getBeamWidth() > 1) return choice(order[std::min(rank, order.size() - 1)]);

  size_t keep = top_k == 0 ? order.size() : std::min(top_k, order.size());
  float const floor = config_.getMinP().value_or(0.0F);
  double top_p = config_.getTopP().value_or(1.0F);
  for (size_t i = prompt_length; i < tokens.size(); ++i) {
    double const shrunk = top_p * config_.getTopPDecay().value_or(1.0F);
    top_p = tokens[i] == config_.getTopPResetIds().value_or(-1)
                ? config_.getTopP().value_or(1.0F)
                : std::max(shrunk, std::min<double>(top_p, config_.getTopPMin().value_or(0.0F)));
  }
  double mass = 0.0;
  size_t count = 0;
  for (; count < keep; ++count) {
    double const weight = std::exp(static_cast<double>(logits[order[count]] - best));
    if (count > 0 && (weight <= 0.0 || weight < floor || mass >= top_p * sum)) break;
    mass += weight;
  }
  double target = static_cast<double>(unit(mix(seed_, tokens.size()))) * mass;
  for (size_t i = 0; i < count; ++i) {
    target -= std::exp(static_cast<double>(logits[order[i]] - best));
    if (target <= 0.0) return choice(order[i]);
  }
  return choice(order[count - 1]);
}

}  // namespace standin
