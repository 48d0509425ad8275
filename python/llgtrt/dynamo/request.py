"""What Dynamo's frontend sends: token ids, and what is asked of the answer.

Every member is honoured or refused with its path; members that no version of the frontend had are refused as
soon as they say something, unless they lie where only routers read.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from llgtrt.serving.errors import RequestError, quote
from llgtrt.serving.protocol.fields import GenerationFields
from llgtrt.serving.protocol.parse import validate_request

PROBE = "_HEALTH_CHECK"
"""Member that marks the runtime's own health check."""

ANNOTATION = "llgtrt:"
"""How an annotation begins that holds a constraint (docs/dynamo.md)."""

SAMPLING = "sampling_options"
STOPPING = "stop_conditions"
OUTPUT = "output_options"

_FIELDS = {
    **{
        name: f"{SAMPLING}.{name}"
        for name in (
            "n",
            "presence_penalty",
            "frequency_penalty",
            "repetition_penalty",
            "temperature",
            "top_p",
            "top_k",
            "min_p",
            "seed",
            "include_stop_str_in_output",
        )
    },
    **{name: f"{STOPPING}.{name}" for name in ("max_tokens", "stop", "min_tokens", "ignore_eos")},
    "stop_token_ids": f"{STOPPING}.stop_token_ids",
    "cache_salt": "routing.cache_salt",
}
"""Fields of a request to the server that have the same meaning, and where Dynamo has them."""

_NEUTRAL: dict[str, tuple[Any, ...]] = {
    f"{SAMPLING}.use_beam_search": (False,),
    f"{SAMPLING}.length_penalty": (1,),
    f"{STOPPING}.stop_token_ids_visible": ([],),
    f"{OUTPUT}.prompt_logprobs": (),
    "prefill_result": (),
    "bootstrap_info": (),
    "encoder_result": (),
    "prompt_embeds": ("",),
    "multi_modal_data": ({},),
    "multi_modal_uuids": ({},),
    "mm_processor_kwargs": ({},),
}
"""What is not done here, and the values that ask for nothing."""

_READ_ELSEWHERE = frozenset(
    {
        f"{SAMPLING}.best_of",
        f"{SAMPLING}.guided_decoding",
        f"{STOPPING}.stop_token_ids_hidden",
        f"{STOPPING}.max_thinking_tokens",
        f"{OUTPUT}.logprobs",
        f"{OUTPUT}.skip_special_tokens",
        # The frontend does both: it has the prompt's text, and it writes the log-probabilities.
        f"{OUTPUT}.formatted_prompt",
        f"{OUTPUT}.return_tokens_as_token_ids",
        f"{OUTPUT}.no_stop_trim",
    }
)


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was read, before anything of the model is known.

    Attributes:
        tokens: the prompt; the last ``generated_tokens`` of them are the beginning of the answer.
        fields: sampling and limits, with the names of the server's API.
        guided: Dynamo's ``guided_decoding``, without members that are null; empty: free text.
        guided_path: where that stands in the request.
        logprobs: alternatives per token; None: no log-probabilities.
        control_text: control tokens are part of the text.
        reasoning: the model thinks before a constrained answer.
        thinking_tokens: how long the thinking may be.
        adapter: the LoRA adapter.
        probe: the runtime looks whether the worker answers.
    """

    tokens: list[int]
    fields: GenerationFields
    guided: dict[str, Any]
    guided_path: str
    generated_tokens: int = 0
    logprobs: int | None = None
    control_text: bool = False
    reasoning: bool = False
    thinking_tokens: int | None = None
    adapter: str | None = None
    probe: bool = False


def read_request(request: Mapping[str, Any], end_tokens: Iterable[int] = ()) -> Asked:
    """Checks a request.

    Args:
        request: as the frontend sends it; nobody checked it.
        end_tokens: the tokens that end answers anyway, as the frontend was told.

    Raises:
        RequestError: a member is wrong or asks for something that is not done here.
    """
    tokens = request.get("token_ids")
    if not isinstance(tokens, list) or not tokens or not all(type(token) is int for token in tokens):
        raise RequestError("token_ids must be an array of token ids, and not empty.", "token_ids")
    sampling, stopping = _section(request, SAMPLING), _section(request, STOPPING)
    output, routing = _section(request, OUTPUT), _section(request, "routing")
    _refuse_unsupported(request)
    for name, members in ((SAMPLING, sampling), (STOPPING, stopping), (OUTPUT, output)):
        _refuse_unknown(name, members)
    best_of, n = sampling.get("best_of"), sampling.get("n")
    if best_of not in (None, 0, 1) and best_of != (n or 1):
        raise RequestError("best_of is only supported where it equals n.", f"{SAMPLING}.best_of")
    hidden = _token_list(stopping, "stop_token_ids_hidden")
    own = set(end_tokens) | set(_token_list(request, "eos_token_ids"))
    stop_tokens = [*_token_list(stopping, "stop_token_ids"), *(one for one in hidden if one not in own)]
    values = {
        field: _at(request, path)
        for field, path in _FIELDS.items()
        if field != "stop_token_ids" and _at(request, path) is not None
    }
    if stop_tokens:
        values["stop_token_ids"] = stop_tokens
    if output.get("no_stop_trim"):
        values["include_stop_str_in_output"] = True
    guided, path, generated = _guided(request, sampling, values.get("max_tokens"))
    return Asked(
        tokens=tokens,
        fields=_fields(values),
        guided=guided,
        guided_path=path,
        generated_tokens=generated,
        logprobs=_count(output, "logprobs", OUTPUT, 20),
        control_text=output.get("skip_special_tokens") is False,
        reasoning=request.get("require_reasoning") is True,
        thinking_tokens=_count(stopping, "max_thinking_tokens", STOPPING, 2**31 - 1),
        adapter=_text(routing, "lora_name", "routing"),
        probe=request.get(PROBE) is True,
    )


def _section(request: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = request.get(name)
    if value is None:
        return {}
    if not isinstance(value, Mapping):
        raise RequestError(f"{name} must be an object.", name)
    return value


def _at(request: Mapping[str, Any], path: str) -> Any:
    value: Any = request
    for part in path.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _refuse_unsupported(request: Mapping[str, Any]) -> None:
    for path, neutral in _NEUTRAL.items():
        value = _at(request, path)
        if value is not None and value not in neutral:
            raise RequestError(f"{path} is not supported by this worker.", path)


def _refuse_unknown(section: str, members: Mapping[str, Any]) -> None:
    known = _READ_ELSEWHERE | _NEUTRAL.keys() | set(_FIELDS.values())
    for name, value in members.items():
        if value is not None and f"{section}.{name}" not in known:
            raise RequestError(f"{quote(name)} is not known to this worker.", f"{section}.{name[:60]}")


def _fields(values: dict[str, Any]) -> GenerationFields:
    try:
        return validate_request(GenerationFields, values)
    except RequestError as error:
        field, dot, rest = (error.param or "").partition(".")
        name, bracket, place = field.partition("[")
        param = _FIELDS.get(name, name) + bracket + place + dot + rest
        raise RequestError(error.message, param or None, error.code) from None


def _guided(
    request: Mapping[str, Any], sampling: Mapping[str, Any], max_tokens: Any
) -> tuple[dict[str, Any], str, int]:
    """The constraint, where it stands, and how many tokens of the answer are in the prompt already."""
    path = f"{SAMPLING}.guided_decoding"
    guided = _section({path: sampling.get("guided_decoding")}, path)
    annotations = request.get("annotations")
    found = [
        (f"annotations[{index}]", one)
        for index, one in enumerate(annotations if isinstance(annotations, list) else [])
        if isinstance(one, str) and one.startswith(ANNOTATION)
    ]
    if not found:
        return _given(guided), path, 0
    path, text = found[0]
    if len(found) > 1 or guided:
        raise RequestError(f"{found[-1][0]}: the request has a constraint already.", found[-1][0])
    try:
        annotation = json.loads(text[len(ANNOTATION) :])
    except ValueError as error:
        raise RequestError(f"{path} is not JSON behind {ANNOTATION!r}: {error}.", path) from None
    if not isinstance(annotation, dict) or annotation.keys() != {"guided_decoding", "max_tokens"}:
        raise RequestError(f"{path} needs the members guided_decoding and max_tokens.", path)
    first = annotation["max_tokens"]
    if type(first) is not int or type(max_tokens) is not int or not 0 < max_tokens <= first:
        # The frontend counts max_tokens down as tokens come: the difference is what was generated.
        raise RequestError(f"{path}.max_tokens must be the request's max_tokens.", f"{path}.max_tokens")
    path = f"{path}.guided_decoding"
    return _given(_section({path: annotation["guided_decoding"]}, path)), path, first - max_tokens


def _given(members: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in members.items() if value is not None}


def _token_list(members: Mapping[str, Any], name: str) -> list[int]:
    value = members.get(name)
    if value is None:
        return []
    if not isinstance(value, list) or not all(type(token) is int for token in value):
        raise RequestError(f"{name} must be an array of token ids.", f"{STOPPING}.{name}")
    return value


def _count(members: Mapping[str, Any], name: str, section: str, most: int) -> int | None:
    value = members.get(name)
    if value is None:
        return None
    if type(value) is not int or not 0 <= value <= most:
        raise RequestError(f"{name} must be a number from 0 to {most}.", f"{section}.{name}")
    return value


def _text(members: Mapping[str, Any], name: str, section: str) -> str | None:
    value = members.get(name)
    if value is not None and not isinstance(value, str):
        raise RequestError(f"{name} must be a string.", f"{section}.{name}")
    return value or None
