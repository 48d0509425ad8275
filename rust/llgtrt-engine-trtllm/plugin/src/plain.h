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

/// A number of bytes, milliseconds and the like; negative means that it is not given.
inline std::optional<int64_t> given_count(int64_t value) {
  if (value < 0) return std::nullopt;
  return value;
}

inline std::optional<std::string> given(char const* value) {
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

template <class T, class U = T>
std::vector<U> to_vector(T const* data, size_t count) {
  if (count > 0 && data == nullptr) throw InvalidArgument("a list has a length but no data");
  return std::vector<U>(data, data + count);
}

/// Lists of token ids, choices and so on.
std::vector<std::vector<int32_t>> to_lists(llgtrt_trtllm_lists const& lists);

/// Nothing if there are no lists: TensorRT-LLM takes an empty list for a list of empty words.
std::optional<std::list<te::VecTokens>> to_words(llgtrt_trtllm_lists const& lists);

/// A copy in the host's memory; nothing if there is no tensor.
std::optional<te::Tensor> to_tensor(llgtrt_trtllm_tensor const& tensor);

/// The tensor's own memory, described.
llgtrt_trtllm_tensor to_plain(te::Tensor const& tensor);

/// A tensor that is none.
llgtrt_trtllm_tensor no_tensor();

/// Bytes of one element; 0 for a type that is not known.
size_t element_size(int32_t dtype);

}  // namespace llgtrt
