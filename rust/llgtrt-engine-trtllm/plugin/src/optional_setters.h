// Setters that some versions of TensorRT-LLM lack. Each is a function that answers whether the version has it.
#pragma once

#include <stdexcept>
#include <string>

namespace llgtrt {

// The int argument prefers the overload that exists only where the setter does.
#define LLGTRT_OPTIONAL_SETTER(function, setter)                                                              \
  namespace detail {                                                                                          \
  template <class Target, class Value>                                                                        \
  auto function(Target& target, Value const& value, int) -> decltype(target.setter(value), bool()) {          \
    target.setter(value);                                                                                     \
    return true;                                                                                              \
  }                                                                                                           \
  template <class Target, class Value>                                                                        \
  bool function(Target&, Value const&, long) {                                                                \
    return false;                                                                                             \
  }                                                                                                           \
  }                                                                                                           \
  template <class Target, class Value>                                                                        \
  bool function(Target& target, Value const& value) {                                                         \
    return detail::function(target, value, 0);                                                                \
  }

LLGTRT_OPTIONAL_SETTER(try_set_gather_generation_logits, setGatherGenerationLogits)
LLGTRT_OPTIONAL_SETTER(try_set_fail_fast, setFailFastOnAttentionWindowTooLarge)
LLGTRT_OPTIONAL_SETTER(try_set_min_p, setMinP)
LLGTRT_OPTIONAL_SETTER(try_set_num_return_sequences, setNumReturnSequences)
LLGTRT_OPTIONAL_SETTER(try_set_mrope, setMropeConfig)
LLGTRT_OPTIONAL_SETTER(try_set_cache_salt, setCacheSaltID)
LLGTRT_OPTIONAL_SETTER(try_set_allotted_time, setAllottedTimeMs)
LLGTRT_OPTIONAL_SETTER(try_set_skip_cross_attention, setSkipCrossAttnBlocks)
LLGTRT_OPTIONAL_SETTER(try_set_cross_attention_mask, setCrossAttentionMask)
LLGTRT_OPTIONAL_SETTER(try_set_retention, setKvCacheRetentionConfig)

#undef LLGTRT_OPTIONAL_SETTER

/// Fails if a version lacks what a caller asked for.
inline void require(bool has, char const* what) {
  if (!has) throw std::runtime_error(std::string("this version of TensorRT-LLM cannot set ") + what);
}

}  // namespace llgtrt
