"""How much a request may ask for, and how it is sampled where it does not say."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TypedDict

from llgtrt.config.generation import SamplingDefaults
from llgtrt.serving.errors import RequestError
from llgtrt.serving.protocol.fields import GenerationFields

OPENAI = SamplingDefaults()
"""OpenAI's defaults."""

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
        """The members for the core.

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
    """Members of the core's request on the length of an answer."""

    max_tokens: int | None
    clamp_max_tokens: bool


def continuous_usage(request: GenerationFields) -> bool:
    """Whether every chunk of a stream is to have the token counts so far."""
    options = request.stream_options
    return options is not None and bool(options.include_usage and options.continuous_usage_stats)


def asked_tokens(request: GenerationFields, default: int | None = None) -> int | None:
    """The most tokens of an answer that a request asks for under any name; -1 is no limit, ``None`` nothing.

    Args:
        request: what the client sent.
        default: counts against ``min_tokens`` where the client does not say.

    Raises:
        RequestError: ``min_tokens`` is above it.
    """
    for name in ("max_completion_tokens", "max_tokens", "n_predict"):
        asked: int | None = request.__dict__.get(name)
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
    return f"{prefix}-{secrets.token_hex(16)}"


def now() -> int:
    """Seconds since the epoch, for ``created``."""
    return int(time.time())
