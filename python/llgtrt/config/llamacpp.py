"""Section ``llamacpp``: the embedded engine."""

from typing import Literal

from pydantic import Field

from .section import Section


class LlamaCppConfig(Section):
    """The embedded llama.cpp engine (GGUF models)."""

    threads: int | None = Field(
        default=None, ge=1, description="Threads that generate. null: the number of physical cores."
    )
    batch_threads: int | None = Field(
        default=None, ge=1, description="Threads that read prompts. null: as many as `threads`."
    )
    gpu_layers: int | None = Field(
        default=None,
        ge=0,
        description="Layers to keep on the GPU. null: all, if the build has a GPU backend.",
    )
    prefill_chunk_tokens: int = Field(
        default=256,
        ge=1,
        description="Prompt tokens in one forward pass while other sequences generate.",
    )
    flash_attention: bool | None = Field(
        default=None, description="Use flash attention. null: where it is known to be faster."
    )
    kv_cache_type: Literal["f32", "f16", "bf16", "q8_0", "q4_0"] = Field(
        default="f16", description="Number format of the KV cache."
    )
    mmap: bool = Field(default=True, description="Map the model file into memory instead of reading it.")
    mlock: bool = Field(default=False, description="Keep the model in memory, never in swap.")
