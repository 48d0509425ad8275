"""Section ``trtllm``: what only TensorRT-LLM has."""

import importlib.util
import os
import sysconfig
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from .section import Section

PLUGIN_NAME = "libllgtrt_trtllm.so"
PLUGIN_VARIABLE = "LLGTRT_TRTLLM_PLUGIN"

Count = Annotated[int, Field(ge=1, le=2**31 - 1)]
Index = Annotated[int, Field(ge=0, le=2**31 - 1)]


class TrtllmConfig(Section):
    """TensorRT-LLM, for engine folders.

    Batching, scheduling and most of the KV cache are options of `runtime`."""

    plugin_path: str | None = Field(
        default=None,
        description="The plugin between llgtrt and TensorRT-LLM.\n"
        "null: $LLGTRT_TRTLLM_PLUGIN, else what `llgtrt build-trtllm` built.",
    )
    encoder_dir: str | None = Field(
        default=None, description="Engine folder of the encoder, for encoder-decoder models."
    )
    context_chunking_policy: Literal["first_come_first_served", "equal_progress"] | None = Field(
        default=None,
        description="Order in which long prompts share a forward pass. null: TensorRT-LLM's choice.",
    )
    max_beam_width: int = Field(
        ge=1,
        le=2**31 - 1,
        default=1,
        description="Most beams of the engine's own search. Requests over HTTP are searched above it "
        "(docs/beams.md), for which 1 is enough.",
    )
    tuning_window: int | None = Field(
        ge=1,
        le=2**31 - 1,
        default=None,
        description="Requests over which batch size and token limit are tuned.",
    )
    normalize_log_probs: bool = Field(
        default=True, description="Log-probabilities that TensorRT-LLM itself returns are normalised."
    )
    iter_stats_max_iterations: int = Field(
        ge=0,
        le=2**31 - 1,
        default=1000,
        description="Iterations of which statistics are kept until they are read.",
    )
    gpu_weights_percent: float = Field(
        ge=0, le=1, default=1.0, description="Fraction of the weights that stays in GPU memory, 0 to 1."
    )
    kv_cache_max_tokens: int | None = Field(
        ge=1, le=2**31 - 1, default=None, description="Most tokens in the KV cache. null: as many as fit."
    )
    max_attention_window: list[Count] = Field(
        default_factory=list,
        description="Attention window of each layer, repeated over the layers. Empty: the engine's.",
    )
    sink_token_length: int | None = Field(
        ge=1,
        le=2**31 - 1,
        default=None,
        description="Tokens at the start of a sequence that a sliding window always keeps.",
    )
    multi_block_mode: bool = Field(
        default=True, description="Spread the attention of long contexts over several blocks of the GPU."
    )
    enable_context_fmha_fp32_acc: bool = Field(
        default=False, description="Add up in 32 bits in the attention kernels of prompts."
    )
    cuda_graph_mode: bool = Field(default=False, description="Use CUDA graphs.")
    cuda_graph_cache_size: int = Field(ge=0, le=2**31 - 1, default=0, description="CUDA graphs to keep.")
    decoding_mode: (
        Literal[
            "auto",
            "top_k",
            "top_p",
            "top_k_top_p",
            "beam_search",
            "medusa",
            "redrafter",
            "lookahead",
            "eagle",
        ]
        | None
    ) = Field(
        default=None,
        description="How tokens are decoded. null: TensorRT-LLM's choice.\n"
        "Speculative modes (medusa, redrafter, lookahead, eagle) cannot constrain answers.",
    )
    lookahead: Annotated[list[Count], Field(min_length=3, max_length=3)] | None = Field(
        default=None, description="Lookahead decoding: window, n-gram and verification set. null: 4, 3, 4."
    )
    medusa_choices: list[list[Index]] = Field(
        default_factory=list, description="Medusa's tree. Empty: the engine's."
    )
    eagle_choices: list[list[Index]] = Field(
        default_factory=list, description="Eagle's tree. Empty: the engine's."
    )
    eagle_greedy_sampling: bool = Field(
        default=True, description="Eagle accepts the most likely token only; false: typical acceptance."
    )
    eagle_posterior_threshold: float | None = Field(
        ge=0, le=1, default=None, description="Least probability that typical acceptance takes."
    )
    eagle_dynamic_tree_top_k: int | None = Field(
        ge=1,
        le=2**31 - 1,
        default=None,
        description="Eagle grows its tree while decoding, by this many tokens per node.",
    )
    lora_optimal_adapter_size: int | None = Field(
        ge=1,
        le=2**31 - 1,
        default=None,
        description="Rank that the pages of the LoRA cache are laid out for.",
    )
    lora_max_adapter_size: int | None = Field(
        ge=1,
        le=2**31 - 1,
        default=None,
        description="Largest rank of an adapter. null: what the engine was built for (--max_lora_rank).",
    )
    lora_cache_gpu_memory_fraction: float | None = Field(
        ge=0, le=1, default=None, description="Fraction of the free GPU memory to use for LoRA weights."
    )
    lora_cache_host_memory_megabytes: int | None = Field(
        ge=1, le=2**31 - 1, default=None, description="Host memory to use for LoRA weights, in MB."
    )
    cache_transceiver_backend: Literal["default", "mpi", "ucx", "nixl"] | None = Field(
        default=None,
        description="What moves KV caches to other servers (docs/scaling.md); all servers of a model\n"
        "need the same. null: they are not moved, and `disaggregation` is refused.",
    )
    cache_transceiver_max_tokens_in_buffer: int | None = Field(
        ge=1,
        le=2**31 - 1,
        default=None,
        description="Tokens of a KV cache that the buffer of a transfer holds. Best as many as the\n"
        "longest prompt has. null: TensorRT-LLM's choice.",
    )
    kv_transfer_timeout_ms: int | None = Field(
        ge=1,
        le=2**31 - 1,
        default=None,
        description="Longest that a KV cache is kept for another server, or waited for. null: no limit.",
    )
    kv_transfer_sender_future_timeout_ms: int | None = Field(
        ge=1,
        le=2**31 - 1,
        default=None,
        description="Longest that a step waits for transfers to end. null: TensorRT-LLM's choice.\n"
        "Not every version of the 1.2 line has it.",
    )
    gpu_device_ids: list[Index] = Field(
        default_factory=list, description="GPUs to use, one per process of this machine. Empty: by rank."
    )


def cache_folder() -> Path:
    """Where `llgtrt build-trtllm` builds."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "llgtrt" / "trtllm"


def library_folders() -> list[Path]:
    """Where Python packages keep the shared libraries that TensorRT-LLM needs.

    They are its own, PyTorch's, TensorRT's and CUDA's. The dynamic linker does not look there by itself;
    importing the packages would make it, but takes a GPU and minutes.
    """
    folders: list[Path] = []
    for package, inside in _LIBRARY_PACKAGES:
        for root in _package_folders(package):
            folders += sorted(root.glob(inside)) if "*" in inside else [root / inside]
    # The Python that runs: TensorRT-LLM is linked to libpython.
    if library := sysconfig.get_config_var("LIBDIR"):
        folders.append(Path(library))
    return [folder for folder in folders if folder.is_dir()]


_LIBRARY_PACKAGES = (
    ("tensorrt_llm", "libs"),
    ("torch", "lib"),
    ("tensorrt_libs", "."),
    ("nvidia", "*/lib"),
)


def _package_folders(package: str) -> list[Path]:
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return []
    return [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []


def plugin_file(section: TrtllmConfig) -> Path | None:
    """The plugin to open; ``None`` if nobody named or built one."""
    named = section.plugin_path or os.environ.get(PLUGIN_VARIABLE)
    if named:
        return Path(named)
    built = cache_folder() / PLUGIN_NAME
    return built if built.is_file() else None
