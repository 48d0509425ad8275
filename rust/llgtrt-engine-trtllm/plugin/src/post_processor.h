// The batched logits post-processor: asks for masks and applies them, on the executor's thread.
//
// collect -> plan (the callback) -> upload -> launch -> results. Everything is enqueued on the executor's stream; the device
// still computes the logits meanwhile. What an earlier step's kernel reads on the device is overwritten by a copy behind it on the
// same stream; only the host's memory has to wait until the device has read it.
#pragma once

#include <list>
#include <mutex>
#include <string>

#include "mask_kernel.h"
#include "places.h"
#include "plain.h"
#include "row_results.h"

namespace llgtrt {

class PostProcessor {
 public:
  PostProcessor(llgtrt_trtllm_callbacks const& callbacks, int32_t vocab_size);

  /// The signature of te::LogitsPostProcessorBatched. The executor would answer all its requests with whatever escapes and is
  /// a std::exception, and end the process with anything else.
  void operator()(std::vector<te::IdType> const& request_ids, std::vector<te::Tensor>& logits,
                  std::vector<std::reference_wrapper<te::BeamTokens const>> const& tokens,
                  te::StreamPtr const& stream, std::vector<std::optional<te::IdType>> const& client_ids) noexcept;

  /// Why logits stayed unmasked that should not have; empty if all is well. Then no answer can be trusted any more.
  std::string failure() const;

  RowResults& results() { return results_; }

 private:
  /// One row of a step, from what the executor passes to what the kernel gets.
  struct Row {
    te::Tensor* logits;
    uint32_t columns;
    uint32_t flags;
    /// The row as the model made it; null if nobody wants it.
    std::shared_ptr<Buffer> kept;
  };

  /// The host's memory of one step, which the callback writes to and the device reads: first the descriptions of the rows, then
  /// their masks.
  struct Stage {
    Buffer host{Place::kPinned};
    /// The device has read it.
    Marker read;
    size_t masks_offset = 0;
    /// Rows that the kernel has to look at.
    uint32_t work = 0;

    uint32_t* masks() { return reinterpret_cast<uint32_t*>(static_cast<char*>(host.data()) + masks_offset); }
    MaskRow* descriptions() { return static_cast<MaskRow*>(host.data()); }
  };

  void run(std::vector<te::IdType> const& request_ids, std::vector<te::Tensor>& logits,
           std::vector<std::reference_wrapper<te::BeamTokens const>> const& tokens, void* stream,
           std::vector<std::optional<te::IdType>> const& client_ids);
  void collect(std::vector<te::IdType> const& request_ids, std::vector<te::Tensor>& logits,
               std::vector<std::reference_wrapper<te::BeamTokens const>> const& tokens,
               std::vector<std::optional<te::IdType>> const& client_ids);
  bool plan(Stage& stage);
  void keep_logits(void* stream);
  void describe(Stage& stage);
  void upload(Stage& stage, void* stream);
  void upload_masks(Stage& stage, void* stream);
  bool is_on_device(Stage& stage, size_t place) const;
  void launch(Stage& stage, void* stream);
  void results(Stage const& stage, void* stream);
  Stage& free_stage();
  void fail(std::string text) noexcept;

  llgtrt_trtllm_callbacks callbacks_;
  uint32_t vocab_size_;
  uint32_t words_per_row_;
  Places places_;
  // Of the running step, by place; members so that their memory is kept.
  std::vector<Row> rows_;
  std::vector<llgtrt_trtllm_row> asked_;
  std::vector<llgtrt_trtllm_row_plan> plans_;
  uint32_t widest_ = 0;
  /// Of any row.
  uint32_t flags_ = 0;
  LogitsType type_ = LogitsType::kFP32;
  // As many as there are steps of which the device has not read the masks yet, and the last one.
  std::list<Stage> stages_;
  /// The step before, if it uploaded masks: what they were, and which places had one.
  Stage* before_ = nullptr;
  std::vector<bool> masked_before_;
  Buffer descriptions_{Place::kDevice};
  Buffer masks_{Place::kDevice};
  Buffer removed_{Place::kDevice};
  Buffer partials_{Place::kDevice};
  // Apart as well, because their sizes are.
  std::shared_ptr<PinnedPool> rows_pool_ = std::make_shared<PinnedPool>();
  std::shared_ptr<PinnedPool> masses_pool_ = std::make_shared<PinnedPool>();
  RowResults results_;
  mutable std::mutex failure_mutex_;
  std::string failure_;
};

}  // namespace llgtrt
