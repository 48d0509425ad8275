// From Response to llgtrt_trtllm_response.
#pragma once

#include <unordered_set>
#include <vector>

#include "handover.h"
#include "plain.h"

namespace llgtrt {

/// The responses of the last await. What the plain structs point to lives here until the next.
class Responses {
 public:
  void hold(std::vector<te::Response> responses);

  std::vector<llgtrt_trtllm_response> const& plain() const { return plain_; }

 private:
  struct Text {
    std::string error;
    std::vector<int32_t> ids;
    std::vector<size_t> ends;
    std::optional<te::Tensor> context_logits;
    HandoverText handover;
  };

  llgtrt_trtllm_response describe(te::Response const& response, Text& text);
  void describe(te::Result const& result, Text& text, llgtrt_trtllm_response& plain);

  std::vector<Text> texts_;
  std::vector<llgtrt_trtllm_response> plain_;
  /// Requests of which the logits of the prompt were handed out.
  std::unordered_set<uint64_t> context_given_;
};

}  // namespace llgtrt
