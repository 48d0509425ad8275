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

/// A copy of so many bytes takes about as long as starting one.
constexpr size_t kBridge = 64 * 1024;

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
  if (request_ids.empty()) return;
  collect(request_ids, logits, tokens, client_ids);
  auto& stage = free_stage();
  // A failure is the callback's to remember: it ends the sequences of this call.
  bool const planned = plan(stage);
  if (planned) {
    keep_logits(stream);
    describe(stage);
  }
  if (!planned || stage.work == 0) {
    before_ = nullptr;
    if (!planned) return;
  } else {
    upload(stage, stream);
    launch(stage, stream);
  }
  results(stage, stream);
}

void PostProcessor::collect(std::vector<te::IdType> const& request_ids, std::vector<te::Tensor>& logits,
                            std::vector<std::reference_wrapper<te::BeamTokens const>> const& tokens,
                            std::vector<std::optional<te::IdType>> const& client_ids) {
  size_t const count = request_ids.size();
  if (logits.size() != count || tokens.size() != count || client_ids.size() != count)
    throw std::runtime_error("the executor called the logits post-processor with lists of different lengths");
  rows_.clear();
  asked_.clear();
  for (size_t const i : places_.assign(request_ids)) {
    auto const& beams = tokens[i].get();
    rows_.push_back({&logits[i], columns_of(logits[i]), 0, nullptr});
    llgtrt_trtllm_row row{};
    row.struct_size = sizeof(row);
    row.request_id = request_ids[i];
    row.client_id = client_ids[i].value_or(0);
    row.tokens = beams.empty() ? nullptr : beams.front().data();
    row.token_count = beams.empty() ? 0 : beams.front().size();
    row.beam_width = static_cast<int32_t>(beams.size());
    row.columns = static_cast<int32_t>(rows_.back().columns);
    asked_.push_back(row);
  }
}

/// False: the callback failed, and nothing is to be done.
bool PostProcessor::plan(Stage& stage) {
  size_t const count = rows_.size();
  llgtrt_trtllm_row_plan nothing{};
  nothing.struct_size = sizeof(nothing);
  plans_.assign(count, nothing);
  stage.masks_offset = align(count * sizeof(MaskRow));
  stage.host.reserve(stage.masks_offset + count * words_per_row_ * sizeof(uint32_t));
  return callbacks_.fill(callbacks_.user, asked_.data(), count, stage.masks(), words_per_row_, plans_.data()) == 0;
}

/// Before the kernel changes them.
void PostProcessor::keep_logits(void* stream) {
  for (size_t i = 0; i < rows_.size(); ++i) {
    if (plans_[i].keep_logits == 0) continue;
    size_t const bytes = rows_[i].columns * logit_size(type_of(*rows_[i].logits));
    rows_[i].kept = rows_pool_->take(bytes);
    copy_to_host(rows_[i].kept->data(), rows_[i].logits->getData(), bytes, stream);
  }
}

/// Describes to the kernel the rows that it has to look at, and only those.
void PostProcessor::describe(Stage& stage) {
  stage.work = 0;
  widest_ = 0;
  flags_ = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    auto& row = rows_[i];
    auto const& plan = plans_[i];
    row.flags = flags_of(plan);
    if (row.flags == 0) continue;
    if (stage.work == 0) type_ = type_of(*row.logits);
    if (type_of(*row.logits) != type_) throw std::runtime_error("the rows of a step have logits of different types");
    widest_ = std::max(widest_, row.columns);
    flags_ |= row.flags;
    stage.descriptions()[stage.work++] = {row.logits->getData(),
                                          static_cast<uint32_t>(i) * words_per_row_,
                                          row.columns,
                                          std::min(vocab_size_, row.columns),
                                          row.flags,
                                          plan.temperature > 0.0F ? 1.0F / plan.temperature : 1.0F,
                                          plan.min_p > 0.0F ? std::log(plan.min_p) : 0.0F};
  }
}

void PostProcessor::upload(Stage& stage, void* stream) {
  size_t const bytes = stage.work * sizeof(MaskRow);
  copy_to_device(descriptions_.reserve(bytes, stream), stage.descriptions(), bytes, stream);
  upload_masks(stage, stream);
}

/// Only of rows whose mask is another one than in the step before: one copy for each run of them. Short runs of masks that have not
/// changed are copied along.
void PostProcessor::upload_masks(Stage& stage, void* stream) {
  size_t const row_bytes = words_per_row_ * sizeof(uint32_t);
  void const* const place_before = masks_.data();
  auto* const device = static_cast<char*>(masks_.reserve(rows_.size() * row_bytes, stream));
  // Memory that grew is empty.
  if (device != place_before) before_ = nullptr;
  auto const* const host = reinterpret_cast<char const*>(stage.masks());
  size_t begin = 0;
  size_t end = 0;
  // There is a row without a mask behind the run.
  bool gap = false;
  for (size_t place = 0; place < rows_.size(); ++place) {
    if ((rows_[place].flags & kApplyMask) == 0) {
      gap = true;
      continue;
    }
    if (is_on_device(stage, place)) continue;
    size_t const at = place * row_bytes;
    if (end == begin || gap || at > end + kBridge) {
      if (end > begin) copy_to_device(device + begin, host + begin, end - begin, stream);
      begin = at;
    }
    end = at + row_bytes;
    gap = false;
  }
  if (end > begin) copy_to_device(device + begin, host + begin, end - begin, stream);

  before_ = &stage;
  masked_before_.assign(rows_.size(), false);
  for (size_t place = 0; place < rows_.size(); ++place) masked_before_[place] = (rows_[place].flags & kApplyMask) != 0;
}

/// Whether the row holds this mask since the step before, whoever's it was.
bool PostProcessor::is_on_device(Stage& stage, size_t place) const {
  if (before_ == nullptr || place >= masked_before_.size() || !masked_before_[place]) return false;
  size_t const first = place * words_per_row_;
  return std::memcmp(stage.masks() + first, before_->masks() + first, words_per_row_ * sizeof(uint32_t)) == 0;
}

void PostProcessor::launch(Stage& stage, void* stream) {
  size_t const chunks = (widest_ + kChunk - 1) / kChunk;
  MaskWorkspace const workspace{
      static_cast<MaskPartial*>(partials_.reserve(stage.work * chunks * sizeof(MaskPartial), stream)),
      static_cast<float*>(removed_.reserve(stage.work * sizeof(float), stream))};
  apply_masks(static_cast<MaskRow const*>(descriptions_.data()), stage.work, widest_, type_, flags_,
              static_cast<uint32_t const*>(masks_.data()), workspace, stream);
  stage.read.record(stream);
}

/// What was asked of the rows, on its way to the host.
void PostProcessor::results(Stage const& stage, void* stream) {
  auto const reports = [](Row const& row) { return (row.flags & kReportRemovedMass) != 0; };
  bool const any_report = std::any_of(rows_.begin(), rows_.end(), reports);
  bool const any_kept = std::any_of(rows_.begin(), rows_.end(), [](Row const& row) { return row.kept != nullptr; });
  if (!any_report && !any_kept) return;
  auto step = std::make_shared<StepResults>();
  if (any_report) {
    size_t const bytes = stage.work * sizeof(float);
    step->removed = masses_pool_->take(bytes);
    copy_to_host(step->removed->data(), removed_.data(), bytes, stream);
  }
  step->marker.record(stream);
  int64_t described = 0;
  for (size_t i = 0; i < rows_.size(); ++i) {
    auto& row = rows_[i];
    int64_t const index = row.flags != 0 ? described++ : -1;
    if (!reports(row) && row.kept == nullptr) continue;
    RowResults::Entry entry;
    entry.token_count = asked_[i].token_count;
    entry.step = step;
    entry.index = reports(row) ? index : -1;
    entry.logits = std::move(row.kept);
    entry.dtype = static_cast<int32_t>(row.logits->getDataType());
    entry.columns = asked_[i].columns;
    results_.put(asked_[i].request_id, std::move(entry));
  }
}

/// One that the device has read, other than that of the step before; usually there are two or three. Waits only where the device is sixteen steps behind, where there is
/// nothing to be won by going on.
PostProcessor::Stage& PostProcessor::free_stage() {
  constexpr size_t kMost = 16;
  for (auto stage = stages_.begin(); stage != stages_.end(); ++stage) {
    if (&*stage == before_ || !stage->read.is_done()) continue;
    // The least recently used are in front.
    stages_.splice(stages_.end(), stages_, stage);
    return stages_.back();
  }
  if (stages_.size() < kMost) return stages_.emplace_back();
  stages_.splice(stages_.end(), stages_, stages_.begin());
  stages_.back().read.wait();
  return stages_.back();
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
