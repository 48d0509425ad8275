// From the plain structs of the C interface to the types of tensorrt_llm::executor. Everything is copied.
#pragma once

#include "tensorrt_llm/executor/executor.h"

#include <cmath>
#include <cstdint>
#include <list>
#include <optional>
#include <vector>

#include "status.h"

namespace llgtrt {

namespace te = tensorrt_llm::executor;

inline std::optional<te::SizeType32> given(int32_t value) {
  if (value == LLGTRT_UNSET) return std::nullopt;
  return value;
}

inline std::optional<float> given(float value) {
  if (std::isnan(value)) return std::nullopt;
  return value;
}

template <class T>
std::vector<T> to_vector(T const* data, size_t count) {
  if (count > 0 && data == nullptr) throw InvalidArgument("a list has a length but no data");
  return std::vector<T>(data, data + count);
}

/// Nothing if there are no lists: TensorRT-LLM takes an empty list for a list of empty words.
std::optional<std::list<te::VecTokens>> to_words(llgtrt_trtllm_lists const& lists);

/// A copy in the host's memory; nothing if there is no tensor.
std::optional<te::Tensor> to_tensor(llgtrt_trtllm_tensor const& tensor);

/// The tensor's own memory, described.
llgtrt_trtllm_tensor to_plain(te::Tensor const& tensor);

/// A tensor that is none.
llgtrt_trtllm_tensor no_tensor();

}  // namespace llgtrt
