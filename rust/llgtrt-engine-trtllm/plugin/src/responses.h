// From Response to llgtrt_trtllm_response.
#pragma once

#include <vector>

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
    std::vector<float> log_probs;
    std::optional<te::Tensor> context_logits;
    std::optional<te::Tensor> generation_logits;
  };

  static llgtrt_trtllm_response describe(te::Response const& response, Text& text);
  static void describe(te::Result const& result, Text& text, llgtrt_trtllm_response& plain);

  std::vector<Text> texts_;
  std::vector<llgtrt_trtllm_response> plain_;
};

}  // namespace llgtrt
