#include "loop.h"

#include <algorithm>
#include <fstream>
#include <stdexcept>

#include "handover.h"
#include "standin/device.h"

namespace standin {

Loop::Loop(Settings const& settings, te::ExecutorConfig const& config)
    : settings_(settings),
      config_(config),
      device_(current_device()),
      operating_beam_width_(config.getMaxBeamWidth()),
      cache_(settings, config.getKvCacheConfig().getEventBufferMaxSize()) {
  if (auto const processors = config.getLogitsPostProcessorConfig()) post_processor_ = processors->getProcessorBatched();
  max_batch_size_ = std::min(config.getMaxBatchSize().value_or(settings.max_batch_size), settings.max_batch_size);
  max_num_tokens_ = std::min(config.getMaxNumTokens().value_or(settings.max_num_tokens), settings.max_num_tokens);
  // batch_manager/trtGptModel.h (2e2327b); executorImpl.cpp's checkOptionalParams switches chunks off by itself.
  bool const in_chunks = config.getEnableChunkedContext() && settings.paged_context_fmha;
  config_.setEnableChunkedContext(in_chunks);
  if (in_chunks)
    max_input_len_ = settings.max_seq_len - 1;
  else if (settings.context_fmha && settings.packed_input)
    max_input_len_ = std::min(settings.max_seq_len - 1, max_num_tokens_);
  else
    max_input_len_ = settings.max_input_len;
  // trtGptModelInflightBatching.cpp's fixExecutorConfig (00825c4) switches reuse off by itself.
  reuses_blocks_ = config.getKvCacheConfig().getEnableBlockReuse() && settings.paged_context_fmha &&
                   !settings.gather_context_logits;
  int64_t const all = blocks(static_cast<size_t>(settings.max_seq_len)) * max_batch_size_;
  auto const limit = config.getKvCacheConfig().getMaxTokens();
  max_blocks_ = limit ? std::min(all, blocks(static_cast<size_t>(*limit))) : all;
  thread_ = std::thread([this] { run(); });
}

Loop::~Loop() {
  stop();
  if (!settings_.time_post_processor) return;
  std::ofstream file(settings_.folder / "post_processor_times");
  for (auto const time : post_processor_times_) file << time.count() << '\n';
}

void Loop::check_open() const {
  if (stop_called_) throw std::runtime_error("Shutdown called");
}

uint64_t Loop::enqueue(te::Request const& request) {
  std::lock_guard const lock(mutex_);
  check_open();
  auto const prompt = request.getInputTokenIds();
  // A switch of the tests: the real one refuses nothing here but unknown post-processors and a full queue.
  if (std::find(prompt.begin(), prompt.end(), settings_.refuse_token) != prompt.end())
    throw std::invalid_argument("the stand-in was told to refuse this request");
  auto const limit = config_.getMaxQueueSize();
  if (limit && *limit > 0 && queued_.size() >= static_cast<size_t>(*limit))
    throw std::runtime_error("Maximum queue size of " + std::to_string(*limit) +
                             " has been reached, please try again later");
  auto shared = std::make_shared<Shared>(request, next_id_);
  // getNumChildRequests
  bool const has_beams = request.getSamplingConfig().getBeamWidth() > 1;
  shared->live = has_beams ? 1 : std::max(request.getSamplingConfig().getNumReturnSequences().value_or(1), 1);
  next_id_ += static_cast<uint64_t>(shared->live);
  // insertRequestInOrder: higher priority first, in order of arrival among equals.
  auto const place = std::find_if(queued_.begin(), queued_.end(), [&](auto const& other) {
    return other->request.getPriority() < request.getPriority();
  });
  queued_.insert(place, shared);
  work_.notify_one();
  return shared->id;
}

std::vector<te::Response> Loop::await(std::optional<std::chrono::milliseconds> const& timeout) {
  std::unique_lock lock(mutex_);
  check_open();
  auto const ready = [this] { return !responses_.empty() || stop_called_; };
  if (timeout)
    answered_.wait_for(lock, *timeout, ready);
  else
    answered_.wait(lock, ready);
  if (settings_.lockstep) work_.notify_one();
  return std::exchange(responses_, {});
}

void Loop::cancel(uint64_t id) {
  if (settings_.odd_exception) throw 42;
  std::lock_guard const lock(mutex_);
  check_open();
  cancelled_.insert(id);
}

void Loop::stop() {
  {
    std::lock_guard const lock(mutex_);
    // shutdown() puts a request of its own behind all others; the loop ends when it gets there.
    stop_called_ = true;
    work_.notify_all();
    answered_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
  cache_.stop();
}

std::deque<te::IterationStats> Loop::take_stats() {
  std::lock_guard const lock(mutex_);
  check_open();
  return std::exchange(stats_, {});
}

void Loop::push(te::Response response) {
  std::lock_guard const lock(mutex_);
  responses_.push_back(std::move(response));
  answered_.notify_all();
}

void Loop::run() {
  set_device(device_);
  stream_ = std::make_shared<tensorrt_llm::runtime::CudaStream>();
  while (true) {
    if (!active_.empty()) {
      finish_timed_out();
      finish_cancelled();
      answer();
      // The statistics are flushed once more when the last request has ended.
      if (active_.empty()) note_stats(true);
    }
    wait_for_reader();
    fetch();
    if (active_.empty()) return;  // fetch waits for a request unless it is over
    try {
      forward();
    } catch (std::exception const& error) {
      // forwardAsync catches what is a std::exception; anything else would end the process.
      fail_all(std::string("Encountered an error in forwardAsync function: ") + error.what());
    }
    note_stats(false);
  }
}

void Loop::wait_for_reader() {
  std::unique_lock lock(mutex_);
  if (settings_.lockstep) work_.wait(lock, [this] { return responses_.empty() || stop_called_; });
  // A kernel that never ends: not even shutdown() returns then.
  if (settings_.hang_iteration > 0 && iteration_ + 1 >= settings_.hang_iteration)
    work_.wait(lock, [] { return false; });
}

void Loop::finish_timed_out() {
  for (auto& sequence : active_) {
    auto const age = std::chrono::steady_clock::now() - sequence.shared->arrived;
    auto const limit = sequence.shared->request.getAllottedTimeMs();
    if (sequence.finish || !((limit && age > *limit) || sequence.prompt_holds(settings_.timeout_token))) continue;
    sequence.finish = te::FinishReason::kTIMED_OUT;
    sequence.clear_answer();
  }
}

/// terminateCancelledRequests looks at the active requests alone: one in the queue is dequeued and runs once first, and the
/// id of one that is unknown stays in the set.
void Loop::finish_cancelled() {
  std::lock_guard const lock(mutex_);
  std::set<uint64_t> ended;
  for (auto& sequence : active_) {
    if (cancelled_.count(sequence.shared->id) == 0) continue;
    if (!sequence.finish) sequence.finish = te::FinishReason::kCANCELLED;
    sequence.clear_answer();
    ended.insert(sequence.shared->id);
  }
  for (auto const id : ended) cancelled_.erase(id);
}

/// populateNewResponses
void Loop::answer() {
  completed_ = 0;
  std::vector<te::Response> responses;
  for (auto& sequence : active_) {
    if (auto response = answer_of(sequence)) {
      responses.push_back(*response);
      if (sequence.finish && sequence.prompt_holds(settings_.echo_token)) responses.push_back(*response);
    }
    if (sequence.finish || is_handed_over(sequence)) ++completed_;
  }
  active_.remove_if([](Sequence const& sequence) { return sequence.finish || is_handed_over(sequence); });
  for (auto& response : responses) push(std::move(response));
}

/// LlmRequest::createResult (batch_manager/llmRequest.cpp, 119c6e6).
std::optional<te::Response> Loop::answer_of(Sequence& sequence) {
  auto& shared = *sequence.shared;
  auto const& request = shared.request;
  bool const handed_over = is_handed_over(sequence);
  bool const final = sequence.finish.has_value() || handed_over;
  size_t const generated = sequence.generated();
  if (!final && (!request.getStreaming() || sequence.reported == generated)) return std::nullopt;
  if (final) --shared.live;
  if (!sequence.error.empty()) return te::Response(shared.id, sequence.error, request.getClientId());
  te::Result result;
  result.isSequenceFinal = final;
  result.isFinal = final && shared.live == 0;
  result.sequenceIndex = sequence.index;
  result.decodingIter = static_cast<int32_t>(generated);
  // mReturnAllGeneratedTokens is set by streaming with beams: beams can change what they said before.
  bool const whole = !request.getStreaming() || sequence.beams.size() > 1;
  for (auto const& beam : sequence.beams) {
    auto const begin = std::min(sequence.prompt_length + (whole ? 0 : sequence.reported), beam.size());
    result.outputTokenIds.emplace_back(beam.begin() + static_cast<int64_t>(begin), beam.end());
    result.finishReasons.push_back(sequence.finish.value_or(te::FinishReason::kNOT_FINISHED));
  }
  // The same tensor in every response, not only in the first.
  if (request.getOutputConfig().returnContextLogits) {
    auto const width = static_cast<int64_t>(settings_.padded_vocab_size);
    auto const& values = sequence.context_logits;
    result.contextLogits = te::Tensor::cpu(te::DataType::kFP32, {static_cast<int64_t>(values.size()) / width, width});
    std::copy(values.begin(), values.end(), static_cast<float*>(result.contextLogits->getData()));
  }
  if (request.getOutputConfig().returnPerfMetrics) {
    te::RequestPerfMetrics metrics;
    metrics.kvCacheMetrics.numReusedBlocks = sequence.reused_blocks;
    result.requestPerfMetrics = metrics;
  }
  if (handed_over) result.contextPhaseParams = hand_over(sequence);
  sequence.reported = generated;
  return te::Response(shared.id, result, request.getClientId());
}

/// getLeaderNewReqWithIds and fetchNewRequests. Waits for a request if there is none.
void Loop::fetch() {
  std::vector<std::shared_ptr<Shared>> fetched;
  {
    std::unique_lock lock(mutex_);
    work_.wait(lock, [this] { return !queued_.empty() || !active_.empty() || stop_called_; });
    // Another beam width than that of the active ones waits, and all behind it.
    int32_t width = active_.empty() && !queued_.empty() ? queued_.front()->request.getSamplingConfig().getBeamWidth()
                                                        : operating_beam_width_;
    auto room = max_batch_size_ - static_cast<int32_t>(active_.size());
    while (!queued_.empty()) {
      auto const& next = queued_.front();
      bool const preempts =
          !active_.empty() && next->request.getPriority() > active_.back().shared->request.getPriority();
      if (next->request.getSamplingConfig().getBeamWidth() != width || (next->live > room && !preempts)) break;
      room -= next->live;
      fetched.push_back(next);
      queued_.pop_front();
    }
    // TrtGptModelInflightBatching::changeBeamWidth (batch_manager/trtGptModelInflightBatching.cpp, 00825c4): all buffers and the
    // decoder are made anew.
    if (operating_beam_width_ != width) ++counts().beam_width_changes;
    operating_beam_width_ = width;
  }
  for (auto const& shared : fetched) {
    auto const client = shared->request.getClientId();
    try {
      validate(shared->request);
      check_adapter(shared->request);
      add(shared);
    } catch (AdapterError const& error) {
      // LoraExpectedException: the text as it is.
      push(te::Response(shared->id, error.what(), client));
    } catch (std::exception const& error) {
      push(te::Response(shared->id, std::string("Encountered an error when fetching new request: ") + error.what(),
                        client));
    }
  }
  // What was refused may have been all there was.
  if (active_.empty()) {
    std::unique_lock lock(mutex_);
    if (stop_called_ && queued_.empty()) return;
    lock.unlock();
    fetch();
  }
}

/// LlmRequest::validate (batch_manager/llmRequest.cpp, 119c6e6) and the checks of fetchNewRequests around it.
void Loop::validate(te::Request const& request) const {
  auto const length = static_cast<int64_t>(request.getInputTokenIds().size());
  auto const check = [](bool holds, std::string const& text) {
    if (!holds) throw std::runtime_error("[TensorRT-LLM][ERROR] Assertion failed: " + text);
  };
  if (auto const end = request.getEndId())
    check(*end >= -1 && *end < settings_.padded_vocab_size, "EndId is not within acceptable range");
  if (length > max_input_len_)
    throw std::runtime_error("Prompt length (" + std::to_string(length) + ") exceeds maximum input length (" +
                             std::to_string(max_input_len_) + "). Set log level to info");
  auto const table = request.getPromptTuningConfig();
  if (table && reuses_blocks_) {
    auto const ids = table->getInputTokenExtraIds();
    check(ids.has_value() && ids->size() == static_cast<size_t>(length),
          "Input token extra ids must be provided when enabling kv cache reuse with prompt table");
  }
  auto const policy = config_.getSchedulerConfig().getCapacitySchedulerPolicy();
  bool const evicts = policy == te::CapacitySchedulerPolicy::kMAX_UTILIZATION;
  check(!settings_.has_encoder || !evicts, "Encoder or Encoder-Decoder model don't support max utilization scheduler yet.");
  if (request.getStreaming() && evicts && !config_.getEnableChunkedContext())
    check(length + request.getMaxTokens() - 1 <= max_input_len_,
          "Request sequence length is potentially greater than max input length.");
  // The real one asserts it behind the forward pass, which fails all that run.
  check(request.getRequestType() == te::RequestType::REQUEST_TYPE_CONTEXT_AND_GENERATION ||
            config_.getCacheTransceiverConfig().has_value(),
        "Disaggregated serving is not enabled, please check the configuration of cacheTransceiverConfig.");
  check(!request.getOutputConfig().returnContextLogits || settings_.gather_context_logits,
        "Return context logit need to build engine with gather_context_logits");
}

void Loop::add(std::shared_ptr<Shared> const& shared) {
  auto const place = std::find_if(active_.begin(), active_.end(), [&](Sequence const& other) {
    return other.shared->request.getPriority() < shared->request.getPriority();
  });
  int32_t const count = shared->live;
  for (int32_t index = 0; index < count; ++index) {
    auto const added = active_.emplace(place, shared, shared->id + static_cast<uint64_t>(index), index, settings_);
    auto const room = settings_.max_seq_len - static_cast<int32_t>(added->prompt_length);
    added->max_tokens = std::min(added->max_tokens, room);
    if (!is(*added, te::RequestType::REQUEST_TYPE_GENERATION_ONLY)) continue;
    try {
      take_over(*added);
    } catch (...) {
      active_.erase(added);
      throw;
    }
  }
}

/// terminateActiveRequests: all of them, whoever was at fault, and the loop goes on.
void Loop::fail_all(std::string const& error) {
  for (auto const& sequence : active_)
    push(te::Response(sequence.id, error, sequence.shared->request.getClientId()));
  active_.clear();
}

void Loop::note_stats(bool idle) {
  te::IterationStats stats{};
  stats.iter = static_cast<uint64_t>(iteration_);
  stats.iterLatencyMS = idle ? 0.0 : static_cast<double>(settings_.step_us) / 1000.0;
  stats.maxNumActiveRequests = max_batch_size_;
  stats.numActiveRequests = static_cast<int32_t>(active_.size());
  stats.numCompletedRequests = completed_;
  te::KvCacheStats cache{};
  te::InflightBatchingStats batching{};
  for (auto const& sequence : active_) {
    if (!sequence.scheduled) continue;
    ++batching.numScheduledRequests;
    ++(sequence.chunk > 0 ? batching.numContextRequests : batching.numGenRequests);
    cache.usedNumBlocks += static_cast<int32_t>(blocks(sequence.evaluated + sequence.generated()));
  }
  batching.numCtxTokens = idle ? 0 : context_tokens_;
  cache.maxNumBlocks = static_cast<int32_t>(max_blocks_);
  cache.usedNumBlocks = std::min(cache.usedNumBlocks, cache.maxNumBlocks);
  cache.freeNumBlocks = cache.maxNumBlocks - cache.usedNumBlocks;
  cache.tokensPerBlock = settings_.tokens_per_block;
  cache.reusedBlocks = reused_blocks_;
  cache.missedBlocks = missed_blocks_;
  stats.kvCacheStats = cache;
  stats.inflightBatchingStats = batching;
  std::lock_guard const lock(mutex_);
  stats.numQueuedRequests = static_cast<int32_t>(queued_.size());
  stats_.push_back(std::move(stats));
  while (stats_.size() > static_cast<size_t>(std::max(config_.getIterStatsMaxIterations(), 1))) stats_.pop_front();
}

}  // namespace standin
