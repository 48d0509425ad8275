// Stand-in: the types of tensorrt_llm::executor that llgtrt uses, with the names and numbers of the real ones.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace tensorrt_llm::runtime {
class CudaStream;
}

namespace tensorrt_llm::executor {

class Tensor;

using SizeType32 = std::int32_t;
using FloatType = float;
using TokenIdType = std::int32_t;
using VecTokens = std::vector<TokenIdType>;
using BeamTokens = std::vector<VecTokens>;
using IdType = std::uint64_t;
using VecTokenExtraIds = std::vector<IdType>;
using IterationType = std::uint64_t;
using RandomSeedType = std::uint64_t;
using CacheSaltIDType = std::uint64_t;
using PriorityType = float;
using MillisecondsType = std::chrono::milliseconds;
using VecLogProbs = std::vector<FloatType>;
using MedusaChoices = std::vector<std::vector<SizeType32>>;
using EagleChoices = std::vector<std::vector<SizeType32>>;
using StreamPtr = std::shared_ptr<runtime::CudaStream>;
using LogitsPostProcessor =
    std::function<void(IdType, Tensor&, BeamTokens const&, StreamPtr const&, std::optional<IdType>)>;
using LogitsPostProcessorMap = std::unordered_map<std::string, LogitsPostProcessor>;
using LogitsPostProcessorBatched =
    std::function<void(std::vector<IdType> const&, std::vector<Tensor>&,
                       std::vector<std::reference_wrapper<BeamTokens const>> const&, StreamPtr const&,
                       std::vector<std::optional<IdType>> const&)>;

enum class DataType { kBOOL, kUINT8, kINT8, kINT32, kINT64, kBF16, kFP8, kFP16, kFP32, kUNKNOWN };
enum class MemoryType { kCPU, kCPU_PINNED, kCPU_PINNEDPOOL, kGPU, kUVM, kUNKNOWN };
enum class ModelType { kDECODER_ONLY = 0, kENCODER_ONLY = 1, kENCODER_DECODER = 2 };
enum class BatchingType { kSTATIC = 0, kINFLIGHT = 1 };
enum class CapacitySchedulerPolicy { kMAX_UTILIZATION = 0, kGUARANTEED_NO_EVICT = 1, kSTATIC_BATCH = 2 };
enum class ContextChunkingPolicy { kFIRST_COME_FIRST_SERVED = 0, kEQUAL_PROGRESS = 1 };
enum class RequestType {
  REQUEST_TYPE_CONTEXT_AND_GENERATION = 0,
  REQUEST_TYPE_CONTEXT_ONLY = 1,
  REQUEST_TYPE_GENERATION_ONLY = 2
};
enum class CommunicationType { kMPI = 0 };
enum class CommunicationMode { kLEADER, kORCHESTRATOR };
enum class KvCacheTransferMode { DRAM = 0 };
enum class FinishReason { kNOT_FINISHED = 0, kEND_ID = 1, kSTOP_WORDS = 2, kLENGTH = 3, kTIMED_OUT = 4, kCANCELLED = 5 };

/// Which decoder; only told apart here.
class DecodingMode {
 public:
  static constexpr DecodingMode Auto() { return DecodingMode(0); }
  static constexpr DecodingMode TopK() { return DecodingMode(1); }
  static constexpr DecodingMode TopP() { return DecodingMode(2); }
  static constexpr DecodingMode TopKTopP() { return DecodingMode(3); }
  static constexpr DecodingMode BeamSearch() { return DecodingMode(4); }
  static constexpr DecodingMode Medusa() { return DecodingMode(5); }
  static constexpr DecodingMode Lookahead() { return DecodingMode(6); }
  static constexpr DecodingMode ExplicitDraftTokens() { return DecodingMode(7); }
  static constexpr DecodingMode Eagle() { return DecodingMode(8); }
  constexpr bool operator==(DecodingMode other) const { return state_ == other.state_; }

 private:
  explicit constexpr DecodingMode(std::uint32_t state) : state_(state) {}
  std::uint32_t state_;
};

struct KvCacheStats {
  SizeType32 maxNumBlocks;
  SizeType32 freeNumBlocks;
  SizeType32 usedNumBlocks;
  SizeType32 tokensPerBlock;
  SizeType32 allocTotalBlocks;
  SizeType32 allocNewBlocks;
  SizeType32 reusedBlocks;
  SizeType32 missedBlocks;
  float cacheHitRate;
};

struct InflightBatchingStats {
  SizeType32 numScheduledRequests;
  SizeType32 numContextRequests;
  SizeType32 numGenRequests;
  SizeType32 numPausedRequests;
  SizeType32 numCtxTokens;
  SizeType32 microBatchId;
  float avgNumDecodedTokensPerIter;
};

struct IterationStats {
  std::string timestamp;
  IterationType iter;
  double iterLatencyMS;
  double newActiveRequestsQueueLatencyMS;
  SizeType32 numNewActiveRequests;
  SizeType32 numActiveRequests;
  SizeType32 numQueuedRequests;
  SizeType32 numCompletedRequests;
  SizeType32 maxNumActiveRequests;
  std::size_t gpuMemUsage;
  std::size_t cpuMemUsage;
  std::size_t pinnedMemUsage;
  std::optional<KvCacheStats> kvCacheStats;
  std::optional<KvCacheStats> crossKvCacheStats;
  std::optional<InflightBatchingStats> inflightBatchingStats;
};

struct RequestPerfMetrics {
  struct KvCacheMetrics {
    SizeType32 numTotalAllocatedBlocks{0};
    SizeType32 numNewAllocatedBlocks{0};
    SizeType32 numReusedBlocks{0};
    SizeType32 numMissedBlocks{0};
  };
  KvCacheMetrics kvCacheMetrics;
};

}  // namespace tensorrt_llm::executor
