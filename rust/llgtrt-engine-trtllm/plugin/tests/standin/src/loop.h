// The executor's loop: admits, evaluates prompts in chunks, calls the logits post-processor, samples, answers.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <set>
#include <thread>

#include "sequence.h"
#include "tensorrt_llm/runtime/cudaStream.h"

namespace standin {

class Loop {
 public:
  Loop(Settings const& settings, te::ExecutorConfig const& config);
  ~Loop();

  uint64_t enqueue(te::Request const& request);
  std::vector<te::Response> await(std::optional<std::chrono::milliseconds> const& timeout);
  void cancel(uint64_t id);
  void stop();
  std::deque<te::IterationStats> take_stats();

 private:
  // On the caller's threads, under the mutex.
  void check_alive() const;

  // On the loop's thread.
  void run();
  bool iterate();
  void take_new();
  void take_cancelled();
  bool lora_is_ready(Sequence& sequence);
  void admit();
  void look_up_prefix(Sequence& sequence);
  void schedule();
  void forward();
  void post_process();
  void sample();
  void sample(Sequence& sequence);
  void end_if_due(Sequence& sequence);
  void answer();
  void answer(Sequence& sequence);
  void note_stats();
  void push(te::Response response);
  int64_t blocks(size_t tokens) const;

  Settings settings_;
  te::ExecutorConfig config_;
  std::optional<te::LogitsPostProcessorBatched> post_processor_;
  int32_t max_batch_size_;
  int32_t max_num_tokens_;
  int64_t max_blocks_;

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable answered_;
  std::deque<std::shared_ptr<Shared>> incoming_;
  std::set<uint64_t> cancelled_;
  std::vector<te::Response> responses_;
  std::deque<te::IterationStats> stats_;
  std::string death_;
  bool stopping_ = false;
  uint64_t next_id_ = 1;
  size_t waiting_ = 0;

  std::list<Sequence> sequences_;
  std::deque<uint64_t> lora_cached_;
  std::set<uint64_t> cached_blocks_;
  int64_t iteration_ = 0;
  int32_t completed_ = 0;
  int32_t context_tokens_ = 0;
  int32_t reused_blocks_ = 0;
  int32_t missed_blocks_ = 0;
  te::StreamPtr stream_ = std::make_shared<tensorrt_llm::runtime::CudaStream>();
  std::thread thread_;
};

}  // namespace standin
