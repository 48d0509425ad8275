// The batched logits post-processor: asks for masks and applies them, on the executor's thread.
#pragma once

#include <array>
#include <mutex>
#include <string>

#include "device.h"
#include "mask_kernel.h"
#include "plain.h"
#include "row_results.h"

namespace llgtrt {

class PostProcessor {
 public:
  PostProcessor(llgtrt_trtllm_callbacks const& callbacks, int32_t vocab_size);

  /// The signature of te::LogitsPostProcessorBatched. Nothing escapes: the executor catches nothing around it.
  void operator()(std::vector<te::IdType> const& request_ids, std::vector<te::Tensor>& logits,
                  std::vector<std::reference_wrapper<te::BeamTokens const>> const& tokens,
                  te::StreamPtr const& stream, std::vector<std::optional<te::IdType>> const& client_ids) noexcept;

  /// Why logits stayed unmasked that should not have; empty if all is well. Then no answer can be trusted any more.
  std::string failure() const;

  RowResults& results() { return results_; }

 private:
  /// Host and device memory of one step. A ring of them, because the device still copies from the last.
  struct Slot {
    Buffer pinned{Place::kPinned};
    Buffer device{Place::kDevice};
    Marker marker;
  };

  void run(std::vector<te::IdType> const& request_ids, std::vector<te::Tensor>& logits,
           std::vector<std::reference_wrapper<te::BeamTokens const>> const& tokens, void* stream,
           std::vector<std::optional<te::IdType>> const& client_ids);
  void apply(std::vector<te::Tensor>& logits, Slot& slot, size_t masks_offset, size_t bytes, void* stream);
  void keep_logits(std::vector<te::Tensor>& logits, void* stream);
  void fail(std::string text) noexcept;

  llgtrt_trtllm_callbacks callbacks_;
  uint32_t vocab_size_;
  uint32_t words_per_row_;
  std::array<Slot, 3> slots_;
  size_t next_slot_ = 0;
  // Apart, because tickets stay zero between steps and must not share memory with anything.
  Buffer tickets_{Place::kDevice};
  Buffer removed_{Place::kDevice};
  Buffer partials_{Place::kDevice};
  RowResults results_;
  std::vector<llgtrt_trtllm_row> rows_;
  std::vector<llgtrt_trtllm_row_plan> plans_;
  std::vector<std::shared_ptr<Buffer>> kept_;
  mutable std::mutex failure_mutex_;
  std::string failure_;
};

}  // namespace llgtrt
