// The executor's surface over the loop, and its place in a group of processes.
#include "tensorrt_llm/executor/executor.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cstdlib>
#include <stdexcept>

#include "loop.h"

extern "C" bool initTrtLlmPlugins(void* logger, char const* name_space);

bool initTrtLlmPlugins(void* /*logger*/, char const* /*name_space*/) { return true; }

namespace tensorrt_llm::executor {
namespace {

bool is_worker() {
  char const* const rank = std::getenv("OMPI_COMM_WORLD_RANK");
  return rank != nullptr && std::atoi(rank) > 0;
}

}  // namespace

char const* version() noexcept { return "1.2.1-standin"; }

class Executor::Impl {
 public:
  Impl(std::filesystem::path const& path, ExecutorConfig const& config) : settings_(path) {
    if (settings_.broken) throw std::runtime_error("the stand-in was told not to start");
    if (config.getMaxBeamWidth() > settings_.max_beam_width)
      throw std::runtime_error("maxBeamWidth exceeds the engine's");
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
    : impl_(std::make_unique<Impl>(modelPath, config)) {}

Executor::Executor(std::filesystem::path const& /*encoderModelPath*/, std::filesystem::path const& decoderModelPath,
                   ModelType /*modelType*/, ExecutorConfig const& config)
    : impl_(std::make_unique<Impl>(decoderModelPath, config)) {}

Executor::~Executor() = default;

IdType Executor::enqueueRequest(Request const& request) { return impl_->loop().enqueue(request); }

std::vector<Response> Executor::awaitResponses(std::optional<std::chrono::milliseconds> const& timeout) {
  return impl_->loop().await(timeout);
}

void Executor::cancelRequest(IdType requestId) { impl_->loop().cancel(requestId); }
void Executor::shutdown() { impl_->shutdown(); }

std::deque<IterationStats> Executor::getLatestIterationStats() { return impl_->loop().take_stats(); }

bool Executor::canEnqueueRequests() const { return impl_->is_leader(); }
bool Executor::isParticipant() const { return true; }

std::string JsonSerialization::toJsonStr(IterationStats const& stats) {
  return "{\"iter\":" + std::to_string(stats.iter) + ",\"numActiveRequests\":" +
         std::to_string(stats.numActiveRequests) + "}";
}

}  // namespace tensorrt_llm::executor
