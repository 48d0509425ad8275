// A model that is a hash, and a decoder that samples from it as TensorRT-LLM's does.
#pragma once

#include <vector>

#include "settings.h"
#include "tensorrt_llm/executor/executor.h"

namespace standin {

/// A row of logits as it is kept in `type`.
float load(void const* row, te::DataType type, size_t index);
void store(void* row, te::DataType type, size_t index, float value);

/// Mixes two words into one, well enough that neighbours look unrelated.
uint64_t mix(uint64_t a, uint64_t b);

/// Writes the logits that follow the context with this hash. Padding gets a large value: whoever looks at it is found
/// out. `end_id` gets likelier the more tokens were generated.
void write_logits(void* row, Settings const& settings, uint64_t context, std::optional<int32_t> end_id,
                  size_t generated);

/// The decoder of one sequence.
class Decoder {
 public:
  Decoder(te::Request const& request, Settings const& settings, uint64_t sequence_index);

  struct Choice {
    int32_t token;
    float log_prob;
  };

  /// The next token after `tokens`, of which `prompt_length` are the prompt. `rank` picks the rank-th best (beams).
  Choice sample(void const* row, te::VecTokens const& tokens, size_t prompt_length, size_t rank);

 private:
  void adjust(std::vector<float>& logits, te::VecTokens const& tokens, size_t prompt_length) const;

  te::SamplingConfig config_;
  te::DataType type_;
  int32_t vocab_size_;
  uint64_t seed_;
  std::optional<int32_t> end_id_;
  std::vector<float> bias_;
  std::vector<int32_t> bad_;
};

}  // namespace standin
