#include <stdexcept>

#include "tensorrt_llm/executor/executor.h"

namespace tensorrt_llm::executor {
namespace {

void check(bool holds, char const* what) {
  if (!holds) throw std::runtime_error(std::string("[TensorRT-LLM][ERROR] Assertion failed: ") + what);
}

}  // namespace

KvCacheConfig::KvCacheConfig(bool enableBlockReuse, std::optional<SizeType32> const& maxTokens,
                             std::optional<std::vector<SizeType32>> const& maxAttentionWindowVec,
                             std::optional<SizeType32> const& sinkTokenLength,
                             std::optional<FloatType> const& freeGpuMemoryFraction,
                             std::optional<size_t> const& hostCacheSize, bool onboardBlocks,
                             std::optional<FloatType> const& crossKvCacheFraction,
                             std::optional<RetentionPriority> secondaryOffloadMinPriority, size_t eventBufferMaxSize)
    : mEnableBlockReuse(enableBlockReuse),
      mMaxTokens(maxTokens),
      mMaxAttentionWindowVec(maxAttentionWindowVec),
      mSinkTokenLength(sinkTokenLength),
      mFreeGpuMemoryFraction(freeGpuMemoryFraction),
      mHostCacheSize(hostCacheSize),
      mOnboardBlocks(onboardBlocks),
      mCrossKvCacheFraction(crossKvCacheFraction),
      mSecondaryOffloadMinPriority(secondaryOffloadMinPriority),
      mEventBufferMaxSize(eventBufferMaxSize) {
  check(!maxTokens || *maxTokens > 0, "maxTokens > 0");
  for (auto const window : maxAttentionWindowVec.value_or(std::vector<SizeType32>{}))
    check(window > 0, "maxAttentionWindow > 0");
  check(!sinkTokenLength || *sinkTokenLength > 0, "sinkTokenLength > 0");
  auto const is_fraction = [](std::optional<FloatType> const& value) { return !value || (*value > 0.F && *value < 1.F); };
  check(is_fraction(freeGpuMemoryFraction), "freeGpuMemoryFraction > 0.F && freeGpuMemoryFraction < 1.F");
  check(is_fraction(crossKvCacheFraction), "crossKvCacheFraction > 0.F && crossKvCacheFraction < 1.F");
}

void CacheTransceiverConfig::setKvTransferTimeoutMs(std::optional<int> milliseconds) {
  if (milliseconds && *milliseconds <= 0) throw std::runtime_error("kvTransferTimeoutMs must be positive");
  timeout_ = milliseconds;
}

void CacheTransceiverConfig::setKvTransferSenderFutureTimeoutMs(std::optional<int> milliseconds) {
  if (milliseconds && *milliseconds <= 0) throw std::runtime_error("kvTransferSenderFutureTimeoutMs must be positive");
  sender_timeout_ = milliseconds;
}

}  // namespace tensorrt_llm::executor
