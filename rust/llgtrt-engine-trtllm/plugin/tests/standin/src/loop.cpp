#include "loop.h"

#include <algorithm>
#include <stdexcept>

namespace standin {

Loop::Loop(Settings const& settings, te::ExecutorConfig const& config) : settings_(settings), config_(config) {
  if (auto const processors = config.getLogitsPostProcessorConfig()) post_processor_ = processors->getProcessorBatched();
  max_batch_size_ = std::min(config.getMaxBatchSize().value_or(settings.max_batch_size), settings.max_batch_size);
  max_num_tokens_ = std::min(config.getMaxNumTokens().value_or(settings.max_num_tokens), settings.max_num_tokens);
  int64_t const all = blocks(static_cast<size_t>(settings.max_seq_len)) * max_batch_size_;
  auto const limit = config.getKvCacheConfig().getMaxTokens();
  max_blocks_ = limit ? std::min(all, blocks(static_cast<size_t>(*limit))) : all;
  thread_ = std::thread([this] { run(); });
}

Loop::~Loop() { stop(); }

int64_t Loop::blocks(size_t tokens) const {
  auto const size = static_cast<size_t>(settings_.tokens_per_block);
  return static_cast<int64_t>((tokens + size - 1) / size);
}

void Loop::check_alive() const {
  if (!death_.empty()) throw std::runtime_error("the executor has ended: " + death_);
  if (stopping_) throw std::runtime_error("Shutdown called");
}

uint64_t Loop::enqueue(te::Request const& request) {
  std::lock_guard const lock(mutex_);
  check_alive();
  auto const prompt = request.getInputTokenIds();
  if (std::find(prompt.begin(), prompt.end(), settings_.refuse_token) != prompt.end())
    throw std::invalid_argument("the stand-in was told to refuse this request");
  auto const limit = config_.getMaxQueueSize();
  if (limit && *limit > 0 && waiting_ + incoming_.size() >= static_cast<size_t>(*limit))
    throw std::runtime_error("Maximum queue size of " + std::to_string(*limit) +
                             " has been reached, please try again later");
  auto const bias = request.getEmbeddingBias();
  if (bias && bias->getDataType() != settings_.logits_type)
    throw std::runtime_error("The embedding bias data type must be same as model logits type.");
  auto shared = std::make_shared<Shared>(request, next_id_);
  shared->live = std::max(request.getSamplingConfig().getNumReturnSequences().value_or(1), 1);
  next_id_ += static_cast<uint64_t>(shared->live);
  incoming_.push_back(shared);
  work_.notify_one();
  return shared->id;
}

std::vector<te::Response> Loop::await(std::optional<std::chrono::milliseconds> const& timeout) {
  std::unique_lock lock(mutex_);
  auto const ready = [this] { return !responses_.empty() || !death_.empty() || stopping_; };
  if (timeout)
    answered_.wait_for(lock, *timeout, ready);
  else
    answered_.wait(lock, ready);
  if (responses_.empty()) check_alive();
  if (settings_.lockstep) work_.notify_one();
  return std::exchange(responses_, {});
}

void Loop::cancel(uint64_t id) {
  if (settings_.odd_exception) throw 42;
  std::lock_guard const lock(mutex_);
  cancelled_.insert(id);
  work_.notify_one();
}

void Loop::stop() {
  {
    std::lock_guard const lock(mutex_);
    stopping_ = true;
    work_.notify_all();
    answered_.notify_all();
  }
  if (thread_.joinable()) thread_.join();
}

std::deque<te::IterationStats> Loop::take_stats() {
  std::lock_guard const lock(mutex_);
  return std::exchange(stats_, {});
}

void Loop::push(te::Response response) {
  std::lock_guard const lock(mutex_);
  responses_.push_back(std::move(response));
  answered_.notify_all();
}

void Loop::run() {
  try {
    while (iterate()) {
    }
  } catch (std::exception const& error) {
    // As the real one: whoever is live gets the error, and nothing works afterwards.
    std::set<uint64_t> told;
    for (auto const& sequence : sequences_) {
      auto const& shared = *sequence.shared;
      if (told.insert(shared.id).second)
        push(te::Response(shared.id, std::string("Encountered an error in forward function: ") + error.what(),
                          shared.request.getClientId()));
    }
    std::lock_guard const lock(mutex_);
    death_ = error.what();
    answered_.notify_all();
  }
}

bool Loop::iterate() {
  {
    std::unique_lock lock(mutex_);
    work_.wait(lock, [this] {
      bool const taken = !settings_.lockstep || responses_.empty();
      return stopping_ || (taken && (!incoming_.empty() || !sequences_.empty()));
    });
    if (stopping_) return false;
    if (settings_.hang_iteration > 0 && iteration_ + 1 >= settings_.hang_iteration) {
      work_.wait(lock, [this] { return stopping_; });
      return false;
    }
  }
  if (settings_.step_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(settings_.step_us));
  ++iteration_;
  completed_ = 0;
  take_new();
  take_cancelled();
  if (settings_.fatal_iteration > 0 && iteration_ >= settings_.fatal_iteration)
    throw std::runtime_error("the stand-in was told to fail");
  admit();
  schedule();
  forward();
  post_process();
  sample();
  answer();
  note_stats();
  return true;
}

void Loop::take_new() {
  std::deque<std::shared_ptr<Shared>> incoming;
  {
    std::lock_guard const lock(mutex_);
    incoming = std::exchange(incoming_, {});
  }
  for (auto const& shared : incoming) {
    // Higher priority first, in order of arrival among equals.
    auto place = std::find_if(sequences_.begin(), sequences_.end(), [&](Sequence const& other) {
      return !other.active && other.shared->request.getPriority() < shared->request.getPriority();
    });
    int32_t const count = shared->live;
    for (int32_t index = 0; index < count; ++index)
      sequences_.emplace(place, shared, shared->id + static_cast<uint64_t>(index), index, settings_);
  }
}

void Loop::take_cancelled() {
  std::set<uint64_t> cancelled;
  {
    std::lock_guard const lock(mutex_);
    cancelled = std::exchange(cancelled_, {});
  }
  for (auto& sequence : sequences_) {
    auto const age = std::chrono::steady_clock::now() - sequence.shared->arrived;
    auto const limit = sequence.shared->request.getAllottedTimeMs();
    if (cancelled.count(sequence.shared->id) > 0) sequence.finish = te::FinishReason::kCANCELLED;
    if ((limit && age > *limit) || sequence.prompt_holds(settings_.timeout_token))
      sequence.finish = te::FinishReason::kTIMED_OUT;
  }
}

bool Loop::lora_is_ready(Sequence& sequence) {
  auto const lora = sequence.shared->request.getLoraConfig();
  if (!lora) return true;
  auto const task = lora->getTaskId();
  auto const cached = std::find(lora_cached_.begin(), lora_cached_.end(), task);
  bool const known = cached != lora_cached_.end();
  if (known) lora_cached_.erase(cached);
  if (!known && !lora->getWeights()) {
    sequence.error = "LoRA task " + std::to_string(task) +
                     " not found in cache. Please send LoRA weights with request";
    sequence.finish = te::FinishReason::kNOT_FINISHED;
    return false;
  }
  lora_cached_.push_back(task);
  while (lora_cached_.size() > static_cast<size_t>(std::max(settings_.lora_cache, 1))) lora_cached_.pop_front();
  return true;
}

void Loop::admit() {
  int32_t active = 0;
  int64_t used = 0;
  auto const need = [this](Sequence const& sequence) {
    return blocks(sequence.prompt_length + static_cast<size_t>(sequence.shared->request.getMaxTokens()));
  };
  for (auto const& sequence : sequences_) {
    if (!sequence.active) continue;
    ++active;
    used += need(sequence);
  }
  for (auto& sequence : sequences_) {
    if (sequence.active || sequence.finish) continue;
    auto const length = sequence.prompt_length + static_cast<size_t>(sequence.shared->request.getMaxTokens());
    if (sequence.prompt_length == 0 || length > static_cast<size_t>(settings_.max_seq_len)) {
      sequence.error = "Prompt length (" + std::to_string(sequence.prompt_length) +
                       ") exceeds maximum input length.";
      sequence.finish = te::FinishReason::kNOT_FINISHED;
      continue;
    }
    if (active >= max_batch_size_ || used + need(sequence) > max_blocks_) break;
    if (!lora_is_ready(sequence)) continue;
    sequence.active = true;
    ++active;
    used += need(sequence);
    look_up_prefix(sequence);
  }
}

void Loop::look_up_prefix(Sequence& sequence) {
  auto const size = static_cast<size_t>(settings_.tokens_per_block);
  auto const& tokens = sequence.tokens();
  bool found = config_.getKvCacheConfig().getEnableBlockReuse();
  uint64_t hash = sequence.salt;
  // The last token is evaluated in any case, for its logits.
  for (size_t block = 0; (block + 1) * size < tokens.size(); ++block) {
    for (size_t i = block * size; i < (block + 1) * size; ++i) hash = mix(hash, static_cast<uint64_t>(tokens[i]));
    found = found && cached_blocks_.count(hash) > 0;
    if (found) ++sequence.reused_blocks;
    cached_blocks_.insert(hash);
  }
  sequence.evaluated = static_cast<size_t>(sequence.reused_blocks) * size;
  reused_blocks_ += sequence.reused_blocks;
  missed_blocks_ += static_cast<int32_t>(blocks(tokens.size())) - sequence.reused_blocks;
}

void Loop::schedule() {
  int64_t budget = max_num_tokens_;
  context_tokens_ = 0;
  for (auto const& sequence : sequences_)
    if (sequence.active && sequence.evaluated == sequence.prompt_length) --budget;
  for (auto& sequence : sequences_) {
    sequence.chunk = 0;
    if (!sequence.active || sequence.finish || sequence.evaluated == sequence.prompt_length) continue;
    size_t chunk = sequence.prompt_length - sequence.evaluated;
    if (config_.getEnableChunkedContext()) {
      if (settings_.chunk_tokens > 0) chunk = std::min(chunk, static_cast<size_t>(settings_.chunk_tokens));
      chunk = std::min(chunk, static_cast<size_t>(std::max<int64_t>(budget, 1)));
    }
    sequence.chunk = chunk;
    budget -= static_cast<int64_t>(chunk);
    context_tokens_ += static_cast<int32_t>(chunk);
  }
}

void Loop::forward() {
  auto const width = static_cast<int64_t>(settings_.padded_vocab_size);
  for (auto& sequence : sequences_) {
    if (!sequence.active || sequence.finish) continue;
    bool const beams = sequence.beams.size() > 1;
    auto const count = static_cast<int64_t>(sequence.beams.size());
    sequence.logits = beams ? te::Tensor::gpu(settings_.logits_type, stream_, {1, count, width})
                            : te::Tensor::gpu(settings_.logits_type, stream_, {1, 1, width});
    size_t const before = sequence.evaluated;
    sequence.evaluated += sequence.chunk;
    bool const prompt_done = sequence.evaluated == sequence.prompt_length;
    auto const& request = sequence.shared->request;
    size_t const row_bytes = sequence.logits.getSizeInBytes() / sequence.beams.size();
    for (size_t beam = 0; beam < sequence.beams.size(); ++beam) {
      auto const& tokens = sequence.beams[beam];
      size_t const end = prompt_done ? tokens.size() : sequence.evaluated;
      auto* const row = static_cast<char*>(sequence.logits.getData()) + beam * row_bytes;
      uint64_t hash = sequence.salt;
      bool const keep = beam == 0 && request.getOutputConfig().returnContextLogits;
      for (size_t i = 0; i < end; ++i) {
        hash = mix(hash, static_cast<uint64_t>(tokens[i]));
        if (!keep || i < before || i >= sequence.prompt_length) continue;
        write_logits(row, settings_, hash, request.getEndId(), 0);
        for (int64_t token = 0; token < width; ++token)
          sequence.context_logits.push_back(load(row, settings_.logits_type, static_cast<size_t>(token)));
      }
      write_logits(row, settings_, hash, request.getEndId(), sequence.generated());
    }
    if (request.getOutputConfig().returnGenerationLogits && prompt_done)
      for (int64_t token = 0; token < width; ++token)
        sequence.new_logits.push_back(
            load(sequence.logits.getData(), settings_.logits_type, static_cast<size_t>(token)));
  }
}

void Loop::post_process() {
  if (!post_processor_) return;
  std::vector<te::IdType> ids;
  std::vector<te::Tensor> logits;
  std::vector<std::reference_wrapper<te::BeamTokens const>> tokens;
  std::vector<std::optional<te::IdType>> clients;
  for (auto& sequence : sequences_) {
    auto const name = sequence.shared->request.getLogitsPostProcessorName();
    // Prompts that are not finished are passed as well, and their rows are thrown away.
    if (!sequence.active || sequence.finish || name != te::Request::kBatchedPostProcessorName) continue;
    ids.push_back(sequence.id);
    logits.push_back(sequence.logits);
    tokens.emplace_back(sequence.beams);
    clients.push_back(sequence.shared->request.getClientId());
  }
  if (!ids.empty()) (*post_processor_)(ids, logits, tokens, stream_, clients);
}

void Loop::sample() {
  for (auto& sequence : sequences_) {
    if (sequence.active && !sequence.finish && sequence.evaluated == sequence.prompt_length) sample(sequence);
  }
}

void Loop::sample(Sequence& sequence) {
  if (sequence.prompt_holds(settings_.error_token) &&
      sequence.generated() >= static_cast<size_t>(settings_.error_at)) {
    sequence.error = "the stand-in was told to fail this request";
    sequence.finish = te::FinishReason::kNOT_FINISHED;
    return;
  }
  auto const& request = sequence.shared->request;
  size_t const row_bytes = sequence.logits.getSizeInBytes() / sequence.beams.size();
  bool const first = sequence.generated() == 0;
  for (size_t beam = 0; beam < sequence.beams.size(); ++beam) {
    auto& tokens = sequence.beams[beam];
    auto const* row = static_cast<char const*>(sequence.logits.getData()) + beam * row_bytes;
    auto const choice = sequence.decoder.sample(row, tokens, sequence.prompt_length, first ? beam : 0);
    // As in TensorRT-LLM, the end token is no part of the output.
    if (beam == 0 && request.getEndId() && choice.token == *request.getEndId()) {
      sequence.finish = te::FinishReason::kEND_ID;
      return;
    }
    tokens.push_back(choice.token);
    if (beam > 0) continue;
    sequence.log_probs.push_back(choice.log_prob);
    sequence.cumulative_log_prob += choice.log_prob;
  }
  end_if_due(sequence);
}

void Loop::end_if_due(Sequence& sequence) {
  auto const& tokens = sequence.tokens();
  auto const words = sequence.shared->request.getStopWords().value_or(std::list<te::VecTokens>{});
  for (auto const& word : words) {
    if (word.size() <= sequence.generated() &&
        std::equal(word.rbegin(), word.rend(), tokens.rbegin())) {
      sequence.finish = te::FinishReason::kSTOP_WORDS;
      return;
    }
  }
  if (sequence.prompt_holds(settings_.odd_finish_token) && sequence.generated() >= 2)
    sequence.finish = static_cast<te::FinishReason>(42);
  else if (sequence.generated() >= static_cast<size_t>(sequence.shared->request.getMaxTokens()))
    sequence.finish = te::FinishReason::kLENGTH;
}

void Loop::answer() {
  for (auto& sequence : sequences_) answer(sequence);
  sequences_.remove_if([](Sequence const& sequence) { return sequence.finish.has_value(); });
}

void Loop::answer(Sequence& sequence) {
  auto& shared = *sequence.shared;
  auto const& request = shared.request;
  bool const final = sequence.finish.has_value();
  if (final) {
    ++completed_;
    --shared.live;
  }
  if (!sequence.error.empty()) {
    push(te::Response(shared.id, sequence.error, request.getClientId()));
    return;
  }
  if (!final && (!request.getStreaming() || sequence.reported == sequence.generated())) return;
  te::Result result;
  result.isSequenceFinal = final;
  result.isFinal = final && shared.live == 0;
  result.sequenceIndex = sequence.index;
  result.decodingIter = static_cast<int32_t>(sequence.generated());
  for (auto const& beam : sequence.beams) {
    auto const begin = beam.begin() + static_cast<int64_t>(sequence.prompt_length + sequence.reported);
    result.outputTokenIds.emplace_back(begin, beam.end());
    result.finishReasons.push_back(sequence.finish.value_or(te::FinishReason::kNOT_FINISHED));
  }
  auto const& output = request.getOutputConfig();
  if (output.returnLogProbs) {
    te::VecLogProbs const fresh(sequence.log_probs.begin() + static_cast<int64_t>(sequence.reported),
                                sequence.log_probs.end());
    result.logProbs = std::vector<te::VecLogProbs>(1, fresh);
    result.cumLogProbs = te::VecLogProbs(1, sequence.cumulative_log_prob);
  }
  auto const tensor = [this](std::vector<float> const& values) {
    auto const width = static_cast<int64_t>(settings_.padded_vocab_size);
    auto copy = te::Tensor::cpu(te::DataType::kFP32, {static_cast<int64_t>(values.size()) / width, width});
    std::copy(values.begin(), values.end(), static_cast<float*>(copy.getData()));
    return copy;
  };
  if (!sequence.context_logits.empty()) {
    result.contextLogits = tensor(sequence.context_logits);
    sequence.context_logits.clear();
  }
  if (!sequence.new_logits.empty()) {
    result.generationLogits = tensor(sequence.new_logits);
    sequence.new_logits.clear();
  }
  if (output.returnPerfMetrics) {
    te::RequestPerfMetrics metrics;
    metrics.kvCacheMetrics.numReusedBlocks = sequence.reused_blocks;
    result.requestPerfMetrics = metrics;
  }
  sequence.reported = sequence.generated();
  push(te::Response(shared.id, result, request.getClientId()));
  if (final && sequence.prompt_holds(settings_.echo_token))
    push(te::Response(shared.id, result, request.getClientId()));
}

void Loop::note_stats() {
  te::IterationStats stats{};
  stats.iter = static_cast<uint64_t>(iteration_);
  stats.iterLatencyMS = static_cast<double>(settings_.step_us) / 1000.0;
  stats.maxNumActiveRequests = max_batch_size_;
  stats.numCompletedRequests = completed_;
  te::KvCacheStats cache{};
  te::InflightBatchingStats batching{};
  for (auto const& sequence : sequences_) {
    if (!sequence.active) {
      ++stats.numQueuedRequests;
      continue;
    }
    ++stats.numActiveRequests;
    ++(sequence.evaluated < sequence.prompt_length ? batching.numContextRequests : batching.numGenRequests);
    cache.usedNumBlocks += static_cast<int32_t>(blocks(sequence.evaluated + sequence.generated()));
  }
  batching.numScheduledRequests = stats.numActiveRequests;
  batching.numCtxTokens = context_tokens_;
  cache.maxNumBlocks = static_cast<int32_t>(max_blocks_);
  cache.usedNumBlocks = std::min(cache.usedNumBlocks, cache.maxNumBlocks);
  cache.freeNumBlocks = cache.maxNumBlocks - cache.usedNumBlocks;
  cache.tokensPerBlock = settings_.tokens_per_block;
  cache.reusedBlocks = reused_blocks_;
  cache.missedBlocks = missed_blocks_;
  stats.kvCacheStats = cache;
  stats.inflightBatchingStats = batching;
  std::lock_guard const lock(mutex_);
  waiting_ = static_cast<size_t>(stats.numQueuedRequests);
  stats_.push_back(std::move(stats));
  while (stats_.size() > static_cast<size_t>(std::max(config_.getIterStatsMaxIterations(), 1))) stats_.pop_front();
}

}  // namespace standin
