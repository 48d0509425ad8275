/* The C interface between llgtrt and TensorRT-LLM's C++ executor.
 *
 * Plain structs, each with its own size first; nothing is thrown across it. Functions that can fail return a
 * status, and llgtrt_trtllm_last_error() has the text for the calling thread. Enum values are TensorRT-LLM's own
 * numbers where there are such, so that a value added by a later version arrives unchanged.
 *
 * Threads: an engine is created, used and destroyed by one thread. Only the callbacks come from another one, the
 * thread that runs the executor's loop; none is running once llgtrt_trtllm_destroy has returned.
 */
#ifndef LLGTRT_TRTLLM_H
#define LLGTRT_TRTLLM_H

#include <stddef.h>
#include <stdint.h>

#if defined(_WIN32)
#define LLGTRT_EXPORT __declspec(dllexport)
#else
#define LLGTRT_EXPORT __attribute__((visibility("default")))
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Changes with every change of a struct or a function. */
#define LLGTRT_TRTLLM_ABI_VERSION 1u

/* An optional number that is not given. Optional floats that are not given are NaN. */
#define LLGTRT_UNSET INT32_MIN
#define LLGTRT_UNSET_64 INT64_MIN

typedef enum llgtrt_trtllm_status {
  LLGTRT_OK = 0,
  /* An argument is wrong; nothing happened. */
  LLGTRT_INVALID = 1,
  /* The request was refused; the engine goes on. */
  LLGTRT_REFUSED = 2,
  /* The engine is dead, or could not be made. */
  LLGTRT_FATAL = 3
} llgtrt_trtllm_status;

typedef struct llgtrt_trtllm_engine llgtrt_trtllm_engine;

/* Element types, numbered as in tensorrt_llm::executor::DataType. */
typedef enum llgtrt_trtllm_dtype {
  LLGTRT_BOOL = 0,
  LLGTRT_UINT8 = 1,
  LLGTRT_INT8 = 2,
  LLGTRT_INT32 = 3,
  LLGTRT_INT64 = 4,
  LLGTRT_BF16 = 5,
  LLGTRT_FP8 = 6,
  LLGTRT_FP16 = 7,
  LLGTRT_FP32 = 8
} llgtrt_trtllm_dtype;

#define LLGTRT_MAX_RANK 4

/* A row-major tensor in host memory. `data` null: no tensor. */
typedef struct llgtrt_trtllm_tensor {
  size_t struct_size;
  const void* data;
  int32_t dtype;
  int32_t rank;
  int64_t shape[LLGTRT_MAX_RANK];
} llgtrt_trtllm_tensor;

/* Token lists one after the other: list i is ids[ends[i-1]..ends[i]]. */
typedef struct llgtrt_trtllm_lists {
  size_t struct_size;
  const int32_t* ids;
  const size_t* ends;
  size_t count;
} llgtrt_trtllm_lists;

/* ---- the batched logits post-processor ------------------------------------------------------------------- */

/* One row of logits about to be sampled from. Valid during the call. */
typedef struct llgtrt_trtllm_row {
  size_t struct_size;
  /* Of this sequence alone, also where a request has several. */
  uint64_t request_id;
  /* As submitted; shared by the sequences of a request. 0: none was given. */
  uint64_t client_id;
  /* Prompt and generated tokens of the first beam. */
  const int32_t* tokens;
  size_t token_count;
  int32_t beam_width;
  /* Columns of the row, padding included. */
  int32_t columns;
} llgtrt_trtllm_row;

/* What is to be done with a row. Zeroed before the call: nothing. */
typedef struct llgtrt_trtllm_row_plan {
  size_t struct_size;
  /* Logits whose bit is clear become minus infinity. */
  int32_t apply_mask;
  /* Divide by it; 0 leaves the logits alone. */
  float temperature;
  /* After temperature, drop what is less likely than this fraction of the best; 0 is off. */
  float min_p;
  /* Report the probability that the mask removed, of the model's own distribution. */
  int32_t report_removed_mass;
  /* Keep a host copy of the row as the model made it. */
  int32_t keep_logits;
} llgtrt_trtllm_row_plan;

/* Fills row i of `masks` (bit t % 32 of word t / 32 is token t, for the engine's vocabulary) and plans[i]. Returns 0,
 * or anything else if it failed: then no row is changed. Called on the executor's thread, while the GPU still
 * computes the logits. Must not throw or unwind. */
typedef int32_t (*llgtrt_trtllm_fill)(void* user, const llgtrt_trtllm_row* rows, size_t count, uint32_t* masks,
                                      size_t words_per_row, llgtrt_trtllm_row_plan* plans);

typedef struct llgtrt_trtllm_callbacks {
  size_t struct_size;
  void* user;
  llgtrt_trtllm_fill fill;
} llgtrt_trtllm_callbacks;

/* ---- construction ----------------------------------------------------------------------------------------- */

typedef enum llgtrt_trtllm_decoding_mode {
  LLGTRT_DECODING_DEFAULT = 0,
  LLGTRT_DECODING_AUTO = 1,
  LLGTRT_DECODING_TOP_K = 2,
  LLGTRT_DECODING_TOP_P = 3,
  LLGTRT_DECODING_TOP_K_TOP_P = 4,
  LLGTRT_DECODING_BEAM_SEARCH = 5,
  LLGTRT_DECODING_MEDUSA = 6,
  LLGTRT_DECODING_REDRAFTER = 7,
  LLGTRT_DECODING_LOOKAHEAD = 8,
  LLGTRT_DECODING_EAGLE = 9
} llgtrt_trtllm_decoding_mode;

typedef struct llgtrt_trtllm_config {
  size_t struct_size;
  const char* engine_dir;
  /* Of an encoder-decoder model; null otherwise. */
  const char* encoder_dir;
  llgtrt_trtllm_callbacks callbacks;

  /* What engine_dir's config.json says. */
  int32_t vocab_size;
  int32_t logits_dtype;

  /* CapacitySchedulerPolicy and ContextChunkingPolicy. */
  int32_t scheduler_policy;
  int32_t chunking_policy; /* optional */
  int32_t max_beam_width;
  int32_t max_batch_size; /* optional */
  int32_t max_num_tokens; /* optional */
  int32_t max_queue_size; /* optional */
  int32_t enable_chunked_context;
  int32_t normalize_log_probs;
  int32_t enable_batch_size_tuning;
  int32_t enable_max_num_tokens_tuning;
  int32_t tuning_window; /* optional */
  int32_t iter_stats_max_iterations;
  int32_t gather_generation_logits;
  float gpu_weights_percent;

  /* KV cache. */
  int32_t kv_enable_reuse;
  int32_t kv_onboard_blocks;
  int32_t kv_max_tokens; /* optional */
  int32_t kv_sink_token_length; /* optional */
  int32_t kv_secondary_offload_min_priority; /* optional */
  float kv_free_gpu_mem_fraction; /* optional */
  float kv_cross_fraction; /* optional */
  int64_t kv_host_cache_bytes; /* optional */
  int64_t kv_event_buffer_max_size;
  const int32_t* kv_attention_windows;
  size_t kv_attention_window_count;

  /* Performance knobs. */
  int32_t multi_block_mode;
  int32_t context_fmha_fp32_acc;
  int32_t cuda_graph_mode;
  int32_t cuda_graph_cache_size;

  /* Decoding: llgtrt_trtllm_decoding_mode. */
  int32_t decoding_mode;
  int32_t lookahead_window; /* optional: the engine's default */
  int32_t lookahead_ngram;
  int32_t lookahead_verification_set;
  llgtrt_trtllm_lists medusa_choices;
  llgtrt_trtllm_lists eagle_choices;
  int32_t eagle_greedy_sampling;
  int32_t eagle_use_dynamic_tree;
  int32_t eagle_dynamic_tree_max_top_k; /* optional */
  float eagle_posterior_threshold; /* optional */

  /* LoRA weights. */
  int32_t lora_optimal_adapter_size; /* optional */
  int32_t lora_max_adapter_size; /* optional */
  float lora_device_cache_fraction; /* optional */
  int64_t lora_host_cache_bytes; /* optional */
  const char* lora_prefetch_dir; /* optional */

  /* Run the logits post-processor on every tensor-parallel rank instead of the first. */
  int32_t replicate_post_processor;
  const int32_t* device_ids;
  size_t device_id_count;
} llgtrt_trtllm_config;

/* ---- requests --------------------------------------------------------------------------------------------- */

typedef struct llgtrt_trtllm_sampling {
  size_t struct_size;
  int32_t beam_width;
  int32_t num_return_sequences;
  int32_t top_k; /* optional, and so are all that follow */
  float top_p;
  float top_p_min;
  float top_p_decay;
  int32_t top_p_reset_id;
  float temperature;
  float min_p;
  int32_t min_tokens;
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
  float length_penalty;
  float beam_diversity_rate;
  int32_t early_stopping;
  int32_t no_repeat_ngram_size;
  int32_t has_seed;
  uint64_t seed;
} llgtrt_trtllm_sampling;

typedef struct llgtrt_trtllm_bias {
  int32_t token;
  float bias;
} llgtrt_trtllm_bias;

/* How long blocks of the KV cache are kept. Times in ms; negative: without end. */
typedef struct llgtrt_trtllm_retention {
  size_t struct_size;
  int32_t token_start;
  int32_t token_end; /* optional */
  int32_t priority;
  int64_t duration_ms;
} llgtrt_trtllm_retention;

typedef struct llgtrt_trtllm_request {
  size_t struct_size;
  uint64_t client_id;
  const int32_t* tokens;
  size_t token_count;
  int32_t max_tokens;
  int32_t streaming;
  int32_t end_id; /* optional */
  int32_t pad_id; /* optional */
  llgtrt_trtllm_sampling sampling;
  llgtrt_trtllm_lists stop_words;
  llgtrt_trtllm_lists bad_words;
  const llgtrt_trtllm_bias* biases;
  size_t bias_count;
  /* Call the logits post-processor for this request. */
  int32_t post_process;

  int32_t return_log_probs;
  int32_t return_context_logits;
  int32_t return_generation_logits;
  int32_t return_perf_metrics;

  float priority; /* optional, 0 to 1, higher first */
  int64_t allotted_time_ms; /* optional */
  int32_t has_cache_salt;
  uint64_t cache_salt;

  int32_t has_lora;
  uint64_t lora_task;
  llgtrt_trtllm_tensor lora_weights; /* only until the adapter is cached */
  llgtrt_trtllm_tensor lora_config;

  llgtrt_trtllm_tensor prompt_table;
  const uint64_t* prompt_extra_ids;
  size_t prompt_extra_id_count;
  const int32_t* position_ids;
  size_t position_id_count;
  llgtrt_trtllm_tensor mrope_cos_sin;
  int32_t mrope_position_deltas;

  const int32_t* encoder_tokens;
  size_t encoder_token_count;
  llgtrt_trtllm_tensor encoder_features;
  int32_t encoder_output_length; /* optional */
  llgtrt_trtllm_tensor cross_attention_mask;
  llgtrt_trtllm_tensor skip_cross_attention;

  const llgtrt_trtllm_retention* retention;
  size_t retention_count;
  int32_t decode_retention_priority; /* optional */
  int64_t decode_retention_ms; /* negative: without end */

  int32_t lookahead_window; /* optional: as the engine's */
  int32_t lookahead_ngram;
  int32_t lookahead_verification_set;
} llgtrt_trtllm_request;

/* ---- responses -------------------------------------------------------------------------------------------- */

/* One piece of an answer. Pointers are valid until the next await on the engine. */
typedef struct llgtrt_trtllm_response {
  size_t struct_size;
  uint64_t request_id;
  uint64_t client_id; /* 0: none */
  int32_t sequence_index;
  int32_t is_sequence_final;
  int32_t is_final;
  /* tensorrt_llm::executor::FinishReason of the first beam; values not named there may come. */
  int32_t finish_reason;
  /* Null unless the request failed; then nothing else is set but is_final and is_sequence_final. */
  const char* error;
  /* The error says that a LoRA adapter is not in the cache any more. */
  int32_t lora_missing;
  /* New tokens of each beam. */
  llgtrt_trtllm_lists tokens;
  /* Of the first beam's new tokens; null unless asked for. */
  const float* log_probs;
  size_t log_prob_count;
  float cumulative_log_prob; /* NaN unless asked for */
  llgtrt_trtllm_tensor context_logits;
  llgtrt_trtllm_tensor generation_logits;
  /* KV cache blocks of the prompt that were found in the cache; negative if not known. */
  int32_t reused_blocks;
} llgtrt_trtllm_response;

/* What the post-processor measured of a row. Pointers are valid until the next call for a row result. */
typedef struct llgtrt_trtllm_row_result {
  size_t struct_size;
  float removed_mass; /* NaN unless planned */
  llgtrt_trtllm_tensor logits;
} llgtrt_trtllm_row_result;

typedef struct llgtrt_trtllm_stats {
  size_t struct_size;
  uint64_t iterations; /* since start */
  int32_t active_requests;
  int32_t queued_requests;
  int32_t paused_requests;
  int32_t max_active_requests;
  int32_t context_tokens; /* of the last iteration */
  int32_t kv_blocks_max;
  int32_t kv_blocks_used;
  int32_t kv_blocks_free;
  int32_t kv_tokens_per_block;
  uint64_t kv_blocks_reused;
  uint64_t kv_blocks_missed;
  uint64_t gpu_bytes;
  uint64_t cpu_bytes;
  uint64_t pinned_bytes;
  double iteration_ms; /* of the last iteration */
} llgtrt_trtllm_stats;

/* ---- functions -------------------------------------------------------------------------------------------- */

/* LLGTRT_TRTLLM_ABI_VERSION of the plugin. The first call to make. */
LLGTRT_EXPORT uint32_t llgtrt_trtllm_abi_version(void);

/* Version of the TensorRT-LLM that is loaded, such as "1.2.1". */
LLGTRT_EXPORT const char* llgtrt_trtllm_version(void);

/* Text of the calling thread's last failure; never null. */
LLGTRT_EXPORT const char* llgtrt_trtllm_last_error(void);

/* Loads the engine; minutes for a large one. */
LLGTRT_EXPORT llgtrt_trtllm_status llgtrt_trtllm_create(const llgtrt_trtllm_config* config,
                                                        llgtrt_trtllm_engine** engine);

/* Ends every request and frees all. On a worker of a group of processes it blocks until the leader ends. */
LLGTRT_EXPORT void llgtrt_trtllm_destroy(llgtrt_trtllm_engine* engine);

/* Whether this process takes requests; false for the workers of a group. */
LLGTRT_EXPORT int32_t llgtrt_trtllm_is_leader(const llgtrt_trtllm_engine* engine);

/* Everything is copied. `request_id` is written on success. */
LLGTRT_EXPORT llgtrt_trtllm_status llgtrt_trtllm_submit(llgtrt_trtllm_engine* engine,
                                                        const llgtrt_trtllm_request* request, uint64_t* request_id);

/* A request that is unknown or finished is no error. */
LLGTRT_EXPORT llgtrt_trtllm_status llgtrt_trtllm_cancel(llgtrt_trtllm_engine* engine, uint64_t request_id);

/* Blocks until there are responses, at most `timeout_ms`. */
LLGTRT_EXPORT llgtrt_trtllm_status llgtrt_trtllm_await(llgtrt_trtllm_engine* engine, int64_t timeout_ms,
                                                       const llgtrt_trtllm_response** responses, size_t* count);

/* What was measured of the row from which token number `token_count` (counted from 0, prompt included) was
 * sampled. Results of earlier tokens are dropped. LLGTRT_REFUSED: there is none. */
LLGTRT_EXPORT llgtrt_trtllm_status llgtrt_trtllm_row_results(llgtrt_trtllm_engine* engine, uint64_t request_id,
                                                             size_t token_count, llgtrt_trtllm_row_result* result);

/* Drops what is kept for a request. */
LLGTRT_EXPORT void llgtrt_trtllm_forget(llgtrt_trtllm_engine* engine, uint64_t request_id);

LLGTRT_EXPORT llgtrt_trtllm_status llgtrt_trtllm_get_stats(llgtrt_trtllm_engine* engine, llgtrt_trtllm_stats* stats);

/* TensorRT-LLM's own statistics of the last iteration seen by llgtrt_trtllm_get_stats, as JSON. Valid until the
 * next call. */
LLGTRT_EXPORT const char* llgtrt_trtllm_stats_json(llgtrt_trtllm_engine* engine);

#ifdef __cplusplus
}
#endif

#endif
