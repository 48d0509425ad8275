"""From the bytes of a body to a request model, or one error that says what is wrong and where."""

from __future__ import annotations

import logging
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from llgtrt.patient_json import parse_json
from llgtrt.serving.errors import RequestError, quote
from llgtrt.serving.protocol.constraint_fields import is_unknown_constraint
from llgtrt.serving.protocol.fields import GenerationFields, RequestModel

logger = logging.getLogger("llgtrt.serving")

REFUSED_FIELDS = {
    "audio": "Audio is not supported.",
    "chat_template": "A request cannot bring a chat template; the server's configuration sets it.",
    "custom_logit_processor": "Logit processors in requests are not accepted.",
    "logits_processors": "Logit processors in requests are not accepted.",
    "lora_path": "A request names a LoRA adapter with lora_model.",
    "prompt_embeds": "Prompt embeddings are not accepted.",
    "prompt_token_ids": "Token ids go into the prompt of /v1/completions.",
}
"""Fields that are no constraint, but without which a client would get something else than it asked for."""

_SAMPLERS = "temperature, top_k, top_p, min_p and penalties are what samples here"
_APART = "thoughts are always apart from the answer, in reasoning_content"
_COMPLETIONS = "it is a field of /v1/completions"
_BAN = "give each of them a logit_bias of -100"

UNSUPPORTED: dict[str, tuple[tuple[Any, ...], str]] = {
    "adaptive_target": ((-1,), _SAMPLERS),
    "ban_eos_token": ((False,), "ignore_eos is the name of it"),
    "banned_tokens": (([], ""), _BAN),
    "custom_token_bans": (([], ""), _BAN),
    "detokenize": ((True,), "return_token_ids gives the tokens beside the text"),
    "dry_multiplier": ((0,), _SAMPLERS),
    "dynatemp_range": ((0,), _SAMPLERS),
    "echo": ((False,), _COMPLETIONS),
    "lora": (([],), "lora_model names an adapter"),
    "mirostat": ((0,), _SAMPLERS),
    "n_probs": ((0,), "logprobs of chat and of /v1/completions gives them"),
    "no_stop_trim": ((False,), "include_stop_str_in_output is the name of it"),
    "post_sampling_probs": ((False,), "log-probabilities are those before sampling"),
    "reasoning_format": (("auto", "deepseek"), _APART),
    "return_hidden_states": ((False,), "/v1/embeddings gives vectors of texts"),
    "return_tokens_as_token_ids": ((False,), "return_token_ids gives the tokens"),
    "samplers": (([],), _SAMPLERS),
    "separate_reasoning": ((True,), _APART),
    "stop_regex": (([], ""), "a regular expression as the constraint of the answer can do the same"),
    "suffix": (("",), _COMPLETIONS),
    "tfs_z": ((1,), _SAMPLERS),
    "top_a": ((0,), _SAMPLERS),
    "top_n_sigma": ((-1, 0), _SAMPLERS),
    "typical_p": ((1,), _SAMPLERS),
    "xtc_probability": ((0,), _SAMPLERS),
}
"""Fields of other servers that this one, or a route of it, does not have: the values that ask for nothing,
and what does the same or nearly so."""

MAX_FIELDS = 256
"""Far more than exist; a body of a million unknown fields would take a second to look at."""
MAX_REPORTED = 5
MAX_LOGGED_FIELDS = 1000

Model = TypeVar("Model", bound=BaseModel)

_logged_fields: set[str] = set()


def parse_request(model: type[Model], body: bytes | bytearray) -> Model:
    """Reads and checks a body.

    Raises:
        RequestError: it is not JSON, not an object, or a field is wrong.
    """
    try:
        value = parse_json(body)
    except ValueError as error:
        raise RequestError(f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise RequestError("The body must be a JSON object.", code="invalid_json")
    request = validate_request(model, value)
    if isinstance(request, RequestModel):
        request._body_bytes = len(body)
    return request


def validate_request(model: type[Model], value: dict[str, Any]) -> Model:
    """Checks the members of a body.

    Raises:
        RequestError: a field is wrong; the message lists the first few.
    """
    if len(value) > MAX_FIELDS:
        raise RequestError(f"The body may hold at most {MAX_FIELDS} fields.")
    try:
        request = model.model_validate(value)
    except ValidationError as error:
        raise _request_error(error, value) from None
    if isinstance(request, GenerationFields):
        _check_unknown(request)
    return request


def _check_unknown(request: GenerationFields) -> None:
    for name, value in (request.model_extra or {}).items():
        if value is None:
            continue
        if name in REFUSED_FIELDS:
            raise RequestError(REFUSED_FIELDS[name], name)
        if name in UNSUPPORTED and value not in UNSUPPORTED[name][0]:
            raise RequestError(f"{name} is not supported here: {UNSUPPORTED[name][1]}.", name)
        if is_unknown_constraint(name):
            raise RequestError(
                f"{name[:100]}: this constraint is not supported. Use response_format, structured_outputs, "
                "guided_json, guided_regex, guided_choice or guided_grammar.",
                name[:100],
            )
        if name not in _logged_fields and len(_logged_fields) < MAX_LOGGED_FIELDS:
            _logged_fields.add(name[:100])
            logger.info("ignoring the unknown request field %s (logged once)", quote(name))


def _request_error(error: ValidationError, body: dict[str, Any]) -> RequestError:
    problems: dict[str, list[str]] = {}
    for details in error.errors(include_url=False, include_context=False, include_input=True):
        path, value = _locate(details, body)
        message = _describe(details, value)
        if message not in problems.setdefault(path, []):
            problems[path].append(message)
    parts = [f"{path}: {', or '.join(messages)}" for path, messages in problems.items()]
    text = "; ".join(parts[:MAX_REPORTED])
    if len(parts) > MAX_REPORTED:
        text += f"; and {len(parts) - MAX_REPORTED} more"
    return RequestError(text + ".", next(iter(problems)))


def _locate(details: ErrorDetails, body: dict[str, Any]) -> tuple[str, Any]:
    """The dotted path of an error, without pydantic's names of union members, and the value there."""
    path = ""
    value: Any = body
    for part in details["loc"]:
        if isinstance(part, int):
            if isinstance(value, list) and part < len(value):
                value = value[part]
                path += f"[{part}]"
        elif isinstance(value, dict) and (part in value or details["type"] == "missing"):
            value = value.get(part)
            path += f".{part[:60]}" if path else part[:60]
    return path, value


_TYPE_NAMES = {dict: "an object", list: "an array", str: "a string", bool: "a boolean", int: "an integer"}


def _describe(details: ErrorDetails, value: Any) -> str:
    kind = details["type"]
    if kind == "missing":
        return "this field is required"
    if kind == "extra_forbidden":
        return "this field is not known here"
    if kind == "too_short":
        return "must not be empty"
    message = (
        details["msg"].replace("Input should be ", "must be ").replace("a valid dictionary", "an object")
    )
    message = (
        message.replace("a valid list", "an array")
        .replace("a valid ", "a ")
        .replace("a integer", "an integer")
    )
    if kind.endswith("_type"):
        return f"{message}, not {_TYPE_NAMES.get(type(value), 'a number' if value is not None else 'null')}"
    return message[:200]
