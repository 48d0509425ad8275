// What the engine folder says: config.json, and the switches of the tests in standin.conf (lines `key=value`).
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "tensorrt_llm/executor/types.h"

namespace standin {

namespace te = tensorrt_llm::executor;

struct Settings {
  explicit Settings(std::filesystem::path const& folder);

  // config.json
  int32_t vocab_size = 257;
  /// As many as divide evenly over the processes (runtime/modelConfig.h, getVocabSizePadded): with one process there is
  /// no padding. standin.conf may set it, as an engine for several processes has it.
  int32_t padded_vocab_size = 0;
  int32_t world_size = 1;
  int32_t max_batch_size = 8;
  int32_t max_num_tokens = 2048;
  int32_t max_seq_len = 2048;
  int32_t max_input_len = 1024;
  int32_t max_lora_rank = 64;
  int32_t layers = 1;
  bool context_fmha = true;
  bool packed_input = true;
  bool paged_context_fmha = false;
  bool gather_context_logits = false;
  te::DataType weights_type = te::DataType::kFP16;
  int32_t max_beam_width = 1;
  int32_t tokens_per_block = 16;
  te::DataType logits_type = te::DataType::kFP32;

  // standin.conf
  /// Time of an iteration.
  int64_t step_us = 0;
  /// Most prompt tokens of a sequence in one iteration; 0: max_num_tokens.
  int32_t chunk_tokens = 0;
  /// Blocks of prompts that stay cached; 0: all.
  int32_t cache_blocks = 0;
  /// Adapters that fit the cache.
  int32_t lora_cache = 2;
  /// The iteration whose forward pass fails, once: the device stays sound; 0: none.
  int64_t fail_iteration = 0;
  /// The iteration from which on the device is broken, and every forward pass fails; 0: none.
  int64_t fatal_iteration = 0;
  /// The iteration whose logits post-processor finds the device broken; 0: none.
  int64_t fatal_mask_iteration = 0;
  /// The iteration from which on the loop does nothing; 0: none.
  int64_t hang_iteration = 0;
  /// Requests whose prompt holds the token ...
  /// ... are refused by enqueueRequest.
  int32_t refuse_token = -1;
  /// ... get an error after `error_at` tokens.
  int32_t error_token = -1;
  int32_t error_at = 2;
  /// ... finish after two tokens for a reason that nobody knows.
  int32_t odd_finish_token = -1;
  /// ... finish at once as timed out.
  int32_t timeout_token = -1;
  /// ... report their last tokens a second time after their end, which the real one should never do.
  int32_t echo_token = -1;
  /// Wait with the next iteration until the responses of the last were taken: a reader that is slow finds the
  /// sequences no further than a fast one.
  bool lockstep = false;
  /// Write the time of each call of the logits post-processor, in nanoseconds and without that of the device, to the file
  /// post_processor_times at the end. Sequences then have one row of logits for good, and tokens of 0.
  bool time_post_processor = false;
  /// Throw in the constructor.
  bool broken = false;
  /// Throw something that is no std::exception from cancelRequest.
  bool odd_exception = false;
  /// One of a group of processes: the leader holds standin.lock, the others wait for it.
  bool group = false;

  std::filesystem::path folder;
  /// Of an encoder-decoder model.
  bool has_encoder = false;
};

}  // namespace standin
