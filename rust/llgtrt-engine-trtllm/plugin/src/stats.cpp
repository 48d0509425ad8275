#include "stats.h"

#include <algorithm>

namespace llgtrt {

Stats::Stats() { plain_.struct_size = sizeof(plain_); }

void Stats::update(te::Executor& executor) {
  auto const iterations = executor.getLatestIterationStats();
  recent_.clear();
  for (auto const& iteration : iterations) add(iteration);
  plain_.recent = recent_.data();
  plain_.recent_count = recent_.size();
  if (!iterations.empty()) json_ = te::JsonSerialization::toJsonStr(iterations.back());
}

void Stats::add(te::IterationStats const& iteration) {
  // The executor's own counter: iterations that it had to forget are counted too, and what it says once more when the last
  // request has ended is not.
  bool const more = static_cast<uint64_t>(iteration.iter) > plain_.iterations;
  plain_.iterations = std::max(plain_.iterations, static_cast<uint64_t>(iteration.iter));
  plain_.iteration_ms = iteration.iterLatencyMS;
  plain_.active_requests = iteration.numActiveRequests;
  plain_.queued_requests = iteration.numQueuedRequests;
  plain_.max_active_requests = iteration.maxNumActiveRequests;
  plain_.gpu_bytes = iteration.gpuMemUsage;
  plain_.cpu_bytes = iteration.cpuMemUsage;
  plain_.pinned_bytes = iteration.pinnedMemUsage;
  if (iteration.inflightBatchingStats) {
    auto const& batch = *iteration.inflightBatchingStats;
    plain_.scheduled_requests = batch.numScheduledRequests;
    plain_.context_requests = batch.numContextRequests;
    plain_.generation_requests = batch.numGenRequests;
    plain_.paused_requests = batch.numPausedRequests;
    plain_.context_tokens = batch.numCtxTokens;
    plain_.micro_batch_id = batch.microBatchId;
    if (more)
      recent_.push_back({sizeof(llgtrt_trtllm_iteration), iteration.iterLatencyMS, batch.numContextRequests,
                         batch.numCtxTokens, batch.numGenRequests});
  }
  if (iteration.kvCacheStats) {
    auto const& cache = *iteration.kvCacheStats;
    plain_.kv_blocks_max = cache.maxNumBlocks;
    plain_.kv_blocks_used = cache.usedNumBlocks;
    plain_.kv_blocks_free = cache.freeNumBlocks;
    plain_.kv_tokens_per_block = cache.tokensPerBlock;
    plain_.kv_blocks_reused = static_cast<uint64_t>(std::max(cache.reusedBlocks, 0));
    plain_.kv_blocks_missed = static_cast<uint64_t>(std::max(cache.missedBlocks, 0));
  }
}

}  // namespace llgtrt
