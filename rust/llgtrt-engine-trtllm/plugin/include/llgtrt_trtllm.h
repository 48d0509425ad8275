/* The C interface between llgtrt and TensorRT-LLM's C++ executor.
 *
 * Plain structs, each with its own size first; nothing is thrown across it. Functions that can fail return a
 * status, and llgtrt_trtllm_last_error() has the text for the calling thread. Enum values are TensorRT-LLM's own
 * numbers where there are such, so that a value added by a later version arrives unchanged.
 *
 * Ownership: what a caller passes is the caller's and is copied before the call returns, the callback's `user`
 * excepted, which has to live until llgtrt_trtllm_destroy has returned. What the plugin hands out is the plugin's; each
 * function says until when it is valid.
 *
 * Threads: any thread may call, but only one at a time for an engine, unless a function says otherwise. The callback
 * comes from the thread that runs the executor's loop, at any time between create and destroy; none is running once
 * llgtrt_trtllm_destroy has returned. It must not call any function of an engine.
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
#define LLGTRT_TRTLLM_ABI_VERSION 6u

/* An optional number that is not given. Optional floats that are not given are NaN. */
#define LLGTRT_UNSET INT32_MIN

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

/* Fills row i of `masks` (bit t % 32 of word t / 32 is token t, for the engine's vocabulary) and plans[i]. What was there
 * before means nothing: a row with a mask is written whole, one without need not be. Returns 0, or anything else if it
 * failed: then no logits are changed. Called on the executor's thread, while the GPU still
 * computes the logits. Must not throw or unwind. */
typedef int32_t (*llgtrt_trtllm_fill)(void* user, const llgtrt_trtllm_row* rows, size_t count, uint32_t* masks,
                                      size_t words_per_row, llgtrt_trtllm_row_plan* plans);

typedef struct llgtrt_trtllm_callbacks {
  size_t struct_size;
  void* user;
  llgtrt_trtllm_fill fill;
} llgtrt_trtllm_callbacks;

/* ---- construction ----------------------------------------------------------------------------------------- */

typedef struct llgtrt_trtllm_config {
  size_t struct_size;
  /* A JSON document (UTF-8, ends with a zero byte) with all that an engine is made from:
   *   {"engine_dir": text, "vocab_size": n, "logits_dtype": "float32" | "float16" | "bfloat16", "max_lora_rank": n,
   *    "runtime": {options of that section of llgtrt's configuration},
   *    "trtllm": {options of that section}}
   * Each option by its name in the configuration, and each has to be there; LLGTRT_INVALID names one that is missing or not
   * known. max_lora_rank is 0 for an engine without adapters. */
  const char* settings;
  llgtrt_trtllm_callbacks callbacks;
} llgtrt_trtllm_config;

/* ---- requests --------------------------------------------------------------------------------------------- */

typedef struct llgtrt_trtllm_sampling {
  size_t struct_size;
  int32_t beam_width;
  int32_t top_k; /* optional, and so are all that follow */
  float top_p;
  float top_p_min;
  float top_p_decay;
  int32_t top_p_reset_id;
  float temperature;
  float min_p;
  float repetition_penalty;
  float presence_penalty;
  float frequency_penalty;
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

/* Which part of an answer a request is for, numbered as in tensorrt_llm::executor::RequestType. */
typedef enum llgtrt_trtllm_phase {
  LLGTRT_WHOLE = 0,
  /* The prompt and the first token; the last response has the handover. */
  LLGTRT_CONTEXT_ONLY = 1,
  /* What comes behind that, from the request's handover. The first tokens are in the first response. */
  LLGTRT_GENERATION_ONLY = 2
} llgtrt_trtllm_phase;

/* What the executor of a prompt says to the executor that goes on: tensorrt_llm::executor::ContextPhaseParams. The state is
 * TensorRT-LLM's own serialization, which its code trusts: only what another plugin of the same version and model said may be
 * given back. `state` null: no handover. */
typedef struct llgtrt_trtllm_handover {
  size_t struct_size;
  /* Of the request in the first executor. */
  uint64_t request_id;
  /* One per beam. */
  const int32_t* first_tokens;
  size_t first_token_count;
  const int32_t* draft_tokens;
  size_t draft_token_count;
  const uint8_t* state;
  size_t state_size;
} llgtrt_trtllm_handover;

typedef struct llgtrt_trtllm_request {
  size_t struct_size;
  uint64_t client_id;
  const int32_t* tokens;
  size_t token_count;
  int32_t max_tokens;
  int32_t end_id; /* optional */
  int32_t pad_id; /* optional */
  llgtrt_trtllm_sampling sampling;
  llgtrt_trtllm_lists stop_words;
  llgtrt_trtllm_lists bad_words;
  const llgtrt_trtllm_bias* biases;
  size_t bias_count;
  /* Call the logits post-processor for this request. */
  int32_t post_process;

  int32_t return_context_logits;

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

  int32_t phase; /* llgtrt_trtllm_phase; needs a cache transceiver unless it is LLGTRT_WHOLE */
  llgtrt_trtllm_handover handover; /* of LLGTRT_GENERATION_ONLY */
} llgtrt_trtllm_request;

/* ---- responses -------------------------------------------------------------------------------------------- */

/* What an error means for whoever asked. */
typedef enum llgtrt_trtllm_error_kind {
  LLGTRT_NO_ERROR = 0,
  /* The request failed; ask llgtrt_trtllm_health whether it was the device. */
  LLGTRT_REQUEST_FAILED = 1,
  /* Its LoRA adapter is not in the cache any more: send the weights again. */
  LLGTRT_ADAPTER_MISSING = 2,
  /* Every adapter in the cache is in use: try again later. */
  LLGTRT_ADAPTER_CACHE_FULL = 3
} llgtrt_trtllm_error_kind;

/* One piece of an answer. Pointers are valid until the next await on the engine. */
typedef struct llgtrt_trtllm_response {
  size_t struct_size;
  uint64_t request_id;
  uint64_t client_id; /* 0: none */
  /* The last one of the request. */
  int32_t is_final;
  /* tensorrt_llm::executor::FinishReason of the first beam; values not named there may come. */
  int32_t finish_reason;
  /* llgtrt_trtllm_error_kind. Unless it is LLGTRT_NO_ERROR, `error` has the text and nothing below it is set. */
  int32_t error_kind;
  const char* error;
  /* New tokens of each beam. Several beams come with the last response only, whole. */
  llgtrt_trtllm_lists tokens;
  /* In one response of a request that asked for them, the first; null in all others. */
  llgtrt_trtllm_tensor context_logits;
  /* KV cache blocks of the prompt that were found in the cache; negative if not known. */
  int32_t reused_blocks;
  /* In the last response of a LLGTRT_CONTEXT_ONLY request that is not over with its first token. */
  llgtrt_trtllm_handover handover;
} llgtrt_trtllm_response;

/* What the post-processor measured of a row. Pointers are valid until the next call for a row result. */
typedef struct llgtrt_trtllm_row_result {
  size_t struct_size;
  float removed_mass; /* NaN unless planned */
  llgtrt_trtllm_tensor logits;
} llgtrt_trtllm_row_result;

/* One iteration of the executor. */
typedef struct llgtrt_trtllm_iteration {
  size_t struct_size;
  double milliseconds;
  /* Sequences whose prompt was read, prompt tokens that were, and sequences that generated. */
  int32_t context_requests;
  int32_t context_tokens;
  int32_t generation_requests;
} llgtrt_trtllm_iteration;

typedef struct llgtrt_trtllm_stats {
  size_t struct_size;
  uint64_t iterations; /* since start, by the executor's own counter */
  int32_t active_requests;
  int32_t queued_requests;
  int32_t paused_requests;
  int32_t max_active_requests;
  /* Of the last iteration: sequences that took part, those whose prompt was read, those that generated; prompt tokens; which
   * of the batches that take turns it was. */
  int32_t scheduled_requests;
  int32_t context_requests;
  int32_t generation_requests;
  int32_t context_tokens;
  int32_t micro_batch_id;
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
  /* Those that were not told before, the oldest first, as far as the executor keeps them. The list is the plugin's, valid until
   * the next get_stats or destroy. */
  const llgtrt_trtllm_iteration* recent;
  size_t recent_count;
} llgtrt_trtllm_stats;

/* ---- events of the KV cache ------------------------------------------------------------------------------- */

typedef enum llgtrt_trtllm_kv_event_kind {
  /* What concerns nobody: priorities, moves between device and host. */
  LLGTRT_KV_OTHER = 0,
  /* The cache was made. */
  LLGTRT_KV_CREATED = 1,
  /* Blocks, each behind the one before. */
  LLGTRT_KV_STORED = 2,
  LLGTRT_KV_REMOVED = 3
} llgtrt_trtllm_kv_event_kind;

/* Pointers are valid until the next kv_events. */
typedef struct llgtrt_trtllm_kv_event {
  size_t struct_size;
  /* One more than that of the event before; where it is not, the executor had to forget some. */
  uint64_t number;
  int32_t kind;
  /* Tokens of the attention window whose blocks these are: layers may have different ones. */
  int32_t window;
  /* The block before the first stored one, if there is one. */
  int32_t has_parent;
  uint64_t parent;
  /* The blocks' identities. */
  const uint64_t* hashes;
  size_t count;
  /* Of stored blocks: the tokens of each, and whether they are all that it holds: no adapter's, no prompt table's, no image's. */
  llgtrt_trtllm_lists tokens;
  const uint8_t* plain;
} llgtrt_trtllm_kv_event;

/* ---- functions -------------------------------------------------------------------------------------------- */

/* LLGTRT_TRTLLM_ABI_VERSION of the plugin. The first call to make. Any thread, at any time. */
LLGTRT_EXPORT uint32_t llgtrt_trtllm_abi_version(void);

/* Version of the TensorRT-LLM that is loaded, such as "1.2.1"; valid for good. Any thread, at any time. */
LLGTRT_EXPORT const char* llgtrt_trtllm_version(void);

/* Text of the calling thread's last failure; never null; valid until that thread's next failure. Any thread. */
LLGTRT_EXPORT const char* llgtrt_trtllm_last_error(void);

/* Loads the engine; minutes for a large one. On success *engine is the caller's, to be given to llgtrt_trtllm_destroy. Sets
 * the calling thread's current CUDA device. */
LLGTRT_EXPORT llgtrt_trtllm_status llgtrt_trtllm_create(const llgtrt_trtllm_config* config,
                                                        llgtrt_trtllm_engine** engine);

/* Cancels every request, waits for the executor to let go of them, and frees all. Null is allowed. On a worker of a group of
 * processes it blocks until the leader ends; for good if the device hangs. */
LLGTRT_EXPORT void llgtrt_trtllm_destroy(llgtrt_trtllm_engine* engine);

/* Whether this process takes requests; false for the workers of a group. */
LLGTRT_EXPORT int32_t llgtrt_trtllm_is_leader(const llgtrt_trtllm_engine* engine);

/* Hands a request to the executor, whose thread may ask for its first mask before this returns. Everything is copied;
 * `request_id` is written on success. Does not block on the device. */
LLGTRT_EXPORT llgtrt_trtllm_status llgtrt_trtllm_submit(llgtrt_trtllm_engine* engine,
                                                        const llgtrt_trtllm_request* request, uint64_t* request_id);

/* The request's last response still comes, after the iteration that runs, or the first of its own if it waits. A request
 * that is unknown or finished is no error. Does not block. */
LLGTRT_EXPORT llgtrt_trtllm_status llgtrt_trtllm_cancel(llgtrt_trtllm_engine* engine, uint64_t request_id);

/* Blocks until there are responses, at most `timeout_ms`. The list is the plugin's, valid until the next await or destroy. */
LLGTRT_EXPORT llgtrt_trtllm_status llgtrt_trtllm_await(llgtrt_trtllm_engine* engine, int64_t timeout_ms,
                                                       const llgtrt_trtllm_response** responses, size_t* count);

/* Whether the engine can go on. The executor answers a request with an error and continues, whatever the reason was;
 * LLGTRT_FATAL says that the device is lost (last_error has CUDA's reason) or that logits stayed unmasked. Does not wait for
 * work on the device. */
LLGTRT_EXPORT llgtrt_trtllm_status llgtrt_trtllm_health(llgtrt_trtllm_engine* engine);

/* What was measured of the row from which token number `token_count` (counted from 0, prompt included) was
 * sampled. Results of earlier tokens are dropped. LLGTRT_REFUSED: there is none. What the result points to is the plugin's,
 * valid until the next row_results, forget or destroy. */
LLGTRT_EXPORT llgtrt_trtllm_status llgtrt_trtllm_row_results(llgtrt_trtllm_engine* engine, uint64_t request_id,
                                                             size_t token_count, llgtrt_trtllm_row_result* result);

/* Drops what is kept for a request. */
LLGTRT_EXPORT void llgtrt_trtllm_forget(llgtrt_trtllm_engine* engine, uint64_t request_id);

/* Copies the statistics into `stats`. */
LLGTRT_EXPORT llgtrt_trtllm_status llgtrt_trtllm_get_stats(llgtrt_trtllm_engine* engine, llgtrt_trtllm_stats* stats);

/* TensorRT-LLM's own statistics of the last iteration seen by llgtrt_trtllm_get_stats, as JSON. Valid until the next
 * llgtrt_trtllm_get_stats or destroy. */
LLGTRT_EXPORT const char* llgtrt_trtllm_stats_json(llgtrt_trtllm_engine* engine);

/* Blocks until something changed in the KV cache, at most `timeout_ms`. May be called while another thread is in another function,
 * though not in destroy, and by one thread only. The list is the plugin's, valid until the next kv_events or destroy. LLGTRT_REFUSED:
 * the executor tells of nothing (event_buffer_max_size is 0, or blocks are not reused). */
LLGTRT_EXPORT llgtrt_trtllm_status llgtrt_trtllm_kv_events(llgtrt_trtllm_engine* engine, int64_t timeout_ms,
                                                           const llgtrt_trtllm_kv_event** events, size_t* count);

#ifdef __cplusplus
}
#endif

#endif
