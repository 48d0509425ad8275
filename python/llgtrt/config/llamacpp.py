"""Section ``llamacpp``: the embedded engine."""

from typing import Literal

from pydantic import Field

from .section import Section


class LlamaCppConfig(Section):
    """The embedded llama.cpp engine, for GGUF models.

    The batch size, the context and the reuse of prefixes are options of `runtime`."""

    threads: int | None = Field(
        default=None,
        ge=1,
        le=512,
        description="Threads of a forward pass over single tokens. null: one per physical core, at most 4 if "
        "all is on a GPU.",
    )
    batch_threads: int | None = Field(
        default=None,
        ge=1,
        le=512,
        description="Threads of a forward pass over prompts. null: as many as `threads`.",
    )
    gpu_layers: int | None = Field(
        default=None,
        ge=0,
        description="Layers to keep on the GPU. null: all, where the build has a GPU backend.",
    )
    prefill_pass_ms: int | None = Field(
        default=None,
        ge=0,
        le=60_000,
        description="While other sequences generate, prompts have this much of a forward pass as far as the\n"
        "latest passes tell, or as much as two of the others take, if that is more; these go along in it,\n"
        "or have the next to themselves. Where more generate than wait for their prompt it is less, down to\n"
        "a third, but 64 tokens if these fit, and always 16, or 4 where the others go along. Half of it is\n"
        "for shorter prompts behind a long one. Small keeps the gaps between the tokens of others short,\n"
        "large has prompts done sooner and more answers in each pass. null: 0 where the others can go along\n"
        "at little cost, which is where all kernels of a pass are our own, and 150 elsewhere; but 150, or\n"
        "as much as six passes of the others take, while all that generate came with those that still wait.\n"
        "There prompts of 256 tokens and more have passes of their own, which stop after a part of a layer\n"
        "and go on between two passes of the others: for this long at a time, or as long as one of those.",
    )
    prefill_chunk_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Such a pass has this many tokens at most, and none stops between layers. null: as\n"
        "`prefill_pass_ms` says.",
    )
    flash_attention: Literal["auto", "on", "off"] = Field(
        default="auto", description="Fused attention. auto: where the backend has it."
    )
    kv_cache_type: Literal["f32", "f16", "bf16", "q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"] = Field(
        default="f16",
        description="Number format of the KV cache. The quantized ones need fused attention. On CPUs\n"
        "f16 and q8_0 have kernels of our own: on x86 q8_0 takes half the room and up to a third more time\n"
        "for prompts. The others are left to ggml, with which q8_0 took three to seven times as long.",
    )
    mmap: bool = Field(default=True, description="Map the model file into memory instead of reading it.")
    mlock: bool = Field(default=False, description="Keep the model in memory, never in swap.")
    repack: bool = Field(
        default=True,
        description="Rearrange weights of the types Q4_0, Q4_1, Q5_0, Q5_1, Q8_0, Q2_K to Q6_K, IQ4_NL,\n"
        "IQ4_XS and MXFP4, those of experts too, on x86 with AVX2, AVX-VNNI, AVX-512 VNNI or AMX,\n"
        "on ARM (Linux) with dot products or i8mm. They are copied then, not mapped.\n"
        "Attention has kernels of its own then, too.\n"
        "All are chosen by the CPU that runs the server, not by the one that compiled it.",
    )
    speculation: Literal["auto", "on", "off"] = Field(
        default="auto",
        description="Guess at the next tokens where the answer repeats the prompt or itself, and check\n"
        "the guesses in the same forward pass. How long they are follows from how many came true and what\n"
        "a token more costs. auto: where no answer changes by it, because every kernel of a pass (those of\n"
        "`repack`, with a KV cache of f16) gives a token the same bits alone and among others. on: also\n"
        "elsewhere; of two tokens that are nearly as likely the other one may come. Where all of the\n"
        "model is on a GPU, guesses fill passes of up to 8 tokens, so 4 sequences guess at most. Recurrent\n"
        "models (Qwen 3.5, Nemotron-H, LFM2) guess 4 tokens at most, while one sequence generates: their\n"
        "slots keep as many states more, as far as all of those are half as large as the weights.",
    )
    draft_model: str | None = Field(
        default=None,
        description="A GGUF file of a small model with the same vocabulary, which guesses at next tokens\n"
        "where nothing is repeated. It sees the last 512 to 1024 tokens, and is asked as far as its guesses\n"
        "come true often enough for what they take; with a long prompt it begins once the answer has taken\n"
        "four times as long as reading it. It changes no answer that `speculation` would not.",
    )
