// The mask kernel on a real GPU: benches/mask_kernel.py builds and runs it.
//
//   check    compares the kernel with the host implementation on random rows
//   narrow   the same on few and short rows: for the emulation in emulated/, which is slow
//   time     reads lines "TYPE VOCAB BATCH FLAGS" (fp32, fp16 or bf16; the bits of MaskFlags) and answers each with
//            "KERNEL COPY": microseconds of a launch, and of a copy of as many bytes within the device
//
// Exits with 77 where there is no usable GPU, with 1 where a result is wrong.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <functional>
#include <iostream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "gpu.h"
#include "mask_cases.h"

using namespace llgtrt;

namespace {

// The kernel sums in single precision with the fast exponential.
constexpr float kTolerance = 1e-4F;

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate"); }
  ~Stream() { (void)cudaStreamDestroy(stream_); }
  Stream(Stream const&) = delete;
  Stream& operator=(Stream const&) = delete;

  cudaStream_t get() const { return stream_; }
  void wait() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  Event() { check(cudaEventCreate(&event_), "cudaEventCreate"); }
  ~Event() { (void)cudaEventDestroy(event_); }
  Event(Event const&) = delete;
  Event& operator=(Event const&) = delete;

  cudaEvent_t get() const { return event_; }

 private:
  cudaEvent_t event_ = nullptr;
};

/// Work that is recorded once and started as one, so that the host's time for launching is not measured.
class Graph {
 public:
  Graph(Stream const& stream, std::function<void()> const& work) : stream_(stream) {
    check(cudaStreamBeginCapture(stream.get(), cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    work();
    cudaGraph_t graph = nullptr;
    check(cudaStreamEndCapture(stream.get(), &graph), "cudaStreamEndCapture");
    auto const error = cudaGraphInstantiateWithFlags(&graph_, graph, 0);
    (void)cudaGraphDestroy(graph);
    check(error, "cudaGraphInstantiate");
  }
  ~Graph() { (void)cudaGraphExecDestroy(graph_); }
  Graph(Graph const&) = delete;
  Graph& operator=(Graph const&) = delete;

  /// Milliseconds of one run.
  float run() const {
    check(cudaEventRecord(begin_.get(), stream_.get()), "cudaEventRecord");
    check(cudaGraphLaunch(graph_, stream_.get()), "cudaGraphLaunch");
    check(cudaEventRecord(end_.get(), stream_.get()), "cudaEventRecord");
    check(cudaEventSynchronize(end_.get()), "cudaEventSynchronize");
    float result = 0.0F;
    check(cudaEventElapsedTime(&result, begin_.get(), end_.get()), "cudaEventElapsedTime");
    return result;
  }

 private:
  Stream const& stream_;
  cudaGraphExec_t graph_ = nullptr;
  Event begin_;
  Event end_;
};

template <class T>
void upload(Memory const& memory, std::vector<T> const& data, size_t offset = 0) {
  check(cudaMemcpy(memory.as() + offset, data.data(), data.size() * sizeof(T), cudaMemcpyHostToDevice), "cudaMemcpy");
}

/// What a launch needs besides logits, rows and masks.
struct Workspace {
  Workspace(uint32_t count, uint32_t columns)
      : partials(count * ((columns + kChunk - 1) / kChunk) * sizeof(MaskPartial)),
        removed(count * sizeof(float)) {}

  MaskWorkspace get() const { return {partials.as<MaskPartial>(), removed.as<float>()}; }

  Memory partials;
  Memory removed;
};

/// Masks on the device `times` times, each on fresh logits and with the same workspace, and compares each result.
std::string compare(MaskCase const& mask_case, int times) {
  constexpr size_t kGuard = 256;
  constexpr unsigned char kGuardByte = 0x5a;
  auto const count = static_cast<uint32_t>(mask_case.rows.size());
  size_t const bytes = mask_case.logits.size();
  auto const want = on_host(mask_case);
  Memory const logits(bytes + 2 * kGuard);
  Memory const rows(count * sizeof(MaskRow));
  Memory const masks(mask_case.masks.size() * sizeof(uint32_t));
  Workspace const workspace(count, mask_case.columns);
  Stream const stream;
  uint32_t flags = 0;
  for (auto const& row : mask_case.rows) flags |= row.flags;
  upload(rows, rows_at(mask_case, logits.as() + kGuard));
  upload(masks, mask_case.masks);
  std::vector<unsigned char> everything(bytes + 2 * kGuard);
  for (int i = 0; i < times; ++i) {
    check(cudaMemset(logits.as(), kGuardByte, bytes + 2 * kGuard), "cudaMemset");
    upload(logits, mask_case.logits, kGuard);
    upload(workspace.removed, std::vector<float>(count, kNotReported));
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    apply_masks(rows.as<MaskRow>(), count, mask_case.columns, mask_case.type, flags, masks.as<uint32_t>(), workspace.get(),
                stream.get());
    stream.wait();
    MaskResult got{{}, std::vector<float>(count)};
    check(cudaMemcpy(everything.data(), logits.as(), everything.size(), cudaMemcpyDeviceToHost), "cudaMemcpy");
    check(cudaMemcpy(got.removed.data(), workspace.removed.as(), count * sizeof(float), cudaMemcpyDeviceToHost),
          "cudaMemcpy");
    auto const is_guard = [](unsigned char byte) { return byte == kGuardByte; };
    auto const first = everything.begin() + kGuard;
    auto const last = everything.end() - kGuard;
    if (!std::all_of(everything.begin(), first, is_guard) || !std::all_of(last, everything.end(), is_guard))
      return "memory outside the rows was written";
    got.logits.assign(first, last);
    auto text = difference(mask_case, got, want, kTolerance);
    if (!text.empty()) return text;
  }
  return "";
}

char const* name_of(LogitsType type) {
  return type == LogitsType::kFP32 ? "fp32" : type == LogitsType::kFP16 ? "fp16" : "bf16";
}

/// A vocabulary, and the columns with its padding. Some are no multiple of 32, and some rows start unaligned.
using Widths = std::vector<std::pair<uint32_t, uint32_t>>;

Widths const kWide{{32000, 32000},   {32001, 32001},   {50257, 50304},   {128256, 128256},
                   {151643, 151669}, {200019, 200064}, {262143, 262143}, {262144, 262144}};
Widths const kNarrow{{3200, 3200}, {3201, 3201}, {4096, 4096}, {5025, 5030}, {9001, 9064}};

int check_all(Widths const& widths, std::vector<uint32_t> const& batches, uint32_t flags_step) {
  std::mt19937 random(20);
  int cases = 0;
  int wrong = 0;
  auto const judge = [&](MaskCase const& mask_case) {
    ++cases;
    auto const text = compare(mask_case, 2);
    if (text.empty()) return;
    ++wrong;
    std::fprintf(stderr, "wrong: %s, vocabulary %u of %u columns, batch %zu: %s\n", name_of(mask_case.type),
                 mask_case.vocab, mask_case.columns, mask_case.rows.size(), text.c_str());
  };
  for (auto const type : {LogitsType::kFP32, LogitsType::kFP16, LogitsType::kBF16}) {
    judge(odd_case(type));
    for (auto const& [vocab, columns] : widths) {
      // One row alone; then batches whose rows have different flags.
      for (uint32_t flags = 0; flags < 16; flags += flags_step)
        judge(random_case(random, type, 1, vocab, columns, flags));
      for (uint32_t const batch : batches) judge(random_case(random, type, batch, vocab, columns, 9));
    }
  }
  std::printf("%d cases, %d wrong\n", cases, wrong);
  return wrong == 0 ? 0 : 1;
}

struct Times {
  double kernel_us;
  double copy_us;
};

double median(std::vector<float> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Times time_one(LogitsType type, uint32_t vocab, uint32_t batch, uint32_t flags, size_t cache_bytes) {
  constexpr int kWarmUp = 3;
  constexpr int kRuns = 31;
  std::mt19937 random(20);
  auto mask_case = random_case(random, type, batch, vocab, vocab, 0);
  for (auto& word : mask_case.masks) word = static_cast<uint32_t>(random());
  for (auto& row : mask_case.rows) {
    row.flags = flags;
    row.inverse_temperature = 1.0F;  // masking the same logits again and again must not let them grow
    row.log_min_p = -3.0F;
  }
  size_t const bytes = mask_case.logits.size();
  // In turn over enough copies of the logits that they do not stay in the cache.
  size_t const copies = std::clamp<size_t>(4 * cache_bytes / bytes + 1, 4, 1024);
  Memory const logits(copies * bytes);
  Memory const target(copies * bytes);
  Memory const rows(copies * batch * sizeof(MaskRow));
  Memory const masks(mask_case.masks.size() * sizeof(uint32_t));
  Workspace const workspace(batch, vocab);
  upload(masks, mask_case.masks);
  for (size_t i = 0; i < copies; ++i) {
    upload(logits, mask_case.logits, i * bytes);
    upload(rows, rows_at(mask_case, logits.as() + i * bytes), i * batch * sizeof(MaskRow));
  }
  check(cudaMemset(target.as(), 0, copies * bytes), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

  Stream const stream;
  Graph const kernel(stream, [&] {
    for (size_t i = 0; i < copies; ++i)
      apply_masks(rows.as<MaskRow>() + i * batch, batch, vocab, type, flags, masks.as<uint32_t>(), workspace.get(),
                  stream.get());
  });
  Graph const copy(stream, [&] {
    for (size_t i = 0; i < copies; ++i)
      check(cudaMemcpyAsync(target.as() + i * bytes, logits.as() + i * bytes, bytes, cudaMemcpyDeviceToDevice,
                            stream.get()),
            "cudaMemcpyAsync");
  });
  std::vector<float> kernel_ms;
  std::vector<float> copy_ms;
  for (int i = -kWarmUp; i < kRuns; ++i) {
    float const first = kernel.run();
    float const second = copy.run();
    if (i < 0) continue;
    kernel_ms.push_back(first);
    copy_ms.push_back(second);
  }
  double const per_launch = 1000.0 / static_cast<double>(copies);
  return {median(kernel_ms) * per_launch, median(copy_ms) * per_launch};
}

int time_all() {
  int bytes = 0;
  check(cudaDeviceGetAttribute(&bytes, cudaDevAttrL2CacheSize, 0), "cudaDeviceGetAttribute");
  std::string line;
  while (std::getline(std::cin, line)) {
    std::istringstream words(line);
    std::string type;
    uint32_t vocab = 0;
    uint32_t batch = 0;
    uint32_t flags = 0;
    if (!(words >> type >> vocab >> batch >> flags) || vocab == 0 || batch == 0)
      throw std::runtime_error("no case: " + line);
    auto const times = time_one(type_named(type), vocab, batch, flags, static_cast<size_t>(bytes));
    std::printf("%.3f %.3f\n", times.kernel_us, times.copy_us);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  return run_command(argc, argv,
                     {{"check", [] { return check_all(kWide, {3, 32, 256}, 1); }},
                      {"narrow", [] { return check_all(kNarrow, {3, 17}, 5); }},
                      {"time", time_all}});
}
