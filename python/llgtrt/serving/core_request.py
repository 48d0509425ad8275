"""From the fields that the requests of all APIs share to the request of the core, for all of them at once.

A field of one of the groups in :mod:`llgtrt.serving.protocol.fields` crosses under its own name, into the
object of the core's request that the group is for. What the core counts in another way is translated here.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from llgtrt.config.generation import SamplingDefaults
from llgtrt.engine import (
    GenerateRequest,
    GrammarSpec,
    Handover,
    ModelInfo,
    Processors,
    ServerFields,
    generate_request,
)
from llgtrt.hooks import LogitsProcessors, ProcessorArgumentsError
from llgtrt.logs import REQUEST_ID
from llgtrt.serving.errors import RequestError, quote
from llgtrt.serving.output import ResponseHead
from llgtrt.serving.protocol import Constraint
from llgtrt.serving.protocol.fields import (
    EngineFields,
    ExtraSamplingFields,
    GenerationFields,
    KvCacheRetention,
    RequestFields,
    RequestModel,
    SamplingFields,
)
from llgtrt.serving.sampling import OPENAI, TokenLimits, asked_tokens, most_prompt_tokens

if TYPE_CHECKING:
    from typing_extensions import Unpack

TINY_TOP_P = 1e-6
"""What ``top_p: 0`` means: only the most likely token."""

REQUEST, SAMPLING, OPTIONS, EXTRA_SAMPLING = range(4)
GROUPS: tuple[type[RequestModel], ...] = (RequestFields, SamplingFields, EngineFields, ExtraSamplingFields)
"""Of the request itself, its ``sampling``, its ``options`` and their ``sampling``."""

GROUP_OF = {name: number for number, group in enumerate(GROUPS) for name in group.model_fields}
"""The group of each field that crosses as it is."""

DEFAULTED = tuple(SamplingDefaults.__slots__)
"""Fields of which the model's files may say what they are where the request does not."""


@dataclass(slots=True)
class CoreRequest:
    """A request of the core, but for its prompts and what only its API knows.

    Attributes:
        fields: its members so far.
        asked: most tokens of an answer that the client asks for; -1 is no limit, None: it does not say.
        chosen: names of logits processors, with their arguments.
        processors: those that were made of them.
    """

    fields: dict[str, Any]
    asked: int | None
    chosen: list[tuple[str, dict[str, Any]]] = field(default_factory=list)
    processors: Processors | None = None

    @property
    def n(self) -> int:
        """Answers per prompt."""
        return int(self.fields["n"])

    @property
    def max_tokens(self) -> int | None:
        """Most tokens of an answer; None: what is left of the context."""
        most: int | None = self.fields["max_tokens"]
        return most

    @property
    def most_prompt_tokens(self) -> int | None:
        """To how many tokens a longer prompt is shortened; None: it is not."""
        most: int | None = self.fields["most_prompt_tokens"]
        return most

    @property
    def include_usage(self) -> bool:
        """Whether a stream ends with the token counts."""
        return bool(self.fields["include_usage"])

    def follow(self, constraint: Constraint | None) -> None:
        """Takes over what a constraint says of the end of the answer."""
        if constraint is None or not constraint.of_tokens:
            return
        self.fields["at_limit"] = "cut"
        if not constraint.ends:
            self.fields["sampling"]["ignore_eos"] = True

    async def make_processors(self, known: LogitsProcessors, answers: int) -> None:
        """Makes the logits processors that the client chose, for so many answers, on another thread.

        Raises:
            RequestError: a processor does not take the arguments.
        """
        if not self.chosen:
            return
        try:
            made = await asyncio.to_thread(known.make, self.chosen, answers)
        except ProcessorArgumentsError as error:
            raise RequestError(f"logits_processors: {error}.", "logits_processors") from error
        self.processors = Processors(made, known.limit_s)

    def build(
        self,
        prompts: list[str | list[int]],
        *,
        head: ResponseHead | None = None,
        logprobs: int | None = None,
        grammar: GrammarSpec | None = None,
        extras: Mapping[str, Any] | None = None,
        handover: Handover | None = None,
        **server: Unpack[ServerFields],
    ) -> GenerateRequest:
        """The request.

        Args:
            prompts: texts, or token ids.
            head: of the answer, where the core writes it.
            logprobs: alternatives per token; None: no log-probabilities.
            grammar: the constraint.
            extras: what an input processor made beside the tokens.
            handover: what another server handed over.
            server: further members.

        Raises:
            InvalidRequestError: ``extras`` cannot be.
        """
        fields = {**self.fields, **server}
        if head is not None:
            fields.update(head.core_fields())
        if logprobs is not None:
            fields["sampling"] = {**fields["sampling"], "logprobs": logprobs}
        return generate_request(
            fields,
            prompts,
            grammar=grammar,
            extras=extras,
            processors=self.processors,
            handover=handover,
        )


def core_request(
    request: GenerationFields,
    info: ModelInfo,
    limits: TokenLimits,
    defaults: SamplingDefaults = OPENAI,
    *,
    adapter: str | None = None,
    default_tokens: int | None = None,
    processors: LogitsProcessors | None = None,
) -> CoreRequest:
    """What the shared fields of a request say to the core, with defaults where they say nothing.

    Args:
        request: what the client sent.
        info: of the model.
        limits: what the server lets requests ask for.
        defaults: how the model's makers want it sampled.
        adapter: the LoRA adapter.
        default_tokens: tokens of an answer where neither the request nor the server says.
        processors: the logits processors that the request may name.

    Raises:
        RequestError: a token id is outside the vocabulary, fields contradict each other, or the engine has no
            log-probabilities of the prompt.
    """
    _check_token_ids(request, info.vocab_size)
    check_prompt_logprobs(request, info.prompt_logprobs)
    default = None if default_tokens is None else limits.default_max_tokens or default_tokens
    asked = asked_tokens(request, default)
    groups = _given(request)
    stream_options = request.stream_options
    length = limits.max_tokens(asked, default)
    server: ServerFields = {
        "max_tokens": length["max_tokens"],
        "clamp_max_tokens": length["clamp_max_tokens"],
        "most_prompt_tokens": most_prompt_tokens(
            request, info.max_sequence_tokens, default if asked is None else asked
        ),
        "include_usage": stream_options is not None and bool(stream_options.include_usage),
        "request_id": REQUEST_ID.get() or "",
    }
    fields = {"n": 1, **groups[REQUEST], **server, "sampling": _sampling(request, groups[SAMPLING], defaults)}
    options = _options(request, groups[OPTIONS], groups[EXTRA_SAMPLING], adapter)
    if options:
        fields["options"] = options
    return CoreRequest(fields, asked, _chosen(request, info, processors or LogitsProcessors()))


def _given(request: GenerationFields) -> tuple[dict[str, Any], ...]:
    """What the client says, by groups."""
    groups: tuple[dict[str, Any], ...] = ({}, {}, {}, {})
    values = request.__dict__
    for name in request.model_fields_set:
        number = GROUP_OF.get(name)
        if number is not None and (value := values[name]) is not None:
            groups[number][name] = value
    return groups


def _sampling(
    request: GenerationFields, sampling: dict[str, Any], defaults: SamplingDefaults
) -> dict[str, Any]:
    if request.repeat_penalty is not None:
        sampling.setdefault("repetition_penalty", request.repeat_penalty)
    for name in DEFAULTED:
        if name not in sampling:
            sampling[name] = getattr(defaults, name)
    if sampling["top_k"] < 0:
        sampling["top_k"] = 0
    if sampling["top_p"] < TINY_TOP_P:
        sampling["top_p"] = TINY_TOP_P
    return sampling


def _options(
    request: GenerationFields, options: dict[str, Any], sampling: dict[str, Any], adapter: str | None
) -> dict[str, Any]:
    """What only some engines honour; for the others the core refuses it."""
    if sampling:
        options["sampling"] = sampling
    if adapter is not None:
        options["adapter"] = {"name": adapter, "load": request.load_lora_weights or "auto"}
    if request.cache_salt is not None:
        digest = hashlib.blake2b(request.cache_salt.encode(errors="surrogatepass"), digest_size=8).digest()
        options["cache_salt"] = int.from_bytes(digest, "little")
    if request.kv_cache_retention is not None:
        options.update(_retention(request.kv_cache_retention))
    return options


def _retention(given: KvCacheRetention) -> dict[str, Any]:
    retention: dict[str, Any] = {}
    if given.token_range_retention_configs:
        retention["retention"] = [
            {
                "start": one.token_start,
                "end": one.token_end,
                "priority": one.priority,
                "duration_ms": one.duration_ms,
            }
            for one in given.token_range_retention_configs
        ]
    if given.decode_retention_priority is not None:
        retention["decode_retention"] = (given.decode_retention_priority, given.decode_duration_ms)
    elif given.decode_duration_ms is not None:
        raise RequestError(
            "decode_duration_ms needs decode_retention_priority.", "kv_cache_retention.decode_duration_ms"
        )
    return retention


def _chosen(
    request: GenerationFields, info: ModelInfo, known: LogitsProcessors
) -> list[tuple[str, dict[str, Any]]]:
    """The logits processors that a request names, with their arguments."""
    if not request.logits_processors:
        return []
    if not info.host_logits:
        raise RequestError(
            f"logits_processors: the logits of the {info.backend} engine stay on the GPU, where no processor "
            "sees them.",
            "logits_processors",
        )
    for index, one in enumerate(request.logits_processors):
        if one.name not in known.factories:
            offered = f"has {', '.join(sorted(known.factories))}" if known.factories else "has none"
            field_name = f"logits_processors[{index}].name"
            raise RequestError(
                f"There is no logits processor {quote(one.name)}; this server {offered}.", field_name
            )
    return [(one.name, one.args or {}) for one in request.logits_processors]


def _check_token_ids(request: GenerationFields, vocab_size: int) -> None:
    for token, _bias in request.logit_bias or ():
        if token >= vocab_size:
            raise RequestError(
                f"logit_bias: token id {token} is outside the vocabulary of {vocab_size}.",
                f"logit_bias.{token}",
            )
    for name in ("stop_token_ids", "allowed_token_ids"):
        for index, token in enumerate(getattr(request, name) or ()):
            if token >= vocab_size:
                raise RequestError(
                    f"{name}[{index}]: token id {token} is outside the vocabulary of {vocab_size}.",
                    f"{name}[{index}]",
                )


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
