"""Section ``sim``: the simulated engine."""

from typing import Literal

from pydantic import Field

from .section import Section


class SimFault(Section):
    """A failure to act out."""

    kind: Literal["fail_sequence", "nan_row", "hang", "fail_engine", "abort", "panic"] = Field(
        description="What happens."
    )
    at_step: int = Field(
        default=0,
        ge=0,
        description="When: after so many tokens of a sequence, or so many forward passes of the engine.",
    )
    prompt_contains: str | None = Field(
        default=None, description="Only for sequences whose prompt holds this text."
    )
    every: int | None = Field(default=None, ge=1, description="Only for every n-th sequence, counted from 1.")


class SimConfig(Section):
    """The simulated engine, for tests and load. It has no model: it writes words over a real tokenizer
    (-T) or over single bytes, in programmable time.

    The batch size and the context are options of `runtime`."""

    prefill_chunk_tokens: int = Field(
        default=512, ge=1, description="Prompt tokens evaluated in one step, over all sequences."
    )
    prefix_cache_tokens: int = Field(
        default=0,
        ge=0,
        description="Tokens of a pretended prefix cache; 0: prompts are evaluated whole.",
    )
    prefill_us_per_token: int = Field(
        default=0, ge=0, description="Time added to a step for each prompt token, in microseconds."
    )
    step_us: int = Field(
        default=0, ge=0, description="Time of a step, in microseconds; 0: as fast as possible."
    )
    step_us_per_sequence: int = Field(
        default=0,
        ge=0,
        description="Time added to a step for each sequence that generates, in microseconds.",
    )
    fast_forward: bool = Field(default=True, description="Append runs of forced tokens at once.")
    text: Literal["random", "script"] = Field(
        default="random", description="What sequences without a constraint say: random words or the script."
    )
    script: str | None = Field(default=None, description="The answer of `text: 'script'`.")
    script_end: Literal["eos", "repeat"] = Field(
        default="eos", description="What follows the script: the end of the answer, or the script again."
    )
    min_answer_tokens: int = Field(default=16, ge=1, description="Shortest random answer, in tokens.")
    max_answer_tokens: int = Field(
        default=128,
        ge=1,
        description="Longest random answer, in tokens; a constrained answer is closed after as many.",
    )
    seed: int = Field(default=0, ge=0, description="Changes every random text.")
    faults: list[SimFault] = Field(
        default_factory=list,
        description="Failures to act out: objects with `kind` (fail_sequence, nan_row, hang, fail_engine,\n"
        "abort or panic), `at_step`, and `prompt_contains` or `every` to aim at single sequences.",
    )
