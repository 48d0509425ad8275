"""From the fields of a request to the arguments of the core's request."""

from __future__ import annotations

import hashlib
import time
import uuid
from dataclasses import dataclass
from typing import Any, TypedDict, cast

from llgtrt.config.generation import SamplingDefaults
from llgtrt.serving.errors import RequestError
from llgtrt.serving.protocol.fields import GenerationFields, KvCacheRetention

OPENAI = SamplingDefaults()
"""OpenAI's defaults."""

TINY_TOP_P = 1e-6
"""What ``top_p: 0`` means: only the most likely token."""


DEFAULT_COMPLETION_TOKENS = 16
"""OpenAI's default of ``max_tokens`` for completions."""


@dataclass(frozen=True, slots=True)
class TokenLimits:
    """What a server lets requests ask for.

    Attributes:
        max_n: most sequences of one request.
        default_max_tokens: tokens of an answer where the request does not say.
        clamp_max_tokens: a request for more tokens than the context has left gets what is left.
    """

    max_n: int
    default_max_tokens: int | None = None
    clamp_max_tokens: bool = False

    def max_tokens(self, asked: int | None, default: int | None) -> MaxTokens:
        """The arguments for the core.

        Args:
            asked: tokens that the request asks for, -1 for what is left of the context.
            default: where neither the request nor the server says.
        """
        if asked is None:
            # Nobody asked for it, so it may not be what makes a request too long.
            own = self.default_max_tokens or default
            return {"max_tokens": own, "clamp_max_tokens": True}
        return {"max_tokens": None if asked < 0 else asked, "clamp_max_tokens": self.clamp_max_tokens}


class MaxTokens(TypedDict):
    """Arguments of ``GenerateRequest`` on the length of an answer."""

    max_tokens: int | None
    clamp_max_tokens: bool


class GenerationArguments(TypedDict):
    """Arguments of ``GenerateRequest`` that do not depend on the kind of request."""

    n: int
    min_tokens: int
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    presence_penalty: float
    frequency_penalty: float
    repetition_penalty: float
    logit_bias: list[tuple[int, float]]
    seed: int | None
    ignore_eos: bool
    close_at_limit: bool
    removed_mass: bool
    stop: list[str]
    stop_token_ids: list[int]
    include_stop: bool
    include_usage: bool
    prompt_top: int | None
    token_ids: bool


def generation_arguments(
    request: GenerationFields, vocab_size: int, defaults: SamplingDefaults = OPENAI
) -> GenerationArguments:
    """The arguments, with defaults where the request says nothing.

    Raises:
        RequestError: a token id is outside the vocabulary, or fields contradict each other.
    """
    for token, _bias in request.logit_bias or ():
        if token >= vocab_size:
            raise RequestError(
                f"logit_bias: token id {token} is outside the vocabulary of {vocab_size}.",
                f"logit_bias.{token}",
            )
    for index, token in enumerate(request.stop_token_ids or ()):
        if token >= vocab_size:
            raise RequestError(
                f"stop_token_ids[{index}]: token id {token} is outside the vocabulary of {vocab_size}.",
                f"stop_token_ids[{index}]",
            )
    return {
        "n": _or(request.n, 1),
        "min_tokens": _or(request.min_tokens, 0),
        "temperature": _or(request.temperature, defaults.temperature),
        "top_k": max(_or(request.top_k, defaults.top_k), 0),
        "top_p": max(_or(request.top_p, defaults.top_p), TINY_TOP_P),
        "min_p": _or(request.min_p, defaults.min_p),
        "presence_penalty": _or(request.presence_penalty, 0.0),
        "frequency_penalty": _or(request.frequency_penalty, 0.0),
        "repetition_penalty": _or(
            _or(request.repetition_penalty, request.repeat_penalty), defaults.repetition_penalty
        ),
        "logit_bias": request.logit_bias or [],
        # The core counts seeds from 0; a negative one is another name for one of those.
        "seed": None if request.seed is None else request.seed % 2**63,
        "ignore_eos": bool(request.ignore_eos),
        "close_at_limit": request.at_limit != "cut",
        "removed_mass": bool(request.return_removed_mass),
        "stop": request.stop or [],
        "stop_token_ids": request.stop_token_ids or [],
        "include_stop": bool(request.include_stop_str_in_output),
        "include_usage": bool(request.stream_options and request.stream_options.include_usage),
        "prompt_top": request.prompt_logprobs,
        "token_ids": bool(request.return_token_ids),
    }


def continuous_usage(request: GenerationFields) -> bool:
    """Whether every chunk of a stream is to have the token counts so far."""
    options = request.stream_options
    return options is not None and bool(options.include_usage and options.continuous_usage_stats)


def check_prompt_logprobs(request: GenerationFields, supported: bool) -> None:
    """Checks ``prompt_logprobs``.

    Raises:
        RequestError: the engine has none, or the answer is streamed.
    """
    if request.prompt_logprobs is None:
        return
    if request.stream:
        raise RequestError("prompt_logprobs is not available with stream.", "prompt_logprobs")
    if not supported:
        raise RequestError("This engine has no log-probabilities of the prompt.", "prompt_logprobs")


PASSED_ON = (
    "bad_words",
    "priority",
    "allotted_time_ms",
    "no_repeat_ngram_size",
    "top_p_decay",
    "top_p_min",
    "top_p_reset_ids",
)
"""Fields that the core takes as they are."""


class EngineArguments(TypedDict, total=False):
    """What only some engines honour; for the others the core refuses them."""

    bad_words: list[str]
    priority: float
    cache_salt: int
    allotted_time_ms: int
    no_repeat_ngram_size: int
    top_p_decay: float
    top_p_min: float
    top_p_reset_ids: int
    kv_cache_retention: list[tuple[int, int | None, int, int | None]]
    decode_retention: tuple[int, int | None]


def engine_arguments(request: GenerationFields) -> EngineArguments:
    """Those of them that a request asks for.

    Raises:
        RequestError: a field needs another that is missing.
    """
    given = {name: getattr(request, name) for name in PASSED_ON}
    arguments = cast(EngineArguments, {name: value for name, value in given.items() if value is not None})
    if request.cache_salt is not None:
        digest = hashlib.blake2b(request.cache_salt.encode(errors="surrogatepass"), digest_size=8).digest()
        arguments["cache_salt"] = int.from_bytes(digest, "little")
    if request.kv_cache_retention is not None:
        arguments.update(_retention(request.kv_cache_retention))
    return arguments


def _retention(given: KvCacheRetention) -> EngineArguments:
    arguments: EngineArguments = {}
    if given.token_range_retention_configs:
        arguments["kv_cache_retention"] = [
            (one.token_start, one.token_end, one.priority, one.duration_ms)
            for one in given.token_range_retention_configs
        ]
    if given.decode_retention_priority is not None:
        arguments["decode_retention"] = (given.decode_retention_priority, given.decode_duration_ms)
    elif given.decode_duration_ms is not None:
        raise RequestError(
            "decode_duration_ms needs decode_retention_priority.", "kv_cache_retention.decode_duration_ms"
        )
    return arguments


def asked_tokens(request: GenerationFields, default: int | None = None) -> int | None:
    """The most tokens of an answer that a request asks for under any name; -1 is no limit, ``None`` nothing.

    Args:
        request: what the client sent.
        default: counts against ``min_tokens`` where the client does not say.

    Raises:
        RequestError: ``min_tokens`` is above it.
    """
    for name in ("max_completion_tokens", "max_tokens", "n_predict"):
        asked: int | None = getattr(request, name, None)
        if asked is not None:
            break
    else:
        name = "max_tokens"
    most = default if asked is None else asked
    if request.min_tokens is not None and most is not None and 0 <= most < request.min_tokens:
        raise RequestError(f"min_tokens is greater than {name}.", "min_tokens")
    return asked


def most_prompt_tokens(request: GenerationFields, context: int, asked: int | None) -> int | None:
    """To how many tokens a longer prompt is shortened; ``None``: it is not.

    Args:
        request: what the client sent.
        context: most tokens of prompt and answer together.
        asked: most tokens of the answer, if the client says; -1 is no limit.
    """
    most = request.truncate_prompt_tokens
    if most is None or most > 0:
        return most
    return max(context - max(asked or 0, 1), 1)


def check_choices(n: int, prompts: int, most: int) -> int:
    """The number of sequences of a request.

    Raises:
        RequestError: it is above the server's limit.
    """
    sequences = n * prompts
    if sequences > most:
        what = "n" if prompts == 1 else "n times the number of prompts"
        raise RequestError(
            f"{what} is {sequences}; this server allows at most {most}.", "n" if n > 1 else "prompt"
        )
    return sequences


def new_response_id(prefix: str) -> str:
    """A unique response id such as ``chatcmpl-...``."""
    return f"{prefix}-{uuid.uuid4().hex}"


def now() -> int:
    """Seconds since the epoch, for ``created``."""
    return int(time.time())


def _or(value: Any, default: Any) -> Any:
    return default if value is None else value
