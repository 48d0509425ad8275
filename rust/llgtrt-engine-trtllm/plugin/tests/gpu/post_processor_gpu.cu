// The logits post-processor on a real GPU: device_cuda.cpp, the mask kernel, and the order of what they enqueue.
// benches/mask_kernel.py builds and runs it.
//
//   check   many steps of which the host is far ahead of the device, each compared with the host implementation
//   time    reads lines "TYPE VOCAB BATCH" and answers each with "HOST DEVICE": microseconds of a call on the host's thread,
//           and by which it makes a step on the device longer; every row has a new mask, which the callback only copies
//   lost    breaks the device and checks that this is reported
//
// Exits with 77 where there is no usable GPU, with 1 where a result is wrong.
#include <cuda_runtime.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <iostream>
#include <optional>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "gpu.h"
#include "mask_cases.h"
#include "post_processor.h"
#include "tensorrt_llm/runtime/cudaStream.h"

using namespace llgtrt;

namespace {

constexpr float kTolerance = 1e-4F;
constexpr float kTemperature = 0.7F;
constexpr float kLeastProbability = 0.05F;

te::DataType data_type(LogitsType type) {
  switch (type) {
    case LogitsType::kFP32: return te::DataType::kFP32;
    case LogitsType::kFP16: return te::DataType::kFP16;
    default: return te::DataType::kBF16;
  }
}

/// What a forward pass does to the stream: nothing behind it begins for so many cycles.
__global__ void spin(long long cycles) {
  long long const start = clock64();
  while (clock64() - start < cycles) {
  }
}

__global__ void write_to(int* address) { *address = 1; }

/// A step as the executor calls for it, and what the callback will answer. Rows are in the executor's order.
struct Step {
  std::vector<te::IdType> requests;
  std::vector<te::BeamTokens> tokens;
  MaskCase rows;
  std::vector<bool> keep;
};

/// The callback of the running step.
struct Answer {
  Step const* step = nullptr;

  static int32_t fill(void* user, llgtrt_trtllm_row const* rows, size_t count, uint32_t* masks, size_t words,
                      llgtrt_trtllm_row_plan* plans) {
    auto const& step = *static_cast<Answer*>(user)->step;
    for (size_t i = 0; i < count; ++i) {
      auto const found = std::find(step.requests.begin(), step.requests.end(), rows[i].request_id);
      if (found == step.requests.end()) return 1;
      auto const index = static_cast<size_t>(found - step.requests.begin());
      auto const& row = step.rows.rows[index];
      auto& plan = plans[i];
      plan.keep_logits = step.keep[index] ? 1 : 0;
      plan.temperature = (row.flags & kScale) != 0 ? kTemperature : 0.0F;
      plan.min_p = (row.flags & kMinP) != 0 ? kLeastProbability : 0.0F;
      plan.report_removed_mass = (row.flags & kReportRemovedMass) != 0 ? 1 : 0;
      plan.apply_mask = (row.flags & kApplyMask) != 0 ? 1 : 0;
      // What there was before means nothing to a row without a mask.
      if (plan.apply_mask != 0)
        std::memcpy(masks + i * words, &step.rows.masks[row.mask_offset], words * sizeof(uint32_t));
      else
        std::memset(masks + i * words, 0x5a, words * sizeof(uint32_t));
    }
    return 0;
  }
};

/// Requests that come, go and change places; masks that often stay as they were, as those of a choice's last token do.
class Traffic {
 public:
  Traffic(uint32_t seed, LogitsType type, uint32_t vocab, uint32_t columns, size_t most)
      : random_(seed), type_(type), vocab_(vocab), columns_(columns), most_(most) {}

  Step next() {
    while (running_.size() < most_ && (running_.empty() || random_() % 3 != 0)) running_.push_back({++last_, 1, {}});
    if (running_.size() > 1 && random_() % 4 == 0) running_.erase(running_.begin() + random_() % running_.size());
    if (random_() % 4 == 0) std::shuffle(running_.begin(), running_.end(), random_);
    Step step;
    step.rows = random_case(random_, type_, static_cast<uint32_t>(running_.size()), vocab_, columns_,
                            static_cast<uint32_t>(random_()));
    size_t const words = (vocab_ + 31) / 32;
    for (size_t i = 0; i < running_.size(); ++i) {
      auto& request = running_[i];
      auto& row = step.rows.rows[i];
      auto const mask = step.rows.masks.begin() + row.mask_offset;
      if (random_() % 2 == 0 && !request.mask.empty()) std::copy(request.mask.begin(), request.mask.end(), mask);
      request.mask.assign(mask, mask + static_cast<std::ptrdiff_t>(words));
      row.log_min_p = std::log(kLeastProbability);
      row.inverse_temperature = 1.0F / kTemperature;
      step.requests.push_back(request.id);
      step.tokens.push_back({te::VecTokens(request.length++, 7)});
      step.keep.push_back(random_() % 8 == 0);
    }
    return step;
  }

 private:
  struct Request {
    te::IdType id;
    size_t length;
    std::vector<uint32_t> mask;
  };

  std::mt19937 random_;
  LogitsType type_;
  uint32_t vocab_;
  uint32_t columns_;
  size_t most_;
  te::IdType last_ = 0;
  std::vector<Request> running_;
};

/// The arguments of a call.
struct Call {
  Call(Step const& step, char* logits) {
    size_t const row_bytes = step.rows.columns * logit_size(step.rows.type);
    for (size_t i = 0; i < step.requests.size(); ++i) {
      tensors.push_back(te::Tensor::of(data_type(step.rows.type), logits + i * row_bytes,
                                       {1, 1, static_cast<std::int64_t>(step.rows.columns)}));
      tokens.emplace_back(step.tokens[i]);
      clients.emplace_back(step.requests[i]);
    }
  }

  std::vector<te::Tensor> tensors;
  std::vector<std::reference_wrapper<te::BeamTokens const>> tokens;
  std::vector<std::optional<te::IdType>> clients;
};

llgtrt_trtllm_callbacks callbacks(Answer& answer) { return {sizeof(llgtrt_trtllm_callbacks), &answer, Answer::fill}; }

/// Rows that asked for something, against what the plugin reports of them.
std::string difference_of_results(RowResults& results, Step const& step, MaskResult const& want) {
  size_t const row_bytes = step.rows.columns * logit_size(step.rows.type);
  for (size_t i = 0; i < step.requests.size(); ++i) {
    bool const reports = (step.rows.rows[i].flags & kReportRemovedMass) != 0;
    llgtrt_trtllm_row_result got{};
    bool const found = results.take(step.requests[i], step.tokens[i].front().size(), got);
    if (found != (reports || step.keep[i])) return "a result is there that nobody asked for, or is missing";
    if (!found) continue;
    if (reports && !(std::abs(got.removed_mass - want.removed[i]) <= kTolerance) &&
        !(std::isnan(got.removed_mass) && std::isnan(want.removed[i])))
      return "the removed mass is " + std::to_string(got.removed_mass) + ", not " + std::to_string(want.removed[i]);
    if (step.keep[i] && std::memcmp(got.logits.data, &step.rows.logits[i * row_bytes], row_bytes) != 0)
      return "the kept logits are not those of the model";
  }
  return "";
}

/// All steps are enqueued before the first is compared, behind work that keeps the device busy.
std::string compare(uint32_t seed, LogitsType type, uint32_t vocab, uint32_t columns, size_t most, int steps) {
  Traffic traffic(seed, type, vocab, columns, most);
  size_t const row_bytes = columns * logit_size(type);
  Memory const logits(static_cast<size_t>(steps) * most * row_bytes);
  auto const stream = std::make_shared<tensorrt_llm::runtime::CudaStream>();
  std::vector<Step> all;
  for (int i = 0; i < steps; ++i) {
    all.push_back(traffic.next());
    auto const& data = all.back().rows.logits;
    check(cudaMemcpy(logits.as() + static_cast<size_t>(i) * most * row_bytes, data.data(), data.size(),
                     cudaMemcpyHostToDevice),
          "cudaMemcpy");
  }
  Answer answer;
  PostProcessor processor(callbacks(answer), static_cast<int32_t>(vocab));
  for (int i = 0; i < steps; ++i) {
    spin<<<1, 1, 0, stream->get()>>>(i % 20 == 0 ? 20'000'000 : 100'000);
    check(cudaGetLastError(), "spin");
    answer.step = &all[static_cast<size_t>(i)];
    Call call(*answer.step, logits.as() + static_cast<size_t>(i) * most * row_bytes);
    processor(answer.step->requests, call.tensors, call.tokens, stream, call.clients);
  }
  for (int i = 0; i < steps; ++i) {
    auto const& step = all[static_cast<size_t>(i)];
    auto const want = on_host(step.rows);
    auto text = difference_of_results(processor.results(), step, want);
    check(cudaStreamSynchronize(stream->get()), "cudaStreamSynchronize");
    MaskResult got{std::vector<unsigned char>(step.rows.logits.size()), want.removed};
    check(cudaMemcpy(got.logits.data(), logits.as() + static_cast<size_t>(i) * most * row_bytes, got.logits.size(),
                     cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    if (text.empty()) text = difference(step.rows, got, want, kTolerance);
    if (!text.empty()) return "step " + std::to_string(i) + ": " + text;
  }
  return processor.failure();
}

int check_all() {
  int wrong = 0;
  int steps = 0;
  uint32_t seed = 0;
  for (auto const type : {LogitsType::kFP32, LogitsType::kFP16, LogitsType::kBF16}) {
    for (auto const& [vocab, columns, most] :
         {std::tuple{3201U, 3264U, 3UL}, std::tuple{32000U, 32000U, 8UL}, std::tuple{131071U, 131072U, 16UL}}) {
      int const count = vocab > 100'000 ? 40 : 120;
      auto const text = compare(++seed, type, vocab, columns, most, count);
      steps += count;
      if (text.empty()) continue;
      ++wrong;
      std::fprintf(stderr, "wrong: vocabulary %u of %u columns: %s\n", vocab, columns, text.c_str());
    }
  }
  std::printf("%d steps, %d wrong\n", steps, wrong);
  return wrong == 0 ? 0 : 1;
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

/// Microseconds: of a call on the host, and of what it adds to a step on the device.
std::pair<double, double> time_one(LogitsType type, uint32_t vocab, uint32_t batch) {
  constexpr int kWarmUp = 10;
  constexpr int kSteps = 100;
  // Longer than the host needs for a step, so that what is measured waits for nothing.
  constexpr long long kForwardPass = 8'000'000;
  std::mt19937 random(20);
  std::vector<Step> turns;
  for (int i = 0; i < 2; ++i) {
    Step step;
    step.rows = random_case(random, type, batch, vocab, vocab, 0);
    for (auto& word : step.rows.masks) word = static_cast<uint32_t>(random());
    for (uint32_t row = 0; row < batch; ++row) {
      step.rows.rows[row].flags = kApplyMask;
      step.requests.push_back(row + 1);
      step.tokens.push_back({te::VecTokens(1000, 7)});
      step.keep.push_back(false);
    }
    turns.push_back(std::move(step));
  }
  Memory const logits(turns[0].rows.logits.size());
  check(cudaMemcpy(logits.as(), turns[0].rows.logits.data(), turns[0].rows.logits.size(), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  auto const stream = std::make_shared<tensorrt_llm::runtime::CudaStream>();
  Answer answer;
  PostProcessor processor(callbacks(answer), static_cast<int32_t>(vocab));
  std::vector<double> host;
  std::vector<double> with;
  std::vector<double> without;
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  check(cudaEventCreate(&begin), "cudaEventCreate");
  check(cudaEventCreate(&end), "cudaEventCreate");
  for (int i = 0; i < kWarmUp + 2 * kSteps; ++i) {
    bool const masked = i % 2 == 0;
    check(cudaEventRecord(begin, stream->get()), "cudaEventRecord");
    spin<<<1, 1, 0, stream->get()>>>(kForwardPass);
    if (masked) {
      answer.step = &turns[static_cast<size_t>(i / 2 % 2)];
      Call call(*answer.step, logits.as());
      auto const start = std::chrono::steady_clock::now();
      processor(answer.step->requests, call.tensors, call.tokens, stream, call.clients);
      std::chrono::duration<double, std::micro> const took = std::chrono::steady_clock::now() - start;
      if (i >= kWarmUp) host.push_back(took.count());
    }
    check(cudaEventRecord(end, stream->get()), "cudaEventRecord");
    check(cudaEventSynchronize(end), "cudaEventSynchronize");
    float milliseconds = 0.0F;
    check(cudaEventElapsedTime(&milliseconds, begin, end), "cudaEventElapsedTime");
    if (i >= kWarmUp) (masked ? with : without).push_back(1000.0 * milliseconds);
  }
  if (!processor.failure().empty()) throw std::runtime_error(processor.failure());
  return {median(host), median(with) - median(without)};
}

int time_all() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string type;
    uint32_t vocab = 0;
    uint32_t batch = 0;
    if (!(words >> type >> vocab >> batch) || vocab == 0 || batch == 0) throw std::runtime_error("no case: " + line);
    auto const [host, device] = time_one(type_named(type), vocab, batch);
    std::printf("%.1f %.1f\n", host, device);
    std::fflush(stdout);
  }
  return 0;
}

/// After an illegal access every call fails: the plugin says so, and does not pretend to have masked.
int lose_device() {
  Traffic traffic(1, LogitsType::kFP32, 3201, 3264, 3);
  auto const step = traffic.next();
  Memory const logits(step.rows.logits.size());
  auto const stream = std::make_shared<tensorrt_llm::runtime::CudaStream>();
  Answer answer;
  answer.step = &step;
  PostProcessor processor(callbacks(answer), 3201);
  check_device();
  write_to<<<1, 1, 0, stream->get()>>>(reinterpret_cast<int*>(8));
  (void)cudaStreamSynchronize(stream->get());
  Call call(step, logits.as());
  processor(step.requests, call.tensors, call.tokens, stream, call.clients);
  std::string lost;
  try {
    check_device();
  } catch (std::exception const& error) {
    lost = error.what();
  }
  std::printf("reported: %s; %s\n", processor.failure().c_str(), lost.c_str());
  return processor.failure().empty() || lost.empty() ? 1 : 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_command(argc, argv, {{"check", check_all}, {"time", time_all}, {"lost", lose_device}});
}
