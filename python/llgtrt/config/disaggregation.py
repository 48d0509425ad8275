"""Section ``disaggregation``: prompts on one server, answers on another."""

from typing import Literal

from pydantic import Field

from .section import Section

Role = Literal["context", "generation", "both"]


class DisaggregationConfig(Section):
    """Prompts on one server, answers on another: what an orchestrator such as `trtllm-serve disaggregated`
    divides between them (docs/scaling.md)."""

    role: Role | None = Field(
        default=None,
        description="What this server does of a divided answer: context (it evaluates prompts and hands the\n"
        "KV cache over), generation (it goes on from there) or both. null: neither; requests\n"
        "with disaggregated_params are refused.",
    )
    key_file: str | None = Field(
        default=None,
        description="File with the key that all servers of a model share, at least 16 bytes of text: states "
        "from\nelsewhere are refused. null: the environment variable LLGTRT_DISAGGREGATION_KEY.",
    )
    max_state_bytes: int = Field(
        default=1_048_576,
        ge=1024,
        le=67_108_864,
        description="Largest state that is taken from a request.",
    )
