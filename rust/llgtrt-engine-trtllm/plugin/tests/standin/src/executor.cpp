// The executor's surface over the loop, and its place in a group of processes.
#include "tensorrt_llm/executor/executor.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <stdexcept>

#include "loop.h"
#include "standin/device.h"

extern "C" bool initTrtLlmPlugins(void* logger, char const* name_space);

bool initTrtLlmPlugins(void* /*logger*/, char const* /*name_space*/) { return true; }

namespace tensorrt_llm::executor {
namespace {

int rank() {
  char const* const text = std::getenv("OMPI_COMM_WORLD_RANK");
  return text == nullptr ? 0 : std::atoi(text);
}

bool is_worker() { return rank() > 0; }

/// WorldConfig::getDevice (cpp/tensorrt_llm/runtime/worldConfig.cpp): by rank, or as the list says.
int device_of(ExecutorConfig const& config) {
  auto const parallel = config.getParallelConfig();
  auto const ids = parallel ? parallel->getDeviceIds() : std::nullopt;
  return ids ? ids->at(static_cast<size_t>(rank())) : rank();
}

/// mpi::initialize (cpp/tensorrt_llm/runtime/utils/mpiUtils.cpp, 65b31db), once in a process. The real handlers call MPI_Abort.
void initialize_mpi() {
  static bool const done = [] {
    for (int const signal : {SIGABRT, SIGSEGV}) std::signal(signal, [](int) { std::_Exit(70); });
    return true;
  }();
  (void)done;
}

/// What TrtGptModelInflightBatching's constructor checks (batch_manager/trtGptModelInflightBatching.cpp, 00825c4).
void check(ExecutorConfig const& config, standin::Settings const& settings, bool has_encoder) {
  auto const assert_that = [](bool holds, std::string const& what) {
    if (!holds) throw std::runtime_error("[TensorRT-LLM][ERROR] Assertion failed: " + what);
  };
  auto const& cache = config.getKvCacheConfig();
  assert_that(cache.getOnboardBlocks() || !settings.paged_context_fmha,
              "KV cache blocks need to be onboarded if context FMHA.");
  assert_that(!has_encoder || cache.getCrossKvCacheFraction().has_value(),
              "Must set crossKvCacheFraction for encoder-decoder model");
  assert_that(has_encoder || !cache.getCrossKvCacheFraction().has_value(),
              "Do not set crossKvCacheFraction for decoder-only model");
  // batch_manager/trtGptModel.h (2e2327b)
  assert_that(config.getMaxBeamWidth() <= settings.max_beam_width,
              "Runtime configured max beam width must not exceed engine max beam width");
  assert_that(config.getMaxBatchSize().value_or(1) <= settings.max_batch_size,
              "Runtime configured max batch size must not exceed engine max batch size");
}

}  // namespace

char const* version() noexcept { return "1.2.1-standin"; }

class Executor::Impl {
 public:
  Impl(std::filesystem::path const& path, ExecutorConfig const& config, bool has_encoder) : settings_(path) {
    initialize_mpi();
    if (settings_.broken) throw std::runtime_error("the stand-in was told not to start");
    // runtime::utils::initDevice in the model's constructor, on the thread that makes the executor.
    standin::set_device(standin::new_device(device_of(config)));
    check(config, settings_, has_encoder);
    settings_.has_encoder = has_encoder;
    if (settings_.group) {
      lock_ = ::open((path / "standin.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
      if (lock_ < 0) throw std::runtime_error("standin.lock cannot be opened");
      if (!is_worker()) ::flock(lock_, LOCK_EX);
    }
    if (!is_worker()) loop_ = std::make_unique<standin::Loop>(settings_, config);
  }

  ~Impl() {
    if (lock_ >= 0) ::close(lock_);
  }

  standin::Loop& loop() {
    if (!loop_) throw std::runtime_error("only the leader takes requests");
    return *loop_;
  }

  void shutdown() {
    if (loop_)
      loop_->stop();
    else if (lock_ >= 0)
      ::flock(lock_, LOCK_SH);  // until the leader's process is gone, or its executor
  }

  bool is_leader() const { return loop_ != nullptr; }

 private:
  standin::Settings settings_;
  int lock_ = -1;
  std::unique_ptr<standin::Loop> loop_;
};

Executor::Executor(std::filesystem::path const& modelPath, ModelType /*modelType*/, ExecutorConfig const& config)
    : impl_(std::make_unique<Impl>(modelPath, config, false)) {}

Executor::Executor(std::filesystem::path const& /*encoderModelPath*/, std::filesystem::path const& decoderModelPath,
                   ModelType /*modelType*/, ExecutorConfig const& config)
    : impl_(std::make_unique<Impl>(decoderModelPath, config, true)) {}

Executor::~Executor() = default;

IdType Executor::enqueueRequest(Request const& request) { return impl_->loop().enqueue(request); }

std::vector<Response> Executor::awaitResponses(std::optional<std::chrono::milliseconds> const& timeout) {
  return impl_->loop().await(timeout);
}

void Executor::cancelRequest(IdType requestId) { impl_->loop().cancel(requestId); }
void Executor::shutdown() { impl_->shutdown(); }

std::deque<IterationStats> Executor::getLatestIterationStats() { return impl_->loop().take_stats(); }

std::deque<KVCacheEvent> KVCacheEventManager::getLatestEvents(std::optional<std::chrono::milliseconds> timeout) {
  return cache_.take(timeout);
}

std::optional<std::shared_ptr<KVCacheEventManager>> Executor::getKVCacheEventManager() const {
  auto* const cache = impl_->is_leader() ? impl_->loop().told_cache() : nullptr;
  if (cache == nullptr) return std::nullopt;
  return std::make_shared<KVCacheEventManager>(*cache);
}

bool Executor::canEnqueueRequests() const { return impl_->is_leader(); }
bool Executor::isParticipant() const { return true; }

std::string JsonSerialization::toJsonStr(IterationStats const& stats) {
  return "{\"iter\":" + std::to_string(stats.iter) + ",\"numActiveRequests\":" +
         std::to_string(stats.numActiveRequests) + "}";
}

}  // namespace tensorrt_llm::executor
