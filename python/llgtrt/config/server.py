"""Section ``server``: the HTTP server and what requests may ask for."""

from typing import Literal

from pydantic import Field

from llgtrt.logs import LogFormat

from .section import Section

ANY_NAME = "*"
"""As the name of the model: every name that a request gives means the served model."""


class ServerConfig(Section):
    """The HTTP server."""

    host: str = Field(default="0.0.0.0", description="Address to listen on.")
    port: int = Field(default=3000, ge=0, le=65_535, description="Port to listen on; 0 picks a free one.")
    uds: str | None = Field(
        default=None, description="Unix domain socket to listen on instead of host and port."
    )
    root_path: str = Field(default="", description="Path prefix that a proxy in front of the server strips.")
    served_model_name: str | None = Field(
        default=None,
        description="Name of the model in the API. null: the name of the model file or engine folder.\n"
        '"*": that name, and requests may call the model whatever they like.',
    )
    api_key: str | None = Field(
        default=None,
        min_length=1,
        repr=False,
        description="Key that clients must send. null: none. Better set with LLGTRT_API_KEY than in a file.",
    )
    cors_origins: list[str] = Field(
        default_factory=list, description='Web origins that browsers may call from; ["*"] is any.'
    )
    allowed_hosts: list[str] = Field(
        default_factory=list,
        description="Names in the Host header that are answered, without the port. Empty: programs may use\n"
        "any name, and without a key web pages only an IP address or localhost.\n"
        '["*"] is any for everybody.',
    )
    max_body_bytes: int = Field(
        default=8 * 1024 * 1024, ge=1, description="Size of a request body, in bytes."
    )
    max_n: int = Field(
        default=128, ge=1, description="Choices per request (`n` times the number of prompts)."
    )
    default_max_tokens: int | None = Field(
        default=None,
        ge=1,
        description="Tokens of an answer when the request has no max_tokens.\n"
        "null: what is left of the context for chat, 16 for completions.\n"
        "Where less is left of the context, it is that.",
    )
    max_tokens_beyond_context: Literal["refuse", "clamp"] = Field(
        default="refuse",
        description="A request whose max_tokens is more than what its prompt leaves of the context:\n"
        "refuse it with status 400 as OpenAI does, or clamp max_tokens to what is left.",
    )
    chat_template_kwargs: list[str] = Field(
        default_factory=lambda: ["enable_thinking", "thinking", "reasoning_effort"],
        description="Template variables that requests may set with chat_template_kwargs.",
    )
    request_timeout_s: float | None = Field(
        default=None, gt=0, description="Longest request, queue included, in seconds. null: no limit."
    )
    ping_interval_s: float = Field(
        default=15.0,
        ge=0,
        description="Seconds between comments on an idle stream, so that proxies keep it; 0: none.",
    )
    drain_timeout_s: float = Field(
        default=90.0, ge=0, description="Seconds that running requests may take to finish after SIGTERM."
    )
    exit_after_stall_s: float | None = Field(
        default=None,
        ge=0,
        description="End the process once the engine has been stalled for this long (see\n"
        "runtime.stall_timeout_ms), in seconds, so that a supervisor starts a new one. null: never.",
    )
    write_timeout_s: float = Field(
        default=30.0, gt=0, description="Drop a client that reads nothing for this long, in seconds."
    )
    header_timeout_s: float = Field(
        default=30.0,
        gt=0,
        description="Drop a client that has not sent its request within this time, in seconds.",
    )
    keep_alive_s: float = Field(
        default=75.0, ge=0, description="Keep an idle connection open for this long, in seconds."
    )
    log_requests: bool = Field(
        default=True,
        description="Log one line at the end of each request, but not of probes. Prompts, answers and keys\n"
        "are never logged.",
    )
    log_format: LogFormat = Field(
        default="text", description="Lines of text, or a JSON object per line; the core's lines as well."
    )
