// One forward pass: TrtGptModelInflightBatching::forwardAsync (cpp/tensorrt_llm/batch_manager).
#include <algorithm>
#include <stdexcept>

#include "handover.h"
#include "loop.h"
#include "standin/device.h"

namespace standin {

int64_t Loop::blocks(size_t tokens) const {
  auto const size = static_cast<size_t>(settings_.tokens_per_block);
  return static_cast<int64_t>((tokens + size - 1) / size);
}

void Loop::forward() {
  if (settings_.step_us > 0) std::this_thread::sleep_for(std::chrono::microseconds(settings_.step_us));
  ++iteration_;
  ++counts().forward_passes;
  if (settings_.fail_iteration == iteration_) throw std::runtime_error("the stand-in was told to fail");
  if (settings_.fatal_iteration > 0 && iteration_ >= settings_.fatal_iteration)
    break_device(device_, "CUDA error: an illegal memory access was encountered (told to fail)");
  // An error that stays fails this pass and every later one; the loop goes on asking for the next.
  if (auto const error = device_error(device_); !error.empty()) throw std::runtime_error(error);
  schedule();
  for (auto& sequence : active_)
    if (sequence.scheduled) compute(sequence);
  for (auto& sequence : active_)
    if (sequence.scheduled && sequence.evaluated == sequence.prompt_length && !sequence.decoding)
      set_up_decoder(sequence);
  post_process();
  for (auto& sequence : active_)
    if (sequence.decoding && !sequence.finish) sample(sequence);
}

/// PeftCacheManager::addRequestPeft (batch_manager/peftCacheManager.cpp, 0cedd9a), loraValidateRequestTensors
/// (runtime/loraUtils.cpp, 2a9abd9), LoraCache (runtime/loraCache.cpp).
void Loop::check_adapter(te::Request const& request) {
  auto const lora = request.getLoraConfig();
  if (!lora) return;
  auto const weights = lora->getWeights();
  if (weights) {
    auto const rows = lora->getConfig().value();
    auto const* values = static_cast<int32_t const*>(rows.getData());
    if (weights->getDataType() != settings_.weights_type)
      throw std::runtime_error("Expected lora weights to be the same data type as base model");
    auto const peft = config_.getPeftCacheConfig().value_or(te::PeftCacheConfig());
    auto const most = std::min(peft.getMaxAdapterSize(), settings_.max_lora_rank);
    for (int64_t row = 0; row < rows.getShape()[0]; ++row) {
      int32_t const rank = values[row * 3 + 2];
      if (values[row * 3 + 1] < 0 || values[row * 3 + 1] >= settings_.layers)
        throw std::runtime_error("Expected layerId to be in the range [0, numModelLayers)");
      if (rank <= 0) throw std::runtime_error("Expected adapterSize to be > 0");
      if (rank > settings_.max_lora_rank)
        throw std::runtime_error("Invalid low_rank. low_rank must be smaller than mMaxLowRank");
      // A guess: the pages of the cache are laid out for ranks up to maxAdapterSize, which is smaller than the engine's
      // unless the caller says so; what a larger adapter does to them was not followed to its end.
      if (rank > most) throw std::runtime_error("adapter of rank " + std::to_string(rank) + " does not fit a page");
    }
  }
  auto const task = lora->getTaskId();
  auto const cached = std::find(lora_cached_.begin(), lora_cached_.end(), task);
  bool const known = cached != lora_cached_.end();
  if (!known && !weights)
    throw AdapterError("LoRA task " + std::to_string(task) +
                       " not found in cache. Please send LoRA weights with request");
  if (known) {
    lora_cached_.erase(cached);
  } else if (lora_cached_.size() >= static_cast<size_t>(std::max(settings_.lora_cache, 1))) {
    auto const in_use = [this](uint64_t other) {
      return std::any_of(active_.begin(), active_.end(), [&](Sequence const& sequence) {
        auto const its = sequence.shared->request.getLoraConfig();
        return its && its->getTaskId() == other;
      });
    };
    auto const idle = std::find_if_not(lora_cached_.begin(), lora_cached_.end(), in_use);
    if (idle == lora_cached_.end()) throw AdapterError("Cache is full. There are no done tasks to evict");
    lora_cached_.erase(idle);
  }
  lora_cached_.push_back(task);
}

/// The capacity scheduler, without eviction, and then the pieces of prompts.
void Loop::schedule() {
  auto const need = [this](Sequence const& sequence) {
    return blocks(sequence.prompt_length + static_cast<size_t>(sequence.max_tokens));
  };
  int32_t count = 0;
  int64_t used = 0;
  int64_t budget = max_num_tokens_;
  for (auto const& sequence : active_) {
    if (!sequence.scheduled) continue;
    ++count;
    used += need(sequence);
    if (sequence.evaluated == sequence.prompt_length) --budget;
  }
  context_tokens_ = 0;
  for (auto& sequence : active_) {
    if (!sequence.scheduled && count < max_batch_size_ && used + need(sequence) <= max_blocks_) {
      sequence.scheduled = true;
      ++count;
      used += need(sequence);
      if (!is(sequence, te::RequestType::REQUEST_TYPE_GENERATION_ONLY)) look_up_prefix(sequence);
    }
    sequence.chunk = 0;
    if (!sequence.scheduled || sequence.evaluated == sequence.prompt_length) continue;
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

void Loop::look_up_prefix(Sequence& sequence) {
  auto const size = static_cast<size_t>(settings_.tokens_per_block);
  auto const& tokens = sequence.tokens();
  if (reuses_blocks_) sequence.reused_blocks = cache_.look_up(tokens, sequence.salt, sequence.shared->request);
  sequence.evaluated = static_cast<size_t>(sequence.reused_blocks) * size;
  reused_blocks_ += sequence.reused_blocks;
  missed_blocks_ += static_cast<int32_t>(blocks(tokens.size())) - sequence.reused_blocks;
}

void Loop::compute(Sequence& sequence) {
  auto const width = static_cast<int64_t>(settings_.padded_vocab_size);
  auto const count = static_cast<int64_t>(sequence.beams.size());
  // Where time is measured, what the model says does not matter: a row as it was made stays.
  if (settings_.time_post_processor && sequence.logits_made) {
    sequence.evaluated += sequence.chunk;
    return;
  }
  sequence.logits = te::Tensor::gpu(settings_.logits_type, stream_, {1, count, width});
  sequence.logits_made = true;
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
}

/// CreateNewDecoderRequests (batch_manager/createNewDecoderRequests.cpp, 015ac21): what it does not like fails the pass,
/// and with it every request.
void Loop::set_up_decoder(Sequence& sequence) {
  auto const& request = sequence.shared->request;
  auto const check = [](bool holds, std::string const& text) {
    if (!holds) throw std::runtime_error("[TensorRT-LLM][ERROR] Assertion failed: " + text);
  };
  check(request.getSamplingConfig().getBeamWidth() <= config_.getMaxBeamWidth(),
        "Beam width must be smaller than maxBeamWidth passed to decoder setup function.");
  if (auto const bias = request.getEmbeddingBias()) {
    bool const casts = bias->getDataType() == te::DataType::kFP32 && settings_.logits_type == te::DataType::kFP16;
    check(bias->getDataType() == settings_.logits_type || casts,
          "Embedding bias data type must be same as model logits type.");
    check(bias->getSize() == static_cast<size_t>(settings_.vocab_size),
          "The embedding bias shape is not as expected. Expected last dimension to be same as vocab size");
    // It is copied into a row as wide as the padded vocabulary, and a copy wants both to be of one size.
    check(settings_.vocab_size == settings_.padded_vocab_size, "dst.getSizeInBytes() == src.getSizeInBytes()");
  }
  // A guess: nothing looks at the ids of bad words, and the kernel that bans them writes to the logit of each.
  for (auto const& word : request.getBadWords().value_or(std::list<te::VecTokens>{}))
    for (auto const token : word)
      if (token < 0 || token >= settings_.padded_vocab_size) {
        break_device(device_, "CUDA error: an illegal memory access was encountered");
        throw std::runtime_error(device_error(device_));
      }
  sequence.decoding = true;
}

/// LogitsPostProcessor (batch_manager/logitsPostProcessor.cpp, 23bf695) over the requests that the decoder has: of a prompt in
/// pieces only the last (batch_manager/handleContextLogits.cpp, b35ac1b).
void Loop::post_process() {
  if (!post_processor_) return;
  std::vector<te::IdType> ids;
  std::vector<te::Tensor> logits;
  std::vector<std::reference_wrapper<te::BeamTokens const>> tokens;
  std::vector<std::optional<te::IdType>> clients;
  for (auto& sequence : active_) {
    auto const name = sequence.shared->request.getLogitsPostProcessorName();
    if (!sequence.decoding || name != te::Request::kBatchedPostProcessorName) continue;
    ids.push_back(sequence.id);
    logits.push_back(sequence.logits);
    tokens.emplace_back(sequence.beams);
    clients.push_back(sequence.shared->request.getClientId());
  }
  if (ids.empty()) return;
  if (settings_.fatal_mask_iteration == iteration_)
    break_device(device_, "CUDA error: an illegal memory access was encountered (told to fail)");
  auto const start = std::chrono::steady_clock::now();
  auto const device = device_time();
  (*post_processor_)(ids, logits, tokens, stream_, clients);
  // The device's own work is not the host's.
  auto const host = std::chrono::steady_clock::now() - start - (device_time() - device);
  if (settings_.time_post_processor) post_processor_times_.push_back(host);
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
    if (settings_.time_post_processor) {
      tokens.push_back(0);
      continue;
    }
    auto const choice = sequence.decoder.sample(row, tokens, sequence.prompt_length, first ? beam : 0);
    // As in TensorRT-LLM, the end token is no part of the output.
    if (beam == 0 && request.getEndId() && choice.token == *request.getEndId()) {
      sequence.finish = te::FinishReason::kEND_ID;
      return;
    }
    tokens.push_back(choice.token);
  }
  end_if_due(sequence);
}

void Loop::end_if_due(Sequence& sequence) {
  auto const& tokens = sequence.tokens();
  auto const words = sequence.shared->request.getStopWords().value_or(std::list<te::VecTokens>{});
  for (auto const& word : words) {
    if (word.size() <= sequence.generated() && std::equal(word.rbegin(), word.rend(), tokens.rbegin())) {
      sequence.finish = te::FinishReason::kSTOP_WORDS;
      return;
    }
  }
  if (sequence.prompt_holds(settings_.odd_finish_token) && sequence.generated() >= 2)
    sequence.finish = static_cast<te::FinishReason>(42);
  else if (sequence.generated() >= static_cast<size_t>(sequence.max_tokens))
    sequence.finish = te::FinishReason::kLENGTH;
}

}  // namespace standin
