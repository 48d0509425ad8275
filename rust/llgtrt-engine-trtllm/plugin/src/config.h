// From the settings' JSON document to an ExecutorConfig.
#pragma once

#include <string>

#include "plain.h"

namespace llgtrt {

struct Settings {
  std::string engine_dir;
  /// Of an encoder-decoder model; empty otherwise.
  std::string encoder_dir;
  int32_t vocab_size;
  te::DataType logits_dtype;
  te::ExecutorConfig executor;
};

/// Throws InvalidArgument with the option's name if one is missing, unknown or of a wrong type.
Settings read_settings(char const* json);

}  // namespace llgtrt
