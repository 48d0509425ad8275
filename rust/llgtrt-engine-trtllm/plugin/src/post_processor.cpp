#include "post_processor.h"

#include <algorithm>
#include <cmath>
#include <cstring>

namespace llgtrt {
namespace {

/// The last dimension: the executor gives [tokens, beams, vocabulary] or less.
uint32_t columns_of(te::Tensor const& logits) {
  auto const shape = logits.getShape();
  return shape.size() == 0 ? 0 : static_cast<uint32_t>(shape[shape.size() - 1]);
}

LogitsType type_of(te::Tensor const& logits) {
  switch (logits.getDataType()) {
    case te::DataType::kFP32: return LogitsType::kFP32;
    case te::DataType::kFP16: return LogitsType::kFP16;
    case te::DataType::kBF16: return LogitsType::kBF16;
    default:
      throw std::runtime_error("logits of type " + std::to_string(static_cast<int>(logits.getDataType())) +
                               " cannot be masked");
  }
}

uint32_t flags_of(llgtrt_trtllm_row_plan const& plan) {
  uint32_t flags = 0;
  if (plan.apply_mask != 0) flags |= kApplyMask;
  if (plan.temperature > 0.0F && plan.temperature != 1.0F) flags |= kScale;
  if (plan.min_p > 0.0F) flags |= kMinP;
  if (plan.report_removed_mass != 0) flags |= kReportRemovedMass;
  return flags;
}

size_t align(size_t bytes) { return (bytes + 255) / 256 * 256; }

}  // namespace

PostProcessor::PostProcessor(llgtrt_trtllm_callbacks const& callbacks, int32_t vocab_size)
    : callbacks_(callbacks),
      vocab_size_(static_cast<uint32_t>(vocab_size)),
      words_per_row_((static_cast<uint32_t>(vocab_size) + 31) / 32) {}

void PostProcessor::operator()(std::vector<te::IdType> const& request_ids, std::vector<te::Tensor>& logits,
                               std::vector<std::reference_wrapper<te::BeamTokens const>> const& tokens,
                               te::StreamPtr const& stream,
                               std::vector<std::optional<te::IdType>> const& client_ids) noexcept {
  try {
    run(request_ids, logits, tokens, raw_stream(stream), client_ids);
  } catch (std::exception const& error) {
    fail(error.what());
  } catch (...) {
    fail("an exception that is no std::exception");
  }
}

void PostProcessor::run(std::vector<te::IdType> const& request_ids, std::vector<te::Tensor>& logits,
                        std::vector<std::reference_wrapper<te::BeamTokens const>> const& tokens, void* stream,
                        std::vector<std::optional<te::IdType>> const& client_ids) {
  size_t const count = request_ids.size();
  if (count == 0) return;
  if (logits.size() != count || tokens.size() != count || client_ids.size() != count)
    throw std::runtime_error("the executor called the logits post-processor with lists of different lengths");

  rows_.clear();
  for (size_t i = 0; i < count; ++i) {
    auto const& beams = tokens[i].get();
    llgtrt_trtllm_row row{};
    row.struct_size = sizeof(row);
    row.request_id = request_ids[i];
    row.client_id = client_ids[i].value_or(0);
    row.tokens = beams.empty() ? nullptr : beams.front().data();
    row.token_count = beams.empty() ? 0 : beams.front().size();
    row.beam_width = static_cast<int32_t>(beams.size());
    row.columns = static_cast<int32_t>(columns_of(logits[i]));
    rows_.push_back(row);
  }
  llgtrt_trtllm_row_plan no_plan{};
  no_plan.struct_size = sizeof(no_plan);
  plans_.assign(count, no_plan);

  auto& slot = slots_[next_slot_];
  next_slot_ = (next_slot_ + 1) % slots_.size();
  slot.marker.wait();
  size_t const masks_offset = align(count * sizeof(MaskRow));
  size_t const bytes = masks_offset + count * words_per_row_ * sizeof(uint32_t);
  auto* const staged = static_cast<char*>(slot.pinned.reserve(bytes));
  auto* const masks = reinterpret_cast<uint32_t*>(staged + masks_offset);
  // A failure is the callback's to remember: it ends the sequences of this call.
  if (callbacks_.fill(callbacks_.user, rows_.data(), count, masks, words_per_row_, plans_.data()) != 0) return;
  keep_logits(logits, stream);
  apply(logits, slot, masks_offset, bytes, stream);
}

void PostProcessor::keep_logits(std::vector<te::Tensor>& logits, void* stream) {
  kept_.assign(plans_.size(), nullptr);
  for (size_t i = 0; i < plans_.size(); ++i) {
    if (plans_[i].keep_logits == 0) continue;
    size_t const bytes = columns_of(logits[i]) * logit_size(type_of(logits[i]));
    kept_[i] = std::make_shared<Buffer>(Place::kPinned);
    copy_to_host(kept_[i]->reserve(bytes), logits[i].getData(), bytes, stream);
  }
}

void PostProcessor::apply(std::vector<te::Tensor>& logits, Slot& slot, size_t masks_offset, size_t bytes,
                          void* stream) {
  size_t const count = plans_.size();
  auto* const rows = static_cast<MaskRow*>(slot.pinned.data());
  uint32_t columns = 0;
  bool any_flag = false;
  bool any_report = false;
  bool any_kept = false;
  LogitsType const type = type_of(logits.front());
  for (size_t i = 0; i < count; ++i) {
    auto const& plan = plans_[i];
    auto& row = rows[i];
    row.logits = logits[i].getData();
    row.mask_offset = static_cast<uint32_t>(i) * words_per_row_;
    row.columns = columns_of(logits[i]);
    row.vocab = std::min(vocab_size_, row.columns);
    row.flags = flags_of(plan);
    row.inverse_temperature = plan.temperature > 0.0F ? 1.0F / plan.temperature : 1.0F;
    row.log_min_p = plan.min_p > 0.0F ? std::log(plan.min_p) : 0.0F;
    if (row.flags != 0 && type_of(logits[i]) != type)
      throw std::runtime_error("the rows of a step have logits of different types");
    if (row.flags != 0) columns = std::max(columns, row.columns);
    any_flag |= row.flags != 0;
    any_report |= plan.report_removed_mass != 0;
    any_kept |= kept_[i] != nullptr;
  }

  std::shared_ptr<StepResults> step;
  if (any_report || any_kept) step = std::make_shared<StepResults>();
  if (any_flag) {
    // One copy: the rows' descriptions and their masks lie together.
    auto* const device = static_cast<char*>(slot.device.reserve(bytes));
    copy_to_device(device, slot.pinned.data(), bytes, stream);
    size_t const chunks = (columns + kChunk - 1) / kChunk;
    MaskWorkspace const workspace{
        static_cast<MaskPartial*>(partials_.reserve(count * chunks * sizeof(MaskPartial))),
        static_cast<uint32_t*>(tickets_.reserve(count * sizeof(uint32_t))),
        static_cast<float*>(removed_.reserve(count * sizeof(float)))};
    apply_masks(reinterpret_cast<MaskRow const*>(device), static_cast<uint32_t>(count), columns, type,
                reinterpret_cast<uint32_t const*>(device + masks_offset), workspace, stream);
    if (any_report)
      copy_to_host(step->removed.reserve(count * sizeof(float)), workspace.removed, count * sizeof(float), stream);
    slot.marker.record(stream);
  }
  if (!step) return;
  step->marker.record(stream);
  for (size_t i = 0; i < count; ++i) {
    bool const reported = plans_[i].report_removed_mass != 0;
    if (!reported && !kept_[i]) continue;
    RowResults::Entry entry;
    entry.token_count = rows_[i].token_count;
    entry.step = step;
    entry.index = reported ? static_cast<int64_t>(i) : -1;
    entry.logits = std::move(kept_[i]);
    entry.dtype = static_cast<int32_t>(logits[i].getDataType());
    entry.columns = rows_[i].columns;
    results_.put(rows_[i].request_id, std::move(entry));
  }
}

void PostProcessor::fail(std::string text) noexcept {
  std::lock_guard const lock(failure_mutex_);
  if (failure_.empty()) failure_ = std::move(text);
}

std::string PostProcessor::failure() const {
  std::lock_guard const lock(failure_mutex_);
  return failure_;
}

}  // namespace llgtrt
