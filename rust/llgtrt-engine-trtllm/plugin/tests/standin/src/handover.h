// A sequence that goes from one executor to another: batch_manager/cacheTransceiver.cpp, dataTransceiver.cpp. The state here is
// a hash of what the KV cache holds in place of where it is, so that nothing has to be moved and a wrong one is noticed.
#pragma once

#include "sequence.h"

namespace standin {

/// What a context-only request ends with: its sequence has its first token.
te::ContextPhaseParams hand_over(Sequence& sequence);

/// Gives a new sequence what another executor has made of it. Throws if that was another sequence.
void take_over(Sequence& sequence);

inline bool is(Sequence const& sequence, te::RequestType type) {
  return sequence.shared->request.getRequestType() == type;
}

/// Whether it ends here and goes on elsewhere: it has its first token, and that did not end it. What is complete, be it by its
/// length, is not sent (TrtGptModelInflightBatching::forwardSync, batch_manager/trtGptModelInflightBatching.cpp).
inline bool is_handed_over(Sequence const& sequence) {
  return is(sequence, te::RequestType::REQUEST_TYPE_CONTEXT_ONLY) && sequence.generated() > 0 && !sequence.finish;
}

}  // namespace standin
