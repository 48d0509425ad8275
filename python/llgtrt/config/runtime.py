"""Section ``runtime``: batching, memory and scheduling of the engine."""

from pydantic import Field

from .section import Section


class RuntimeConfig(Section):
    """Batching, memory and scheduling. The defaults should be reasonable.

    Options marked (TensorRT-LLM) are accepted by every engine and used by that one only."""

    guaranteed_no_evict: bool = Field(
        default=False,
        description="Make the scheduler more conservative, so that a started request is never evicted.\n"
        "false gives more throughput. (TensorRT-LLM; the other engines never evict)",
    )
    max_batch_size: int | None = Field(
        default=None,
        ge=1,
        description="Most sequences that generate at the same time.\n"
        "null: the engine's own default, 8 for llamacpp. (all engines)",
    )
    max_num_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Most tokens in one forward pass, prompts and answers together.\n"
        "null: the engine's own default; for llamacpp 512, or 2048 where all of the model is\n"
        "on a GPU. (TensorRT-LLM, llamacpp)",
    )
    max_seq_len: int | None = Field(
        default=None,
        ge=1,
        description="Most tokens of one sequence, prompt and answer together.\n"
        "null: what the model was trained for; llamacpp takes 4096 at most by itself. (all engines)",
    )
    max_queue_size: int = Field(
        default=256,
        ge=0,
        description="Most sequences that wait while the batch is full; more are refused with status 503.\n"
        "0 means the default of 256. (all engines)",
    )
    seed: int | None = Field(
        default=None,
        ge=0,
        lt=2**63,
        description="Makes the answers to requests without a seed repeatable: the first request, the second\n"
        "and so on draw the same numbers after every start. null: different ones each time. (all engines)",
    )
    stall_timeout_ms: int = Field(
        default=60_000,
        ge=1,
        description="Not ready once the engine has had work but made no progress for this long,\n"
        "in milliseconds. (all engines)",
    )
    enable_chunked_context: bool = Field(
        default=True,
        description="Split long prompts into pieces, so that running sequences go on meanwhile.\n"
        "(TensorRT-LLM; llamacpp always does)",
    )
    enable_kv_cache_reuse: bool = Field(
        default=True,
        description="Keep the KV cache of finished prompts and reuse common prefixes. With llamacpp\n"
        "a recurrent model keeps states of prompts for it, in up to twice the memory of its slots' states.\n"
        "(TensorRT-LLM, llamacpp)",
    )
    kv_cache_free_gpu_mem_fraction: float = Field(
        default=0.9,
        gt=0,
        lt=1,
        description="Fraction of the free GPU memory to use for the KV cache, less than 1. (TensorRT-LLM)",
    )
    kv_cache_host_memory_megabytes: int = Field(
        default=0, ge=0, description="Host memory to use for the KV cache, in MB. (TensorRT-LLM)"
    )
    kv_cache_onboard_blocks: bool = Field(
        default=True,
        description="Bring offloaded blocks back to GPU memory before they are reused. (TensorRT-LLM)",
    )
    cross_kv_cache_fraction: float | None = Field(
        default=None,
        gt=0,
        lt=1,
        description="Fraction of the KV cache reserved for cross attention; the rest is for self attention.\n"
        "Only for encoder-decoder models. (TensorRT-LLM)",
    )
    secondary_offload_min_priority: int | None = Field(
        default=None,
        description="Only blocks with a higher priority than this are offloaded to host memory.\n"
        "(TensorRT-LLM)",
    )
    event_buffer_max_size: int | None = Field(
        default=None,
        ge=0,
        description="Events of the KV cache that TensorRT-LLM keeps until they are read. null: 65536 where\n"
        "routers are told of them, else none. (TensorRT-LLM)",
    )
    enable_batch_size_tuning: bool = Field(
        default=True, description="Tune the batch size automatically. (TensorRT-LLM)"
    )
    enable_max_num_tokens_tuning: bool = Field(
        default=True, description="Tune max_num_tokens automatically. (TensorRT-LLM)"
    )
