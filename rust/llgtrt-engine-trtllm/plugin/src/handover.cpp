#include "handover.h"

namespace llgtrt {

te::ContextPhaseParams to_context_phase(llgtrt_trtllm_handover const& handover) {
  checked(&handover, "handover");
  if (handover.state == nullptr) throw InvalidArgument("a generation_only request has no handover");
  auto const* const bytes = reinterpret_cast<char const*>(handover.state);
  std::optional<te::VecTokens> drafts;
  if (handover.draft_token_count > 0) drafts = to_vector(handover.draft_tokens, handover.draft_token_count);
  return te::ContextPhaseParams(to_vector(handover.first_tokens, handover.first_token_count), handover.request_id,
                                std::vector<char>(bytes, bytes + handover.state_size), drafts);
}

llgtrt_trtllm_handover to_plain(te::ContextPhaseParams const& params, HandoverText& text) {
  text.first_tokens = params.getFirstGenTokens();
  text.draft_tokens = params.getDraftTokens().value_or(te::VecTokens{});
  text.state = params.getSerializedState();
  auto plain = no_handover();
  plain.request_id = params.getReqId();
  plain.first_tokens = text.first_tokens.data();
  plain.first_token_count = text.first_tokens.size();
  plain.draft_tokens = text.draft_tokens.data();
  plain.draft_token_count = text.draft_tokens.size();
  plain.state = reinterpret_cast<uint8_t const*>(text.state.data());
  plain.state_size = text.state.size();
  return plain;
}

llgtrt_trtllm_handover no_handover() {
  llgtrt_trtllm_handover plain{};
  plain.struct_size = sizeof(plain);
  return plain;
}

}  // namespace llgtrt
