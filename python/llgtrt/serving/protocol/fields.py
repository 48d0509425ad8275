"""Fields that chat and completion requests share, with their ranges.

Types are strict: ``n: true`` and ``n: "1"`` are errors, and so is a number that is not finite. ``null`` means
"not given" everywhere, as clients send it for every option they do not set.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr
from pydantic_core import PydanticCustomError

MAX_STOP_STRINGS = 64
MAX_STOP_CHARS = 10_000
MAX_STOP_TOKEN_IDS = 256
MAX_LOGIT_BIAS = 1024
MAX_ALLOWED_TOKENS = 2**18
MAX_BAD_WORDS = 256
MAX_BAD_WORD_CHARS = 1000
MAX_SALT_CHARS = 1000
MAX_RETENTION_RANGES = 64
MAX_LOGITS_PROCESSORS = 8
MAX_METADATA = 1024
MAX_TOKEN_ID = 2**31 - 1
MAX_COUNT = 2**31 - 1
"""The core counts in 32 bits; the context is far smaller."""


def _stop_strings(value: Any) -> Any:
    """A text or a list of texts, as a list."""
    if value is None:
        return None
    strings = [value] if isinstance(value, str) else value
    if not isinstance(strings, list) or not all(isinstance(string, str) for string in strings):
        raise PydanticCustomError("stop", "must be a string or an array of strings")
    if len(strings) > MAX_STOP_STRINGS:
        raise PydanticCustomError("stop", f"may hold at most {MAX_STOP_STRINGS} strings")
    if any(len(string) > MAX_STOP_CHARS for string in strings):
        raise PydanticCustomError("stop", f"a string may have at most {MAX_STOP_CHARS} characters")
    # Clients send an empty one for "none"; nothing could ever come before it.
    return [string for string in strings if string]


def _count(value: Any) -> Any:
    """A whole number, however it is written: some clients send ``100.0``."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _prompt_limit(value: Any) -> Any:
    """A number of tokens, or -1. Nothing is no prompt."""
    if value == 0 and not isinstance(value, bool):
        raise PydanticCustomError("prompt_limit", "must be at least 1, or -1")
    return value


def _priority(value: Any) -> Any:
    """An integer as vLLM counts (lower goes first), as a fraction of 1 (higher goes first)."""
    if value is None or (isinstance(value, float) and 0 < value < 1):
        return value
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) > MAX_COUNT:
        raise PydanticCustomError("priority", "must be an integer, or a fraction between 0 and 1")
    # Strictly monotone, and 0 is the middle; a 32-bit float tells neighbours apart up to some thousands.
    return 0.5 - value / (2 * (abs(value) + 10))


def _logit_bias(value: Any) -> Any:
    """An object of token id to bias, as a list of pairs. Keys are texts, as JSON has no others."""
    if value is None:
        return None
    if not isinstance(value, dict):
        raise PydanticCustomError("logit_bias", "must be an object of token id to bias")
    if len(value) > MAX_LOGIT_BIAS:
        raise PydanticCustomError("logit_bias", f"may hold at most {MAX_LOGIT_BIAS} tokens")
    pairs = []
    for key, bias in value.items():
        if not (isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= 10):
            raise PydanticCustomError("logit_bias", "keys must be token ids")
        if isinstance(bias, bool) or not isinstance(bias, int | float) or not -100 <= bias <= 100:
            raise PydanticCustomError("logit_bias", "values must be numbers from -100 to 100")
        pairs.append((int(key), float(bias)))
    return pairs


StopStrings = Annotated[
    list[str] | None,
    BeforeValidator(_stop_strings, json_schema_input_type=str | list[str] | None),
]
LogitBias = Annotated[
    list[tuple[int, float]] | None,
    BeforeValidator(_logit_bias, json_schema_input_type=dict[str, float] | None),
]
TokenCount = Annotated[int, Field(ge=-1, le=MAX_COUNT), BeforeValidator(_count, json_schema_input_type=int)]
PromptLimit = Annotated[
    int, Field(ge=-1, le=MAX_COUNT), BeforeValidator(_prompt_limit, json_schema_input_type=int)
]
Priority = Annotated[float | None, BeforeValidator(_priority, json_schema_input_type=int | float | None)]
BadWord = Annotated[str, Field(min_length=1, max_length=MAX_BAD_WORD_CHARS)]
StopWord = Annotated[str, Field(max_length=MAX_STOP_CHARS)]
TokenIdField = Annotated[int, Field(ge=0, le=MAX_TOKEN_ID)]


class RequestModel(BaseModel):
    """Base of everything that a request body holds."""

    model_config = ConfigDict(
        strict=True,
        extra="allow",
        allow_inf_nan=False,
        hide_input_in_errors=True,
        protected_namespaces=(),
        arbitrary_types_allowed=False,
    )

    _body_bytes: int = PrivateAttr(default=0)

    @property
    def body_bytes(self) -> int:
        """Size of the body that this was read from, in bytes; 0 where it was not."""
        return self._body_bytes


class StreamOptions(RequestModel):
    """How to stream."""

    include_usage: bool | None = Field(default=None, description="Send a last chunk with the token counts.")
    continuous_usage_stats: bool | None = Field(
        default=None, description="With include_usage: every chunk has the token counts so far."
    )


class TokenRangeRetention(RequestModel):
    """How long a range of the prompt's tokens stays in the KV cache."""

    model_config = ConfigDict(extra="forbid")

    token_start: int = Field(ge=0, lt=MAX_COUNT)
    token_end: int | None = Field(default=None, ge=1, le=MAX_COUNT, description="None: to the end.")
    priority: int = Field(ge=0, le=100, description="Higher stays longer; 35 is usual.")
    duration_ms: int | None = Field(default=None, ge=0, le=2**53, description="None: until it has to go.")


class KvCacheRetention(RequestModel):
    """TensorRT-LLM's KV cache retention, with its names."""

    model_config = ConfigDict(extra="forbid")

    token_range_retention_configs: list[TokenRangeRetention] | None = Field(
        default=None, max_length=MAX_RETENTION_RANGES, fail_fast=True
    )
    decode_retention_priority: int | None = Field(default=None, ge=0, le=100)
    decode_duration_ms: int | None = Field(default=None, ge=0, le=2**53)


class LogitsProcessorField(RequestModel):
    """A logits processor with arguments."""

    model_config = ConfigDict(extra="forbid")

    name: str = Field(description="One that this server has.")
    args: dict[str, Any] | None = Field(default=None, description="What it takes.")


def _named(value: Any) -> Any:
    """One name or several, each alone or with arguments."""
    if value is None:
        return None
    given = value if isinstance(value, list) else [value]
    return [{"name": one} if isinstance(one, str) else one for one in given]


LogitsProcessorList = Annotated[
    list[LogitsProcessorField] | None,
    BeforeValidator(
        _named, json_schema_input_type=str | list[str | LogitsProcessorField] | LogitsProcessorField | None
    ),
]


class CommonFields(RequestModel):
    """What clients say most and the server reads itself. They come first in the description of each API."""

    model: str | None = Field(default=None, description="Name of the model; the served one if left out.")
    max_tokens: TokenCount | None = Field(
        default=None,
        description="Most tokens of an answer; -1 is what is left of the context.",
    )
    n_predict: TokenCount | None = Field(default=None, description="llama.cpp's name of max_tokens.")
    stream: bool | None = Field(default=None, description="Send server-sent events while generating.")
    stream_options: StreamOptions | None = Field(default=None, description="Without stream they say nothing.")


class RequestFields(RequestModel):
    """What crosses into the core's request under its own name."""

    n: int | None = Field(default=None, ge=1, description="Answers per prompt.")
    seed: int | None = Field(
        default=None,
        ge=-(2**63),
        le=2**63 - 1,
        description="Choice i uses seed + i; without it each answer differs.",
    )
    stop: StopStrings = Field(
        default=None, description="Up to 64 texts that end the answer; they are not part of it."
    )
    stop_token_ids: list[TokenIdField] | None = Field(
        default=None, max_length=MAX_STOP_TOKEN_IDS, fail_fast=True, description="Tokens that end the answer."
    )
    include_stop_str_in_output: bool | None = Field(
        default=None, description="Keep the stop text in the answer."
    )
    bad_words: list[BadWord] | None = Field(
        default=None,
        max_length=MAX_BAD_WORDS,
        fail_fast=True,
        description="Texts whose tokens are not generated in a row; not with a constraint. (TensorRT-LLM)",
    )
    at_limit: Literal["close", "cut"] | None = Field(
        default=None,
        description="What happens to a constrained answer at max_tokens or the end of the context.\n"
        "close: it is completed in time and stays valid (the default). cut: it ends wherever it is.",
    )
    return_removed_mass: bool | None = Field(
        default=None,
        description="Measure how much probability the constraint removes: mean and maximum in the receipt. "
        "Constrained requests with logprobs do in any case, and have it in each token's entry.",
    )
    prompt_logprobs: int | None = Field(
        default=None,
        ge=0,
        le=20,
        description="Log-probabilities of the prompt's tokens, with this many likely ones at each place, as "
        "vLLM has them. Chat and completions; not with stream.",
    )
    return_token_ids: bool | None = Field(
        default=None,
        description="Return the ids of the tokens: `prompt_token_ids`, and `token_ids` of each choice, also "
        "in streams. Chat and completions.",
    )


class SamplingFields(RequestModel):
    """What crosses into the ``sampling`` of the core's request: how every engine chooses tokens."""

    temperature: float | None = Field(
        default=None, ge=0, le=100, description="0 takes the most likely token. OpenAI's API ends at 2."
    )
    top_p: float | None = Field(default=None, ge=0, le=1, description="Mass of the likely tokens to keep.")
    top_k: int | None = Field(
        default=None, ge=-1, le=MAX_TOKEN_ID, description="Tokens to keep; -1 and 0 keep all."
    )
    min_p: float | None = Field(
        default=None, ge=0, le=1, description="Keep tokens with this fraction of the best one's probability."
    )
    presence_penalty: float | None = Field(
        default=None, ge=-2, le=2, description="Penalty on tokens used before."
    )
    frequency_penalty: float | None = Field(
        default=None, ge=-2, le=2, description="Penalty per use of a token so far."
    )
    repetition_penalty: float | None = Field(
        default=None,
        gt=0,
        le=10,
        description="Divides the logits of tokens in the prompt or the answer; 1 is off.",
    )
    logit_bias: LogitBias = Field(default=None, description="Token id to a bias from -100 to 100.")
    min_tokens: int | None = Field(default=None, ge=0, le=MAX_COUNT, description="Least tokens of an answer.")
    ignore_eos: bool | None = Field(default=None, description="Do not end at the end-of-text token.")


class ExtraSamplingFields(RequestModel):
    """What crosses into the ``options.sampling`` of the core's request: what only some engines have of it."""

    no_repeat_ngram_size: int | None = Field(
        default=None,
        ge=1,
        le=MAX_COUNT,
        description="No run of this many tokens comes twice; not with a constraint. (TensorRT-LLM)",
    )
    top_p_decay: float | None = Field(
        default=None, gt=0, le=1, description="top_p shrinks by this factor with each token. (TensorRT-LLM)"
    )
    top_p_min: float | None = Field(
        default=None, gt=0, le=1, description="top_p does not shrink below this. (TensorRT-LLM)"
    )
    top_p_reset_ids: TokenIdField | None = Field(
        default=None, description="top_p is as given again after this token. (TensorRT-LLM)"
    )


class EngineFields(RequestModel):
    """What crosses into the ``options`` of the core's request: what only some engines have."""

    allotted_time_ms: int | None = Field(
        default=None,
        ge=1,
        le=2**53,
        description="A request that takes longer fails. (TensorRT-LLM)",
    )
    priority: Priority = Field(
        default=None,
        description="An integer: lower goes first, 0 if left out. A fraction between 0 and 1: higher goes "
        "first, 0.5 if left out. (TensorRT-LLM)",
    )


class GenerationFields(EngineFields, ExtraSamplingFields, SamplingFields, RequestFields, CommonFields):
    """What the requests of all APIs may say about generating.

    But for ``CommonFields`` the core's request has the fields of the bases under the same names
    (``tests/boundary/test_contract.py`` compares them). What is declared here is read by the server, or
    translated.
    """

    use_beam_search: bool | None = Field(
        default=None,
        description="Return the likeliest answers that a beam search finds, as vLLM does it, with best_of "
        "beams, or n. How tokens are sampled does not matter then. Chat and completions.",
    )
    length_penalty: float | None = Field(
        default=None,
        ge=-10,
        le=10,
        description="With beams: an answer's log-probability is divided by its length to this power; 1 if "
        "left out.",
    )
    early_stopping: Literal[True, False, "never"] | None = Field(
        default=None,
        description="With beams: true ends the search with as many answers as beams; else it ends when no "
        "better answer can come.",
    )
    logits_processors: LogitsProcessorList = Field(
        default=None,
        max_length=MAX_LOGITS_PROCESSORS,
        description="Code of the operator's that changes the logits before each token, by the names that "
        "this server has (py.logits_processors): a name, or an object of name and args. Not with "
        "use_beam_search.",
    )
    repeat_penalty: float | None = Field(
        default=None, gt=0, le=10, description="llama.cpp's name of repetition_penalty."
    )
    lora_model: str | None = Field(
        default=None, description="LoRA adapter to use; `model` may name it as well. (TensorRT-LLM)"
    )
    load_lora_weights: Literal["auto", "always", "never"] | None = Field(
        default=None,
        description="auto loads the adapter when it is not in the cache, always each time, never fails then.",
    )
    cache_salt: str | None = Field(
        default=None,
        min_length=1,
        max_length=MAX_SALT_CHARS,
        description="Cached prefixes are shared only among requests with the same salt. (TensorRT-LLM)",
    )
    kv_cache_retention: KvCacheRetention | None = Field(
        default=None, description="How long prompt and answer stay in the KV cache. (TensorRT-LLM)"
    )
    allowed_token_ids: list[TokenIdField] | None = Field(
        default=None,
        max_length=MAX_ALLOWED_TOKENS,
        fail_fast=True,
        description="The answer, behind any thinking, consists of these tokens only. It ends by itself only "
        "where a token that ends answers is one of them. Not with another constraint, nor with tools.",
    )
    add_special_tokens: bool | None = Field(
        default=None,
        description="false: no token that begins a text is put in front of the prompt; else one is, once.",
    )
    skip_special_tokens: bool | None = Field(
        default=None, description="false: control tokens in the answer are written out, but for its end."
    )
    spaces_between_special_tokens: bool | None = Field(
        default=None, description="Accepted: control tokens have no blanks around them."
    )
    truncate_prompt_tokens: PromptLimit | None = Field(
        default=None,
        description="Only the last so many tokens of a longer prompt are used, as vLLM does it; -1: as many "
        "as fit beside the answer. What stands at the beginning, such as instructions, is lost first.",
    )
    user: str | int | float | None = Field(default=None, description="Accepted; not used.")
    metadata: dict[str, Any] | None = Field(
        default=None, max_length=MAX_METADATA, description="Accepted; not used."
    )
    store: bool | None = Field(default=None, description="Accepted; nothing is stored.")
    return_expanded_prompt: bool | None = Field(
        default=None, description="Return the text that the model was given, as `expanded_prompt`."
    )
