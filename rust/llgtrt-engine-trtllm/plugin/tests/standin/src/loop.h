// The executor's loop, in the order of Executor::Impl::executionLoop (cpp/tensorrt_llm/executor/executorImpl.cpp, 036a60f):
// what the last forward pass gave, timeouts, cancellations, answers; then new requests; then the next forward pass.
#pragma once

#include <condition_variable>
#include <deque>
#include <list>
#include <mutex>
#include <set>
#include <thread>

#include "kv_cache.h"
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
  /// Serves all requests to their ends first.
  void stop();
  std::deque<te::IterationStats> take_stats();
  /// Null unless its events are told.
  KvCache* told_cache() { return reuses_blocks_ && cache_.tells() ? &cache_ : nullptr; }

 private:
  using Sequences = std::list<Sequence>;

  // loop.cpp, on the caller's threads under the mutex.
  void check_open() const;

  // loop.cpp, on the loop's thread.
  void run();
  void wait_for_reader();
  void finish_timed_out();
  void finish_cancelled();
  void answer();
  std::optional<te::Response> answer_of(Sequence& sequence);
  void fetch();
  void validate(te::Request const& request) const;
  void add(std::shared_ptr<Shared> const& shared);
  void fail_all(std::string const& error);
  void push(te::Response response);
  void note_stats(bool idle);

  // step.cpp, on the loop's thread: one forward pass.
  void forward();
  void check_adapter(te::Request const& request);
  void schedule();
  void look_up_prefix(Sequence& sequence);
  void compute(Sequence& sequence);
  void set_up_decoder(Sequence& sequence);
  void post_process();
  void sample(Sequence& sequence);
  void end_if_due(Sequence& sequence);
  int64_t blocks(size_t tokens) const;

  Settings settings_;
  te::ExecutorConfig config_;
  std::optional<te::LogitsPostProcessorBatched> post_processor_;
  int32_t max_batch_size_;
  int32_t max_num_tokens_;
  int32_t max_input_len_;
  int64_t max_blocks_;
  bool reuses_blocks_;
  int device_;

  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable answered_;
  std::deque<std::shared_ptr<Shared>> queued_;
  std::set<uint64_t> cancelled_;
  std::vector<te::Response> responses_;
  std::deque<te::IterationStats> stats_;
  bool stop_called_ = false;
  uint64_t next_id_ = 1;

  /// Taken from the queue and not ended, by priority.
  Sequences active_;
  int32_t operating_beam_width_;
  std::deque<uint64_t> lora_cached_;
  KvCache cache_;
  int64_t iteration_ = 0;
  int32_t completed_ = 0;
  int32_t context_tokens_ = 0;
  int32_t reused_blocks_ = 0;
  int32_t missed_blocks_ = 0;
  te::StreamPtr stream_;
  std::vector<std::chrono::nanoseconds> post_processor_times_;
  std::thread thread_;
};

}  // namespace standin
