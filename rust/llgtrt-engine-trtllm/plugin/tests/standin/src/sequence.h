// One generation inside the stand-in. Owned by the loop's thread.
#pragma once

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <stdexcept>
#include <vector>

#include "model.h"

namespace standin {

/// What the sequences of a request share.
struct Shared {
  Shared(te::Request r, uint64_t i) : request(std::move(r)), id(i), arrived(std::chrono::steady_clock::now()) {}

  te::Request request;
  uint64_t id;
  /// Sequences that have not ended.
  int32_t live = 0;
  std::chrono::steady_clock::time_point arrived;
};

struct Sequence {
  Sequence(std::shared_ptr<Shared> shared, uint64_t id, int32_t index, Settings const& settings);

  te::VecTokens& tokens() { return beams.front(); }
  size_t generated() const { return beams.front().size() - prompt_length; }
  bool prompt_holds(int32_t token) const;
  /// LlmRequest::clearGeneratedTokens: what was not reported yet is lost.
  void clear_answer() {
    for (auto& beam : beams) beam.resize(prompt_length + std::min(reported, beam.size() - prompt_length));
  }

  std::shared_ptr<Shared> shared;
  uint64_t id;
  int32_t index;
  size_t prompt_length;
  /// Prompt and answer of each beam.
  te::BeamTokens beams;
  Decoder decoder;
  /// At most so many tokens are generated: less than asked for where the engine's longest sequence ends before.
  int32_t max_tokens;
  /// Prompt tokens evaluated, and those of them that were in the cache.
  size_t evaluated = 0;
  int32_t reused_blocks = 0;
  /// It has its place in the KV cache.
  bool scheduled = false;
  /// The decoder knows it: since its last piece of prompt.
  bool decoding = false;
  /// Prompt tokens evaluated in this iteration.
  size_t chunk = 0;
  /// What all logits of the sequence depend on beside its tokens.
  uint64_t salt = 0;
  te::Tensor logits;
  bool logits_made = false;
  std::vector<float> context_logits;
  /// Tokens of each beam that were reported.
  size_t reported = 0;
  std::optional<te::FinishReason> finish;
  /// It ends with this instead of an answer: a switch of the tests.
  std::string error;
};

/// runtime::LoraExpectedException: its text reaches the caller as it is.
class AdapterError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline Sequence::Sequence(std::shared_ptr<Shared> owner, uint64_t own_id, int32_t own_index, Settings const& settings)
    : shared(std::move(owner)),
      id(own_id),
      index(own_index),
      prompt_length(shared->request.getInputTokenIds().size()),
      beams(static_cast<size_t>(std::max(shared->request.getSamplingConfig().getBeamWidth(), 1)),
            shared->request.getInputTokenIds()),
      decoder(shared->request, settings, static_cast<uint64_t>(own_index)),
      max_tokens(shared->request.getMaxTokens()) {
  if (auto const salt_id = shared->request.getCacheSaltID()) salt = mix(salt, *salt_id);
  if (auto const lora = shared->request.getLoraConfig()) salt = mix(salt, lora->getTaskId() + 1);
  if (auto const table = shared->request.getPromptTuningConfig()) {
    auto const tensor = table->getEmbeddingTable();
    auto const* bytes = static_cast<unsigned char const*>(tensor.getData());
    for (size_t i = 0; i < tensor.getSizeInBytes(); ++i) salt = mix(salt, bytes[i]);
    for (auto id : table->getInputTokenExtraIds().value_or(te::VecTokenExtraIds{})) salt = mix(salt, id);
  }
  for (auto position : shared->request.getPositionIds().value_or(std::vector<te::SizeType32>{}))
    salt = mix(salt, static_cast<uint64_t>(position));
}

inline bool Sequence::prompt_holds(int32_t token) const {
  auto const& prompt = beams.front();
  for (size_t i = 0; token >= 0 && i < prompt_length; ++i)
    if (prompt[i] == token) return true;
  return false;
}

}  // namespace standin
