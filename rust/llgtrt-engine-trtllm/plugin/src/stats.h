// Iteration statistics, summed up since start.
#pragma once

#include <string>
#include <vector>

#include "plain.h"

namespace llgtrt {

class Stats {
 public:
  Stats();

  /// Takes in what the executor has measured since the last call.
  void update(te::Executor& executor);

  llgtrt_trtllm_stats const& plain() const { return plain_; }

  /// The last iteration as TensorRT-LLM writes it; "{}" before the first.
  std::string const& json() const { return json_; }

 private:
  void add(te::IterationStats const& iteration);

  llgtrt_trtllm_stats plain_{};
  std::vector<llgtrt_trtllm_iteration> recent_;
  std::string json_ = "{}";
};

}  // namespace llgtrt
