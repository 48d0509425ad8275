#include "responses.h"

#include "errors.h"

namespace llgtrt {

void Responses::hold(std::vector<te::Response> responses) {
  plain_.clear();
  texts_.clear();
  // Sized before anything points into it.
  texts_.resize(responses.size());
  plain_.reserve(responses.size());
  for (size_t i = 0; i < responses.size(); ++i) plain_.push_back(describe(responses[i], texts_[i]));
}

llgtrt_trtllm_response Responses::describe(te::Response const& response, Text& text) {
  llgtrt_trtllm_response plain{};
  plain.struct_size = sizeof(plain);
  plain.request_id = response.getRequestId();
  plain.client_id = response.getClientId().value_or(0);
  plain.tokens.struct_size = sizeof(plain.tokens);
  plain.context_logits = no_tensor();
  plain.reused_blocks = -1;
  plain.handover = no_handover();
  if (response.hasError()) {
    text.error = response.getErrorMsg();
    plain.error = text.error.c_str();
    plain.error_kind = kind_of(text.error);
    plain.is_final = 1;
  } else {
    describe(response.getResult(), text, plain);
    if (plain.context_logits.data != nullptr && !context_given_.insert(plain.request_id).second)
      plain.context_logits = no_tensor();
  }
  if (plain.is_final != 0) context_given_.erase(plain.request_id);
  return plain;
}

void Responses::describe(te::Result const& result, Text& text, llgtrt_trtllm_response& plain) {
  plain.is_final = result.isFinal ? 1 : 0;
  if (!result.finishReasons.empty()) plain.finish_reason = static_cast<int32_t>(result.finishReasons.front());
  for (auto const& beam : result.outputTokenIds) {
    text.ids.insert(text.ids.end(), beam.begin(), beam.end());
    text.ends.push_back(text.ids.size());
  }
  plain.tokens.ids = text.ids.data();
  plain.tokens.ends = text.ends.data();
  plain.tokens.count = text.ends.size();
  if (result.contextLogits) {
    text.context_logits = result.contextLogits;
    plain.context_logits = to_plain(*text.context_logits);
  }
  if (result.contextPhaseParams) plain.handover = to_plain(*result.contextPhaseParams, text.handover);
  if (result.requestPerfMetrics) plain.reused_blocks = result.requestPerfMetrics->kvCacheMetrics.numReusedBlocks;
}

}  // namespace llgtrt
