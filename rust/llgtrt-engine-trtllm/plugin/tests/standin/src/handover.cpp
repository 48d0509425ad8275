#include "handover.h"

#include <cstring>

namespace standin {
namespace {

constexpr char kMagic[] = "standin-kv-cache";

std::vector<char> state_of(Sequence const& sequence) {
  uint64_t hash = sequence.salt;
  auto const& tokens = sequence.beams.front();
  for (size_t i = 0; i < sequence.prompt_length; ++i) hash = mix(hash, static_cast<uint64_t>(tokens[i]));
  std::vector<char> state(kMagic, kMagic + sizeof(kMagic));
  state.resize(sizeof(kMagic) + sizeof(hash));
  std::memcpy(state.data() + sizeof(kMagic), &hash, sizeof(hash));
  return state;
}

}  // namespace

/// LlmRequest::createResult (batch_manager/llmRequest.cpp, 119c6e6).
te::ContextPhaseParams hand_over(Sequence& sequence) {
  te::VecTokens first;
  for (auto const& beam : sequence.beams) first.push_back(beam.back());
  return te::ContextPhaseParams(first, sequence.id, state_of(sequence), std::nullopt);
}

void take_over(Sequence& sequence) {
  auto const params = sequence.shared->request.getContextPhaseParams();
  if (!params) throw std::runtime_error("[TensorRT-LLM][ERROR] Assertion failed: the context phase params are missing");
  // The real one would read from wherever the state says.
  if (params->getSerializedState() != state_of(sequence))
    throw std::runtime_error("[TensorRT-LLM][ERROR] Assertion failed: the state is that of another sequence");
  for (size_t beam = 0; beam < sequence.beams.size(); ++beam)
    sequence.beams[beam].push_back(params->getFirstGenTokens().at(beam));
  sequence.evaluated = sequence.prompt_length;
}

}  // namespace standin
