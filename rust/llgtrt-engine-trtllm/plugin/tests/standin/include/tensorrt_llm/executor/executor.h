// Stand-in for TensorRT-LLM's executor API: as much of it as llgtrt uses, written for llgtrt's tests. Names, argument
// orders and defaults are those of the 1.2 line (cpp/include/tensorrt_llm/executor/executor.h); the code behind them is
// in ../../../src.
#pragma once

#include <chrono>
#include <deque>
#include <filesystem>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "tensorrt_llm/executor/tensor.h"
#include "tensorrt_llm/executor/types.h"

namespace standin {
class KvCache;
}

namespace tensorrt_llm::runtime {

// runtime/common.h
struct UniqueToken {
  executor::TokenIdType tokenId;
  std::uint64_t tokenExtraId;
};
using VecUniqueTokens = std::vector<UniqueToken>;
using LoraTaskIdType = std::uint64_t;

}  // namespace tensorrt_llm::runtime

namespace tensorrt_llm::executor {

char const* version() noexcept;

// A value with the getter and the setter that the real class has.
#define STANDIN_OPTIONAL(Type, Name)                                           \
 public:                                                                       \
  std::optional<Type> get##Name() const { return m##Name; }                    \
  void set##Name(std::optional<Type> const& value) { m##Name = value; }        \
                                                                               \
 private:                                                                      \
  std::optional<Type> m##Name

#define STANDIN_SETTER(Type, Name)                                             \
 public:                                                                       \
  std::optional<Type> get##Name() const { return m##Name; }                    \
  void set##Name(Type const& value) { m##Name = value; }                       \
                                                                               \
 private:                                                                      \
  std::optional<Type> m##Name

#define STANDIN_VALUE(Type, Name, initial)                                     \
 public:                                                                       \
  Type get##Name() const { return m##Name; }                                   \
  void set##Name(Type const& value) { m##Name = value; }                       \
                                                                               \
 private:                                                                      \
  Type m##Name = initial

class SamplingConfig {
 public:
  explicit SamplingConfig(SizeType32 beamWidth = 1) : mBeamWidth(beamWidth) {}

  STANDIN_VALUE(SizeType32, BeamWidth, 1);
  STANDIN_OPTIONAL(SizeType32, TopK);
  STANDIN_OPTIONAL(FloatType, TopP);
  STANDIN_OPTIONAL(FloatType, TopPMin);
  STANDIN_OPTIONAL(TokenIdType, TopPResetIds);
  STANDIN_OPTIONAL(FloatType, TopPDecay);
  STANDIN_OPTIONAL(RandomSeedType, Seed);
  STANDIN_OPTIONAL(FloatType, Temperature);
  STANDIN_OPTIONAL(SizeType32, MinTokens);
  STANDIN_OPTIONAL(FloatType, BeamSearchDiversityRate);
  STANDIN_OPTIONAL(FloatType, RepetitionPenalty);
  STANDIN_OPTIONAL(FloatType, PresencePenalty);
  STANDIN_OPTIONAL(FloatType, FrequencyPenalty);
  STANDIN_OPTIONAL(FloatType, LengthPenalty);
  STANDIN_OPTIONAL(SizeType32, EarlyStopping);
  STANDIN_OPTIONAL(SizeType32, NoRepeatNgramSize);
  STANDIN_OPTIONAL(SizeType32, NumReturnSequences);
  STANDIN_OPTIONAL(FloatType, MinP);
};

class OutputConfig {
 public:
  explicit OutputConfig(bool returnLogProbs = false, bool returnContextLogits = false,
                        bool returnGenerationLogits = false, bool excludeInputFromOutput = false,
                        bool returnEncoderOutput = false, bool returnPerfMetrics = false)
      : returnLogProbs(returnLogProbs),
        returnContextLogits(returnContextLogits),
        returnGenerationLogits(returnGenerationLogits),
        excludeInputFromOutput(excludeInputFromOutput),
        returnEncoderOutput(returnEncoderOutput),
        returnPerfMetrics(returnPerfMetrics) {}

  bool returnLogProbs;
  bool returnContextLogits;
  bool returnGenerationLogits;
  bool excludeInputFromOutput;
  bool returnEncoderOutput;
  bool returnPerfMetrics;
};

class PromptTuningConfig {
 public:
  explicit PromptTuningConfig(Tensor table, std::optional<VecTokenExtraIds> extraIds = std::nullopt)
      : table_(std::move(table)), extra_ids_(std::move(extraIds)) {}
  Tensor getEmbeddingTable() const { return table_; }
  std::optional<VecTokenExtraIds> getInputTokenExtraIds() const { return extra_ids_; }

 private:
  Tensor table_;
  std::optional<VecTokenExtraIds> extra_ids_;
};

class MropeConfig {
 public:
  explicit MropeConfig(Tensor rotary, SizeType32 deltas) : rotary_(std::move(rotary)), deltas_(deltas) {}
  Tensor getMRopeRotaryCosSin() const { return rotary_; }
  SizeType32 getMRopePositionDeltas() const { return deltas_; }

 private:
  Tensor rotary_;
  SizeType32 deltas_;
};

class LoraConfig {
 public:
  explicit LoraConfig(IdType taskId, std::optional<Tensor> weights = std::nullopt,
                      std::optional<Tensor> config = std::nullopt)
      : task_id_(taskId), weights_(std::move(weights)), config_(std::move(config)) {}
  IdType getTaskId() const { return task_id_; }
  std::optional<Tensor> getWeights() const { return weights_; }
  std::optional<Tensor> getConfig() const { return config_; }

 private:
  IdType task_id_;
  std::optional<Tensor> weights_;
  std::optional<Tensor> config_;
};

struct LookaheadDecodingConfig {
  explicit LookaheadDecodingConfig() : LookaheadDecodingConfig(4, 3, 4) {}
  LookaheadDecodingConfig(SizeType32 window, SizeType32 ngram, SizeType32 verification)
      : window(window), ngram(ngram), verification(verification) {}
  SizeType32 window;
  SizeType32 ngram;
  SizeType32 verification;
};

struct EagleConfig {
  explicit EagleConfig(std::optional<EagleChoices> choices = std::nullopt, bool greedySampling = true,
                       std::optional<float> posteriorThreshold = std::nullopt, bool useDynamicTree = false,
                       std::optional<SizeType32> dynamicTreeMaxTopK = std::nullopt)
      : choices(std::move(choices)),
        greedy(greedySampling),
        threshold(posteriorThreshold),
        dynamic(useDynamicTree),
        max_top_k(dynamicTreeMaxTopK) {}
  std::optional<EagleChoices> choices;
  bool greedy;
  std::optional<float> threshold;
  bool dynamic;
  std::optional<SizeType32> max_top_k;
};

using RetentionPriority = SizeType32;

class KvCacheRetentionConfig {
 public:
  static constexpr RetentionPriority kDefaultRetentionPriority = 35;

  struct TokenRangeRetentionConfig {
    explicit TokenRangeRetentionConfig(SizeType32 tokenStart, std::optional<SizeType32> tokenEnd = std::nullopt,
                                       RetentionPriority priority = kDefaultRetentionPriority,
                                       std::optional<std::chrono::milliseconds> durationMs = std::nullopt)
        : tokenStart(tokenStart), tokenEnd(tokenEnd), priority(priority), durationMs(durationMs) {}
    SizeType32 tokenStart;
    std::optional<SizeType32> tokenEnd;
    RetentionPriority priority;
    std::optional<std::chrono::milliseconds> durationMs;
  };

  explicit KvCacheRetentionConfig(std::vector<TokenRangeRetentionConfig> const& ranges,
                                  RetentionPriority decodePriority = kDefaultRetentionPriority,
                                  std::optional<std::chrono::milliseconds> decodeDurationMs = std::nullopt,
                                  KvCacheTransferMode transferMode = KvCacheTransferMode::DRAM,
                                  std::string const& directory = "")
      : ranges_(ranges),
        decode_priority_(decodePriority),
        decode_duration_(decodeDurationMs),
        transfer_mode_(transferMode),
        directory_(directory) {}
  std::vector<TokenRangeRetentionConfig> getTokenRangeRetentionConfigs() const { return ranges_; }
  RetentionPriority getDecodeRetentionPriority() const { return decode_priority_; }

 private:
  std::vector<TokenRangeRetentionConfig> ranges_;
  RetentionPriority decode_priority_;
  std::optional<std::chrono::milliseconds> decode_duration_;
  KvCacheTransferMode transfer_mode_;
  std::string directory_;
};

// The real state is the addresses of the sender and the layout of its cache, as executor::Serialization writes them; that
// here is checked by whoever gets it.
class ContextPhaseParams {
 public:
  using RequestIdType = std::uint64_t;

  ContextPhaseParams(VecTokens firstGenTokens, RequestIdType reqId, std::vector<char> const& serializedState,
                     std::optional<VecTokens> draftTokens)
      : request_id_(reqId),
        first_(std::move(firstGenTokens)),
        state_(serializedState),
        drafts_(std::move(draftTokens)) {}
  [[nodiscard]] VecTokens const& getFirstGenTokens() const& noexcept { return first_; }
  [[nodiscard]] std::optional<VecTokens> const& getDraftTokens() const& noexcept { return drafts_; }
  [[nodiscard]] RequestIdType getReqId() const noexcept { return request_id_; }
  [[nodiscard]] std::vector<char> getSerializedState() const noexcept { return state_; }

 private:
  RequestIdType request_id_;
  VecTokens first_;
  std::vector<char> state_;
  std::optional<VecTokens> drafts_;
};

class Request {
 public:
  static constexpr PriorityType kDefaultPriority = 0.5F;
  static auto constexpr kBatchedPostProcessorName = "batched";

  Request(VecTokens inputTokenIds, SizeType32 maxTokens, bool streaming = false,
          SamplingConfig const& samplingConfig = SamplingConfig(), OutputConfig const& outputConfig = OutputConfig())
      : mInputTokenIds(std::move(inputTokenIds)),
        mMaxTokens(maxTokens),
        mStreaming(streaming),
        mSamplingConfig(samplingConfig),
        mOutputConfig(outputConfig) {}

  STANDIN_VALUE(VecTokens, InputTokenIds, {});
  STANDIN_VALUE(SizeType32, MaxTokens, 0);
  STANDIN_VALUE(bool, Streaming, false);
  STANDIN_VALUE(SamplingConfig, SamplingConfig, SamplingConfig());
  STANDIN_VALUE(OutputConfig, OutputConfig, OutputConfig());
  STANDIN_SETTER(SizeType32, EndId);
  STANDIN_SETTER(SizeType32, PadId);
  STANDIN_SETTER(std::vector<SizeType32>, PositionIds);
  STANDIN_SETTER(std::list<VecTokens>, BadWords);
  STANDIN_SETTER(std::list<VecTokens>, StopWords);
  STANDIN_SETTER(Tensor, EmbeddingBias);
  STANDIN_SETTER(PromptTuningConfig, PromptTuningConfig);
  STANDIN_SETTER(MropeConfig, MropeConfig);
  STANDIN_SETTER(LoraConfig, LoraConfig);
  STANDIN_SETTER(LookaheadDecodingConfig, LookaheadConfig);
  STANDIN_SETTER(KvCacheRetentionConfig, KvCacheRetentionConfig);
  STANDIN_SETTER(std::string, LogitsPostProcessorName);
  STANDIN_SETTER(VecTokens, EncoderInputTokenIds);
  STANDIN_SETTER(IdType, ClientId);
  STANDIN_VALUE(PriorityType, Priority, kDefaultPriority);
  STANDIN_SETTER(Tensor, EncoderInputFeatures);
  STANDIN_SETTER(SizeType32, EncoderOutputLength);
  STANDIN_SETTER(Tensor, CrossAttentionMask);
  STANDIN_SETTER(Tensor, SkipCrossAttnBlocks);
  STANDIN_SETTER(MillisecondsType, AllottedTimeMs);
  STANDIN_SETTER(CacheSaltIDType, CacheSaltID);
  STANDIN_SETTER(ContextPhaseParams, ContextPhaseParams);
  STANDIN_VALUE(RequestType, RequestType, RequestType::REQUEST_TYPE_CONTEXT_AND_GENERATION);
};

struct Result {
  bool isFinal = false;
  BeamTokens outputTokenIds;
  std::optional<VecLogProbs> cumLogProbs;
  std::optional<std::vector<VecLogProbs>> logProbs;
  std::optional<Tensor> contextLogits;
  std::optional<Tensor> generationLogits;
  std::vector<FinishReason> finishReasons;
  SizeType32 decodingIter = 0;
  SizeType32 sequenceIndex = 0;
  bool isSequenceFinal = false;
  std::optional<RequestPerfMetrics> requestPerfMetrics;
  std::optional<ContextPhaseParams> contextPhaseParams;
};

class Response {
 public:
  Response(IdType requestId, std::string errorMsg, std::optional<IdType> clientId = std::nullopt)
      : request_id_(requestId), client_id_(clientId), error_(std::move(errorMsg)) {}
  Response(IdType requestId, Result result, std::optional<IdType> clientId = std::nullopt)
      : request_id_(requestId), client_id_(clientId), result_(std::move(result)) {}

  IdType getRequestId() const { return request_id_; }
  std::optional<IdType> getClientId() const { return client_id_; }
  bool hasError() const { return error_.has_value(); }
  std::string const& getErrorMsg() const { return error_.value(); }
  Result const& getResult() const { return result_.value(); }

 private:
  IdType request_id_;
  std::optional<IdType> client_id_;
  std::optional<std::string> error_;
  std::optional<Result> result_;
};

class DynamicBatchConfig {
 public:
  explicit DynamicBatchConfig(bool batchSize = false, bool maxNumTokens = false, SizeType32 window = 128)
      : batch_size_(batchSize), max_num_tokens_(maxNumTokens), window_(window) {}
  bool getEnableBatchSizeTuning() const { return batch_size_; }
  bool getEnableMaxNumTokensTuning() const { return max_num_tokens_; }
  SizeType32 getDynamicBatchMovingAverageWindow() const { return window_; }

 private:
  bool batch_size_;
  bool max_num_tokens_;
  SizeType32 window_;
};

class SchedulerConfig {
 public:
  explicit SchedulerConfig(CapacitySchedulerPolicy policy = CapacitySchedulerPolicy::kGUARANTEED_NO_EVICT,
                           std::optional<ContextChunkingPolicy> chunking = std::nullopt,
                           std::optional<DynamicBatchConfig> dynamic = std::nullopt)
      : policy_(policy), chunking_(chunking), dynamic_(dynamic) {}
  CapacitySchedulerPolicy getCapacitySchedulerPolicy() const { return policy_; }
  std::optional<ContextChunkingPolicy> getContextChunkingPolicy() const { return chunking_; }
  std::optional<DynamicBatchConfig> getDynamicBatchConfig() const { return dynamic_; }

 private:
  CapacitySchedulerPolicy policy_;
  std::optional<ContextChunkingPolicy> chunking_;
  std::optional<DynamicBatchConfig> dynamic_;
};

// The checks are those of cpp/tensorrt_llm/executor/kvCacheConfig.cpp (05843b0), TLLM_CHECK each: bare assertions.
class KvCacheConfig {
 public:
  explicit KvCacheConfig(bool enableBlockReuse = true, std::optional<SizeType32> const& maxTokens = std::nullopt,
                         std::optional<std::vector<SizeType32>> const& maxAttentionWindowVec = std::nullopt,
                         std::optional<SizeType32> const& sinkTokenLength = std::nullopt,
                         std::optional<FloatType> const& freeGpuMemoryFraction = std::nullopt,
                         std::optional<size_t> const& hostCacheSize = std::nullopt, bool onboardBlocks = true,
                         std::optional<FloatType> const& crossKvCacheFraction = std::nullopt,
                         std::optional<RetentionPriority> secondaryOffloadMinPriority = std::nullopt,
                         size_t eventBufferMaxSize = 0);

  STANDIN_VALUE(bool, EnableBlockReuse, true);
  STANDIN_OPTIONAL(SizeType32, MaxTokens);
  STANDIN_OPTIONAL(std::vector<SizeType32>, MaxAttentionWindowVec);
  STANDIN_OPTIONAL(SizeType32, SinkTokenLength);
  STANDIN_OPTIONAL(FloatType, FreeGpuMemoryFraction);
  STANDIN_OPTIONAL(size_t, HostCacheSize);
  STANDIN_VALUE(bool, OnboardBlocks, true);
  STANDIN_OPTIONAL(FloatType, CrossKvCacheFraction);
  STANDIN_OPTIONAL(RetentionPriority, SecondaryOffloadMinPriority);
  STANDIN_VALUE(size_t, EventBufferMaxSize, 0);
};

class ExtendedRuntimePerfKnobConfig {
 public:
  explicit ExtendedRuntimePerfKnobConfig(bool multiBlockMode = true, bool contextFMHAFP32Acc = false,
                                         bool cudaGraphMode = false, SizeType32 cudaGraphCacheSize = 0)
      : mMultiBlockMode(multiBlockMode),
        mEnableContextFMHAFP32Acc(contextFMHAFP32Acc),
        mCudaGraphMode(cudaGraphMode),
        mCudaGraphCacheSize(cudaGraphCacheSize) {}

  STANDIN_VALUE(bool, MultiBlockMode, true);
  STANDIN_VALUE(bool, EnableContextFMHAFP32Acc, false);
  STANDIN_VALUE(bool, CudaGraphMode, false);
  STANDIN_VALUE(SizeType32, CudaGraphCacheSize, 0);
};

class ParallelConfig {
 public:
  explicit ParallelConfig(CommunicationType type = CommunicationType::kMPI,
                          CommunicationMode mode = CommunicationMode::kLEADER)
      : type_(type), mode_(mode) {}
  CommunicationType getCommunicationType() const { return type_; }
  CommunicationMode getCommunicationMode() const { return mode_; }

  STANDIN_SETTER(std::vector<SizeType32>, DeviceIds);

 private:
  CommunicationType type_;
  CommunicationMode mode_;
};

class PeftCacheConfig {
 public:
  static constexpr SizeType32 kDefaultOptimalAdapterSize = 8;
  static constexpr SizeType32 kDefaultMaxAdapterSize = 64;
  static constexpr SizeType32 kDefaultMaxPagesPerBlockHost = 24;
  static constexpr SizeType32 kDefaultMaxPagesPerBlockDevice = 8;

  explicit PeftCacheConfig(SizeType32 /*numHostModuleLayer*/ = 0, SizeType32 /*numDeviceModuleLayer*/ = 0,
                           SizeType32 optimalAdapterSize = kDefaultOptimalAdapterSize,
                           SizeType32 maxAdapterSize = kDefaultMaxAdapterSize, SizeType32 /*numPutWorkers*/ = 1,
                           SizeType32 /*numEnsureWorkers*/ = 1, SizeType32 /*numCopyStreams*/ = 1,
                           SizeType32 /*maxPagesPerBlockHost*/ = kDefaultMaxPagesPerBlockHost,
                           SizeType32 /*maxPagesPerBlockDevice*/ = kDefaultMaxPagesPerBlockDevice,
                           std::optional<float> const& deviceCachePercent = std::nullopt,
                           std::optional<size_t> const& hostCacheSize = std::nullopt,
                           std::optional<std::string> const& loraPrefetchDir = std::nullopt)
      : optimal_(optimalAdapterSize),
        max_(maxAdapterSize),
        device_(deviceCachePercent),
        host_(hostCacheSize),
        prefetch_(loraPrefetchDir) {}
  SizeType32 getOptimalAdapterSize() const { return optimal_; }
  SizeType32 getMaxAdapterSize() const { return max_; }
  std::optional<float> getDeviceCachePercent() const { return device_; }
  std::optional<size_t> getHostCacheSize() const { return host_; }
  std::optional<std::string> getLoraPrefetchDir() const { return prefetch_; }

 private:
  SizeType32 optimal_;
  SizeType32 max_;
  std::optional<float> device_;
  std::optional<size_t> host_;
  std::optional<std::string> prefetch_;
};

class DecodingConfig {
 public:
  explicit DecodingConfig(std::optional<DecodingMode> mode = std::nullopt,
                          std::optional<LookaheadDecodingConfig> lookahead = std::nullopt,
                          std::optional<MedusaChoices> medusa = std::nullopt,
                          std::optional<EagleConfig> eagle = std::nullopt)
      : mode_(mode), lookahead_(lookahead), medusa_(std::move(medusa)), eagle_(std::move(eagle)) {}
  std::optional<DecodingMode> getDecodingMode() const { return mode_; }
  std::optional<LookaheadDecodingConfig> getLookaheadDecodingConfig() const { return lookahead_; }
  std::optional<MedusaChoices> getMedusaChoices() const { return medusa_; }
  std::optional<EagleConfig> getEagleConfig() const { return eagle_; }

 private:
  std::optional<DecodingMode> mode_;
  std::optional<LookaheadDecodingConfig> lookahead_;
  std::optional<MedusaChoices> medusa_;
  std::optional<EagleConfig> eagle_;
};

class LogitsPostProcessorConfig {
 public:
  explicit LogitsPostProcessorConfig(std::optional<LogitsPostProcessorMap> map = std::nullopt,
                                     std::optional<LogitsPostProcessorBatched> batched = std::nullopt,
                                     bool replicate = true)
      : map_(std::move(map)), batched_(std::move(batched)), replicate_(replicate) {}
  void setProcessorBatched(LogitsPostProcessorBatched const& batched) { batched_ = batched; }
  void setReplicate(bool replicate) { replicate_ = replicate; }
  std::optional<LogitsPostProcessorBatched> getProcessorBatched() const { return batched_; }
  bool getReplicate() const { return replicate_; }

 private:
  std::optional<LogitsPostProcessorMap> map_;
  std::optional<LogitsPostProcessorBatched> batched_;
  bool replicate_;
};

// cpp/tensorrt_llm/executor/cacheTransceiverConfig.cpp: time limits have to be positive.
class CacheTransceiverConfig {
 public:
  enum class BackendType : std::uint8_t { DEFAULT = 0, MPI = 1, UCX = 2, NIXL = 3 };
  explicit CacheTransceiverConfig(std::optional<BackendType> backendType = std::nullopt,
                                  std::optional<size_t> maxNumTokens = std::nullopt,
                                  std::optional<int> kvTransferTimeoutMs = std::nullopt)
      : mBackendType(backendType), mMaxTokensInBuffer(maxNumTokens), timeout_(kvTransferTimeoutMs) {}

  STANDIN_OPTIONAL(BackendType, BackendType);
  STANDIN_OPTIONAL(size_t, MaxTokensInBuffer);

 public:
  void setKvTransferTimeoutMs(std::optional<int> milliseconds);
  [[nodiscard]] std::optional<int> getKvTransferTimeoutMs() const { return timeout_; }
  void setKvTransferSenderFutureTimeoutMs(std::optional<int> milliseconds);
  [[nodiscard]] std::optional<int> getKvTransferSenderFutureTimeoutMs() const { return sender_timeout_; }

 private:
  std::optional<int> timeout_;
  std::optional<int> sender_timeout_;
};

class ExecutorConfig {
 public:
  explicit ExecutorConfig(SizeType32 maxBeamWidth = 1) : mMaxBeamWidth(maxBeamWidth) {}

  STANDIN_VALUE(SizeType32, MaxBeamWidth, 1);
  STANDIN_VALUE(SchedulerConfig, SchedulerConfig, SchedulerConfig());
  STANDIN_VALUE(KvCacheConfig, KvCacheConfig, KvCacheConfig());
  STANDIN_VALUE(bool, EnableChunkedContext, true);
  STANDIN_VALUE(bool, NormalizeLogProbs, true);
  STANDIN_VALUE(SizeType32, IterStatsMaxIterations, 1000);
  STANDIN_SETTER(SizeType32, MaxBatchSize);
  STANDIN_SETTER(SizeType32, MaxNumTokens);
  STANDIN_OPTIONAL(SizeType32, MaxQueueSize);
  STANDIN_VALUE(float, GpuWeightsPercent, 1.0F);
  STANDIN_VALUE(ExtendedRuntimePerfKnobConfig, ExtendedRuntimePerfKnobConfig, ExtendedRuntimePerfKnobConfig());
  STANDIN_SETTER(ParallelConfig, ParallelConfig);
  STANDIN_SETTER(PeftCacheConfig, PeftCacheConfig);
  STANDIN_SETTER(LogitsPostProcessorConfig, LogitsPostProcessorConfig);
  STANDIN_SETTER(DecodingConfig, DecodingConfig);
  STANDIN_SETTER(CacheTransceiverConfig, CacheTransceiverConfig);
  STANDIN_VALUE(bool, GatherGenerationLogits, false);
  STANDIN_VALUE(bool, FailFastOnAttentionWindowTooLarge, false);
};

// As far as 1.2.1 has them.
struct KVCacheCreatedData {
  std::vector<SizeType32> numBlocksPerCacheLevel;
};

struct KVCacheStoredBlockData {
  IdType blockHash;
  runtime::VecUniqueTokens tokens;
  std::optional<runtime::LoraTaskIdType> loraId;
  SizeType32 cacheLevel;
  SizeType32 priority;
};

struct KVCacheStoredData {
  std::optional<IdType> parentHash;
  std::vector<KVCacheStoredBlockData> blocks;
};

struct KVCacheRemovedData {
  std::vector<IdType> blockHashes;
};

struct KVCacheUpdatedData {
  IdType blockHash;
};

using KVCacheEventData = std::variant<KVCacheCreatedData, KVCacheStoredData, KVCacheRemovedData, KVCacheUpdatedData>;

struct KVCacheEvent {
  IdType eventId;
  KVCacheEventData data;
  SizeType32 windowSize;
  std::optional<SizeType32> attentionDpRank;
};

class KVCacheEventManager {
 public:
  explicit KVCacheEventManager(standin::KvCache& cache) : cache_(cache) {}
  std::deque<KVCacheEvent> getLatestEvents(std::optional<std::chrono::milliseconds> timeout = std::nullopt);

 private:
  standin::KvCache& cache_;
};

class Executor {
 public:
  Executor(std::filesystem::path const& modelPath, ModelType modelType, ExecutorConfig const& config);
  Executor(std::filesystem::path const& encoderModelPath, std::filesystem::path const& decoderModelPath,
           ModelType modelType, ExecutorConfig const& config);
  ~Executor();
  Executor(Executor const&) = delete;
  Executor& operator=(Executor const&) = delete;

  [[nodiscard]] IdType enqueueRequest(Request const& request);
  [[nodiscard]] std::vector<Response> awaitResponses(
      std::optional<std::chrono::milliseconds> const& timeout = std::nullopt);
  void cancelRequest(IdType requestId);
  void shutdown();
  std::deque<IterationStats> getLatestIterationStats();
  [[nodiscard]] bool canEnqueueRequests() const;
  [[nodiscard]] bool isParticipant() const;
  std::optional<std::shared_ptr<KVCacheEventManager>> getKVCacheEventManager() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

class JsonSerialization {
 public:
  [[nodiscard]] static std::string toJsonStr(IterationStats const& stats);
};

#undef STANDIN_OPTIONAL
#undef STANDIN_SETTER
#undef STANDIN_VALUE

}  // namespace tensorrt_llm::executor
