// Between llgtrt_trtllm_handover and ContextPhaseParams.
#pragma once

#include "plain.h"

namespace llgtrt {

te::ContextPhaseParams to_context_phase(llgtrt_trtllm_handover const& handover);

/// What a handover points to.
struct HandoverText {
  te::VecTokens first_tokens;
  te::VecTokens draft_tokens;
  std::vector<char> state;
};

/// Points into `text`.
llgtrt_trtllm_handover to_plain(te::ContextPhaseParams const& params, HandoverText& text);

/// One that is none.
llgtrt_trtllm_handover no_handover();

}  // namespace llgtrt
