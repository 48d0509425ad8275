// An executor with everything that belongs to it.
#pragma once

#include <memory>
#include <optional>
#include <unordered_set>

#include "kv_events.h"
#include "post_processor.h"
#include "request.h"
#include "responses.h"
#include "stats.h"

/// What a caller holds: used by one thread at a time. Only `post_processor_` is also called by the executor's.
struct llgtrt_trtllm_engine {
 public:
  explicit llgtrt_trtllm_engine(llgtrt_trtllm_config const& config);
  ~llgtrt_trtllm_engine();
  llgtrt_trtllm_engine(llgtrt_trtllm_engine const&) = delete;
  llgtrt_trtllm_engine& operator=(llgtrt_trtllm_engine const&) = delete;

  bool is_leader() const { return executor_->canEnqueueRequests(); }
  uint64_t submit(llgtrt_trtllm_request const& request);
  void cancel(uint64_t request_id) { executor_->cancelRequest(request_id); }
  std::vector<llgtrt_trtllm_response> const& await(int64_t timeout_ms);
  /// Throws with the reason if the engine cannot go on.
  void check_health() const;
  bool row_result(uint64_t request_id, size_t token_count, llgtrt_trtllm_row_result& result);
  void forget(uint64_t request_id) { post_processor_->results().forget(request_id); }
  llgtrt::Stats const& stats();
  std::string const& stats_json() const { return stats_.json(); }
  /// Null if the executor tells of nothing. Used by a thread of its own.
  llgtrt::KvEvents* kv_events() { return kv_events_->are_told() ? &*kv_events_ : nullptr; }

 private:
  llgtrt::EngineShape shape_{};
  llgtrt::Responses responses_;
  llgtrt::Stats stats_;
  /// Requests whose last response has not come.
  std::unordered_set<uint64_t> live_;
  // Destroyed after the executor, whose thread calls it.
  std::shared_ptr<llgtrt::PostProcessor> post_processor_;
  std::unique_ptr<llgtrt::te::Executor> executor_;
  std::optional<llgtrt::KvEvents> kv_events_;
  /// That the executor took.
  int device_ = 0;
};
