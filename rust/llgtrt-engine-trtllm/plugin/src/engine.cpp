#include "engine.h"

#include <chrono>

#include "config.h"

// Of TensorRT-LLM's plugin library. Its own header needs TensorRT's.
extern "C" bool initTrtLlmPlugins(void* logger, char const* name_space);

namespace {

using namespace llgtrt;

void init_plugins() {
  static bool const done = initTrtLlmPlugins(nullptr, "tensorrt_llm");
  if (!done) throw std::runtime_error("TensorRT-LLM's own TensorRT plugins could not be registered");
}

std::unique_ptr<te::Executor> make_executor(llgtrt_trtllm_config const& config,
                                            std::shared_ptr<PostProcessor> const& post_processor) {
  auto executor_config = to_executor_config(config);
  if (post_processor) {
    te::LogitsPostProcessorConfig processors;
    processors.setProcessorBatched(
        [post_processor](std::vector<te::IdType> const& request_ids, std::vector<te::Tensor>& logits,
                         std::vector<std::reference_wrapper<te::BeamTokens const>> const& tokens,
                         te::StreamPtr const& stream, std::vector<std::optional<te::IdType>> const& client_ids) {
          (*post_processor)(request_ids, logits, tokens, stream, client_ids);
        });
    processors.setReplicate(config.replicate_post_processor != 0);
    executor_config.setLogitsPostProcessorConfig(processors);
  }
  if (config.encoder_dir != nullptr) {
    return std::make_unique<te::Executor>(config.encoder_dir, config.engine_dir, te::ModelType::kENCODER_DECODER,
                                          executor_config);
  }
  return std::make_unique<te::Executor>(config.engine_dir, te::ModelType::kDECODER_ONLY, executor_config);
}

}  // namespace

llgtrt_trtllm_engine::llgtrt_trtllm_engine(llgtrt_trtllm_config const& config)
    : shape_{config.vocab_size, config.logits_dtype} {
  if (config.engine_dir == nullptr) throw InvalidArgument("engine_dir is null");
  if (config.vocab_size <= 0) throw InvalidArgument("vocab_size is not positive");
  checked(&config.callbacks, "callbacks");
  if (config.callbacks.fill == nullptr) throw InvalidArgument("there is no fill callback");
  init_plugins();
  post_processor_ = std::make_shared<PostProcessor>(config.callbacks, config.vocab_size);
  executor_ = make_executor(config, post_processor_);
}

llgtrt_trtllm_engine::~llgtrt_trtllm_engine() {
  // Joins the executor's thread: no callback runs afterwards. On a worker it waits for the leader.
  try {
    executor_->shutdown();
  } catch (...) {
    // The executor is gone either way.
  }
  executor_.reset();
}

uint64_t llgtrt_trtllm_engine::submit(llgtrt_trtllm_request const& request) {
  return executor_->enqueueRequest(to_request(request, shape_));
}

std::vector<llgtrt_trtllm_response> const& llgtrt_trtllm_engine::await(int64_t timeout_ms) {
  auto responses = executor_->awaitResponses(std::chrono::milliseconds(timeout_ms < 0 ? 0 : timeout_ms));
  if (auto const failure = post_processor_->failure(); !failure.empty())
    throw std::runtime_error("masks could not be applied: " + failure);
  responses_.hold(std::move(responses));
  return responses_.plain();
}

Stats const& llgtrt_trtllm_engine::stats() {
  stats_.update(*executor_);
  return stats_;
}
