// From llgtrt_trtllm_request to a Request.
#pragma once

#include "plain.h"

namespace llgtrt {

/// What a request needs to know of the engine.
struct EngineShape {
  int32_t vocab_size;
  te::DataType logits_dtype;
};

te::Request to_request(llgtrt_trtllm_request const& request, EngineShape const& shape);

}  // namespace llgtrt
