#include "engine.h"

#include <array>
#include <chrono>
#include <csignal>

#include "config.h"

// Of TensorRT-LLM's plugin library. Its own header needs TensorRT's.
extern "C" bool initTrtLlmPlugins(void* logger, char const* name_space);

namespace {

using namespace llgtrt;

void init_plugins() {
  static bool const done = initTrtLlmPlugins(nullptr, "tensorrt_llm");
  if (!done) throw std::runtime_error("TensorRT-LLM's own TensorRT plugins could not be registered");
}

/// TensorRT-LLM answers a crash with MPI_Abort out of the signal's handler (mpi::initialize in runtime/utils/mpiUtils.cpp), which may
/// hang there and leaves no core dump. Keeps the handlers that were there before: the process ends, and mpirun or srun, who see it,
/// end the others of its group.
class CrashHandlers {
 public:
  CrashHandlers() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], nullptr, &before_[i]);
  }
  ~CrashHandlers() {
    for (size_t i = 0; i < kSignals.size(); ++i) sigaction(kSignals[i], &before_[i], nullptr);
  }
  CrashHandlers(CrashHandlers const&) = delete;
  CrashHandlers& operator=(CrashHandlers const&) = delete;

 private:
  static constexpr std::array<int, 2> kSignals{SIGABRT, SIGSEGV};
  std::array<struct sigaction, 2> before_{};
};

std::unique_ptr<te::Executor> make_executor(Settings settings, std::shared_ptr<PostProcessor> const& post_processor) {
  te::LogitsPostProcessorConfig processors;
  processors.setProcessorBatched(
      [post_processor](std::vector<te::IdType> const& request_ids, std::vector<te::Tensor>& logits,
                       std::vector<std::reference_wrapper<te::BeamTokens const>> const& tokens,
                       te::StreamPtr const& stream, std::vector<std::optional<te::IdType>> const& client_ids) {
        (*post_processor)(request_ids, logits, tokens, stream, client_ids);
      });
  // Grammars are known to the leader alone: it masks, and the others get the sampled tokens.
  processors.setReplicate(false);
  settings.executor.setLogitsPostProcessorConfig(processors);
  if (settings.encoder_dir.empty())
    return std::make_unique<te::Executor>(settings.engine_dir, te::ModelType::kDECODER_ONLY, settings.executor);
  return std::make_unique<te::Executor>(settings.encoder_dir, settings.engine_dir, te::ModelType::kENCODER_DECODER,
                                        settings.executor);
}

}  // namespace

llgtrt_trtllm_engine::llgtrt_trtllm_engine(llgtrt_trtllm_config const& config) {
  auto settings = read_settings(config.settings);
  checked(&config.callbacks, "callbacks");
  if (config.callbacks.fill == nullptr) throw InvalidArgument("there is no fill callback");
  shape_ = {settings.vocab_size, settings.logits_dtype};
  init_plugins();
  post_processor_ = std::make_shared<PostProcessor>(config.callbacks, settings.vocab_size);
  {
    CrashHandlers const kept;
    executor_ = make_executor(std::move(settings), post_processor_);
  }
  device_ = current_device();
  kv_events_.emplace(*executor_);
}

llgtrt_trtllm_engine::~llgtrt_trtllm_engine() {
  try {
    use_device(device_);
    // Otherwise shutdown() serves all of them to their ends first.
    for (auto const request_id : live_) executor_->cancelRequest(request_id);
  } catch (...) {
    // A device that is lost, or a worker's executor: what follows frees what can be freed.
  }
  // Joins the executor's thread: no callback runs afterwards. On a worker it waits for the leader.
  try {
    executor_->shutdown();
  } catch (...) {
    // The executor is gone either way.
  }
  kv_events_.reset();
  executor_.reset();
}

uint64_t llgtrt_trtllm_engine::submit(llgtrt_trtllm_request const& request) {
  auto const request_id = executor_->enqueueRequest(to_request(request, shape_));
  live_.insert(request_id);
  return request_id;
}

std::vector<llgtrt_trtllm_response> const& llgtrt_trtllm_engine::await(int64_t timeout_ms) {
  auto responses = executor_->awaitResponses(std::chrono::milliseconds(timeout_ms < 0 ? 0 : timeout_ms));
  if (auto const failure = post_processor_->failure(); !failure.empty())
    throw std::runtime_error("masks could not be applied: " + failure);
  responses_.hold(std::move(responses));
  for (auto const& response : responses_.plain())
    if (response.is_final != 0) live_.erase(response.request_id);
  return responses_.plain();
}

void llgtrt_trtllm_engine::check_health() const {
  if (auto const failure = post_processor_->failure(); !failure.empty())
    throw std::runtime_error("masks could not be applied: " + failure);
  use_device(device_);
  check_device();
}

bool llgtrt_trtllm_engine::row_result(uint64_t request_id, size_t token_count, llgtrt_trtllm_row_result& result) {
  use_device(device_);
  return post_processor_->results().take(request_id, token_count, result);
}

Stats const& llgtrt_trtllm_engine::stats() {
  stats_.update(*executor_);
  return stats_;
}
