"""Section ``server``: the HTTP server and what requests may ask for."""

from typing import Any, Literal

from pydantic import Field, field_validator

from llgtrt.logs import Levels, LogFormat

from .keys import ApiKey
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
    ssl_keyfile: str | None = Field(
        default=None, description="Private key of the certificate, as a PEM file: serve HTTPS."
    )
    ssl_certfile: str | None = Field(
        default=None, description="Certificate, as a PEM file, and those of its issuers: serve HTTPS."
    )
    ssl_ca_certs: str | None = Field(
        default=None,
        description="Certificates of authorities, as a PEM file: only clients whose own certificate one of\n"
        "them has signed may connect.",
    )
    served_model_name: str | list[str] | None = Field(
        default=None,
        description="Name of the model in the API. null: the name of the model file or engine folder.\n"
        "A list: names that requests may use; answers give the first.\n"
        '"*": that name, and requests may call the model whatever they like.',
    )
    model_aliases: dict[str, str] = Field(
        default_factory=dict,
        description="Other names that requests may use, each for the model or an adapter:\n"
        '{"gpt-4o": "NAME"}. '
        "They are not in the list of models.",
    )
    api_key: str | list[str] | None = Field(
        default=None,
        repr=False,
        description="Key that clients must send, or several. null: none but those of the next two options.\n"
        "Better set with LLGTRT_API_KEY than in a file.",
    )
    api_keys: list[ApiKey] = Field(
        default_factory=list,
        repr=False,
        description="Keys with a name and limits: objects with `key`, `name`, `max_concurrent` (requests at\n"
        "the same time), `requests_per_minute` and `manages_models` (false: it may not load and unload\n"
        "models). Requests beyond a limit get status 429.",
    )
    api_key_file: str | None = Field(
        default=None,
        description="File with a key per line: KEY, or NAME KEY, and then max_concurrent=N,\n"
        "requests_per_minute=N. It is read once, at the start.",
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
    generation_config: Literal["auto", "none"] = Field(
        default="auto",
        description="How to sample where a request does not say. auto: as generation_config.json in the\n"
        "model's folder says, or the GGUF file (general.sampling): temperature, top_k, top_p, min_p and\n"
        "repetition_penalty. none, and what neither says: OpenAI's defaults.",
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
    stored_responses: int = Field(
        default=1000,
        ge=0,
        description="Responses of /v1/responses that are kept in memory for later requests. The least\n"
        "recently used go first. 0: none.",
    )
    stored_response_bytes: int = Field(
        default=64 * 1024 * 1024, ge=1, description="What all of them take together, in bytes."
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
    check_memory: bool = Field(
        default=True,
        description="Of several models: load none whose file and KV cache are larger than the memory that\n"
        "is available.",
    )
    log_requests: bool = Field(
        default=True,
        description="Log one line at the end of each request, but not of probes. Prompts, answers and keys\n"
        "are never logged.",
    )
    receipt: bool = Field(
        default=True,
        description="Constrained answers carry a receipt, the field `constraint` of their choices: what held"
        "\nthem, what was forced, checked and closed, what it cost. See docs/receipt.md.",
    )
    otel: bool = Field(
        default=False,
        description="Send traces and metrics by OpenTelemetry. Needs `pip install llgtrt[otel]`;\n"
        "where they go is said by the variables OTEL_*. See docs/operations.md.",
    )
    log_level: str = Field(
        default="info",
        examples=["debug", "warning,llgtrt.core.grammar=debug"],
        description="What is logged from which level on: debug, info, warning or error, and after commas\n"
        'other levels of parts: "info,llgtrt.core.grammar=debug,uvicorn=error". -d and -q replace the first.',
    )
    log_format: LogFormat = Field(
        default="text", description="Lines of text, or a JSON object per line; the core's lines as well."
    )

    @field_validator("api_key", "served_model_name", mode="before")
    @classmethod
    def _one_or_several_texts(cls, value: Any) -> Any:
        # The union's own message speaks of both of its types.
        one_or_several = value if isinstance(value, list) else [value]
        if value is not None and not all(isinstance(text, str) for text in one_or_several):
            raise ValueError("should be a text or a list of texts")
        return value

    @field_validator("api_key", "served_model_name")
    @classmethod
    def _no_empty_text(cls, value: str | list[str] | None) -> str | list[str] | None:
        if value is not None and "" in _texts(value):
            raise ValueError("should not be empty")
        return value

    @field_validator("log_level")
    @classmethod
    def _known_levels(cls, value: str) -> str:
        Levels.parse(value)
        return value

    @field_validator("served_model_name")
    @classmethod
    def _any_name_alone(cls, value: str | list[str] | None) -> str | list[str] | None:
        if isinstance(value, list) and ANY_NAME in value[:1]:
            raise ValueError(f'"{ANY_NAME}" should not be the first name: answers give that one')
        return value

    @property
    def model_names(self) -> tuple[str, ...]:
        """What the model may be called, without the sign for any name."""
        return tuple(name for name in _texts(self.served_model_name) if name != ANY_NAME)

    @property
    def any_model_name(self) -> bool:
        """Whether a request may call the model whatever it likes."""
        return ANY_NAME in _texts(self.served_model_name)

    @property
    def keys(self) -> tuple[ApiKey, ...]:
        """Every key that opens the server; empty: everybody may use it."""
        return (*self.api_keys, *(ApiKey(key=key) for key in _texts(self.api_key)))


def _texts(value: str | list[str] | None) -> list[str]:
    """A value that is a text or several, as a list."""
    return [] if value is None else [value] if isinstance(value, str) else value
