// What a step costs the executor's thread beside the masks themselves and the calls of CUDA, which only enqueue: the time of
// the logits post-processor over a device that does nothing.
//
//   cmake -S plugin -B build -DLLGTRT_STANDIN=ON -DLLGTRT_TESTS=ON && cmake --build build --target host_cost && build/host_cost
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <new>

#include "post_processor.h"

namespace llgtrt {

void* raw_stream(te::StreamPtr const& /*stream*/) { return nullptr; }
int current_device() { return 0; }
void use_device(int /*device*/) {}
void check_device() {}

Buffer::~Buffer() { release(); }
void Buffer::release() noexcept { ::operator delete(data_); }
void* Buffer::reserve(size_t bytes) {
  if (bytes <= size_) return data_;
  release();
  data_ = ::operator new(bytes);
  size_ = bytes;
  return data_;
}

Marker::~Marker() = default;
void Marker::record(void* /*stream*/) {}
bool Marker::is_done() const { return true; }
void Marker::wait() const {}
void copy_to_device(void* /*target*/, void const* /*source*/, size_t /*bytes*/, void* /*stream*/) {}
void copy_to_host(void* /*target*/, void const* /*source*/, size_t /*bytes*/, void* /*stream*/) {}
void apply_masks(MaskRow const* /*rows*/, uint32_t /*count*/, uint32_t /*columns*/, LogitsType /*type*/,
                 uint32_t const* /*masks*/, MaskWorkspace const& /*workspace*/, void* /*stream*/) {}

}  // namespace llgtrt

namespace {

using namespace llgtrt;

constexpr int32_t kVocab = 128256;
constexpr size_t kRows = 256;
constexpr int kSteps = 400;

struct Plan {
  int32_t keep = 0;
  int32_t report = 0;
};

int32_t fill(void* user, llgtrt_trtllm_row const* /*rows*/, size_t count, uint32_t* /*masks*/, size_t /*words*/,
             llgtrt_trtllm_row_plan* plans) {
  auto const& plan = *static_cast<Plan const*>(user);
  for (size_t i = 0; i < count; ++i) {
    plans[i].apply_mask = 1;
    plans[i].keep_logits = plan.keep;
    plans[i].report_removed_mass = plan.report;
  }
  return 0;
}

/// Microseconds of the median step and of the slowest of a hundred.
void measure(char const* what, Plan plan) {
  PostProcessor processor({sizeof(llgtrt_trtllm_callbacks), &plan, fill}, kVocab);
  std::vector<te::IdType> ids;
  std::vector<te::Tensor> logits;
  te::BeamTokens const beams(1, te::VecTokens(1000, 7));
  std::vector<std::reference_wrapper<te::BeamTokens const>> const tokens(kRows, std::cref(beams));
  std::vector<std::optional<te::IdType>> const clients(kRows, 1);
  float row[1] = {};
  for (size_t i = 0; i < kRows; ++i) {
    ids.push_back(i + 1);
    logits.push_back(te::Tensor::of(te::DataType::kFP32, row, {1, 1, kVocab}));
  }
  std::vector<double> times;
  auto result = llgtrt_trtllm_row_result{};
  for (int step = 0; step < kSteps; ++step) {
    auto const start = std::chrono::steady_clock::now();
    processor(ids, logits, tokens, nullptr, clients);
    times.push_back(std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count());
    // As the engine's thread does when the tokens have come.
    for (auto const id : ids) processor.results().take(id, 1000, result);
  }
  std::sort(times.begin(), times.end());
  std::printf("%-42s %8.1f %8.1f\n", what, times[kSteps / 2], times[kSteps * 99 / 100]);
}

}  // namespace

int main() {
  std::printf("%zu rows of %d columns: microseconds per step\n%-42s %8s %8s\n", kRows, kVocab, "", "median", "99 %");
  measure("masks", {0, 0});
  measure("masks and removed mass", {0, 1});
  measure("masks, log-probabilities, removed mass", {1, 1});
}
