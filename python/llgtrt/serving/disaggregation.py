"""Answers that two servers make: one evaluates the prompt, the other generates, an orchestrator asks both.

The fields, and the form of what is answered, are those of trtllm-serve's own servers, whose orchestrator
refuses members that it does not know. What goes into the engine's own code comes back from an HTTP client, so
it is sealed: only who has the key can have made it, for these tokens of this model.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pydantic_core import to_json

from llgtrt.engine import ChoiceDelta, Delta, Handover
from llgtrt.serving.errors import RequestError
from llgtrt.serving.protocol.disaggregation import DisaggregatedParams
from llgtrt.serving.protocol.fields import GenerationFields

FIELD = "disaggregated_params"
STATE_FIELD = f"{FIELD}.encoded_opaque_state"
MAC_BYTES = 32
PURPOSE = b"llgtrt disaggregated state 1\n"

RESPONSE_MEMBERS = ("id", "object", "created", "model", "choices", "usage", "prompt_token_ids")
CHOICE_MEMBERS = ("index", "text", "message", "logprobs", "finish_reason", "stop_reason", FIELD)
MESSAGE_MEMBERS = ("role", "content", "reasoning_content", "tool_calls")
USAGE_MEMBERS = ("prompt_tokens", "completion_tokens", "total_tokens")

UNDIVIDED = (
    "use_beam_search",
    "logprobs",
    "top_logprobs",
    "prompt_logprobs",
    "echo",
    "suffix",
    "logits_processors",
)
"""What belongs to one place: a beam or a log-probability of the first token stays where it was computed."""


@dataclass(frozen=True, slots=True)
class Part:
    """Which part of an answer a request is for.

    Attributes:
        context: the prompt and the first token; otherwise what comes behind it.
        params: what the client says of it.
        model: what the state belongs to: the model's name and the adapter's.
    """

    context: bool
    params: DisaggregatedParams
    model: tuple[str, str | None]


class Disaggregation:
    """What a server does of divided answers, and the seal of what is handed over.

    Args:
        phases: what it does: ``context``, ``generation``.
        key: that all servers of a model share.
        max_state_bytes: largest state that is taken.
    """

    def __init__(self, phases: frozenset[str], key: bytes, max_state_bytes: int) -> None:
        self._phases = phases
        self._key = key
        self._max_state_bytes = max_state_bytes

    def part(
        self, request: GenerationFields, params: DisaggregatedParams, model: str, adapter: str | None
    ) -> Part:
        """The part that a request is for.

        Raises:
            RequestError: this server does not do it, or the request asks for more than can be divided.
        """
        phase = params.request_type.removesuffix("_only")
        if phase not in self._phases:
            raise RequestError(
                f"{FIELD}.request_type: this server does not do the {phase} phase (disaggregation.role).",
                f"{FIELD}.request_type",
            )
        if params.schedule_style not in (None, 0, "context_first"):
            raise RequestError("The context server has to be asked first.", f"{FIELD}.schedule_style")
        context = phase == "context"
        if context and request.stream:
            raise RequestError("stream: a context_only answer is not streamed.", "stream")
        for name in ("n", "best_of"):
            if (getattr(request, name, None) or 1) > 1:
                raise RequestError(f"{name} above 1 cannot be combined with {FIELD}.", name)
        for name in UNDIVIDED:
            value = getattr(request, name, None)
            # Zero alternatives are log-probabilities too, but not in a chat.
            if value or (value == 0 and value is not False and name in ("logprobs", "prompt_logprobs")):
                raise RequestError(f"{name} cannot be combined with {FIELD}.", name)
        return Part(context, params, (model, adapter))

    def open(self, part: Part, prompt: list[int]) -> Handover:
        """What the context server handed over.

        Args:
            part: the part of the answer.
            prompt: the prompt's tokens, as the context server returned them.

        Raises:
            RequestError: something is missing, or was not sealed by a server with this key, for this prompt
                and these tokens.
        """
        params = part.params
        if not params.first_gen_tokens:
            raise _missing("first_gen_tokens")
        if params.ctx_request_id is None:
            raise _missing("ctx_request_id")
        if params.encoded_opaque_state is None:
            raise _missing("encoded_opaque_state")
        sealed = self._decoded(params.encoded_opaque_state)
        state = sealed[MAC_BYTES:]
        drafts = params.draft_tokens or []
        handover = Handover(params.ctx_request_id, params.first_gen_tokens, drafts, state)
        if not hmac.compare_digest(sealed[:MAC_BYTES], self._mac(handover, prompt, part.model)):
            raise RequestError(
                "The state was not made with this server's key for this model, this prompt and these tokens.",
                STATE_FIELD,
            )
        return handover

    def seal(self, handover: Handover, prompt: list[int], part: Part) -> str:
        """What :meth:`open` takes, as text."""
        return base64.b64encode(self._mac(handover, prompt, part.model) + handover.state).decode()

    def _decoded(self, text: str) -> bytes:
        too_large = f"The state has more than {self._max_state_bytes} bytes (disaggregation.max_state_bytes)."
        if len(text) > (self._max_state_bytes + MAC_BYTES + 2) // 3 * 4:
            raise RequestError(too_large, STATE_FIELD)
        try:
            sealed = base64.b64decode(text.encode(), validate=True)
        except (binascii.Error, UnicodeEncodeError) as error:
            raise RequestError("The state is not base64.", STATE_FIELD) from error
        return sealed

    def _mac(self, handover: Handover, prompt: list[int], model: tuple[str, str | None]) -> bytes:
        numbers = b"".join(token.to_bytes(4, "little") for token in prompt)
        about = to_json(
            [
                *model,
                handover.request_id,
                handover.first_tokens,
                handover.draft_tokens,
                hashlib.sha256(numbers).hexdigest(),
            ]
        )
        # JSON holds no line break: where it ends is certain.
        return hmac.new(self._key, PURPOSE + about + b"\n" + handover.state, hashlib.sha256).digest()


def _missing(name: str) -> RequestError:
    return RequestError(f"generation_only needs {FIELD}.{name}.", f"{FIELD}.{name}")


def requested_part(
    disaggregation: Disaggregation | None,
    request: GenerationFields,
    params: DisaggregatedParams | None,
    model: str,
    adapter: str | None,
) -> Part | None:
    """The part of its answer that a request is for; ``None``: all of it.

    Raises:
        RequestError: as :meth:`Disaggregation.part`, or this server divides nothing.
    """
    if params is None or params.request_type == "context_and_generation":
        return None
    if disaggregation is None:
        raise RequestError(
            "This server divides no answers with others: disaggregation.role is not set.", FIELD
        )
    return disaggregation.part(request, params, model, adapter)


def response_of_part(
    disaggregation: Disaggregation, part: Part, build: Callable[[Delta], dict[str, Any]], *, chat: bool
) -> Callable[[Delta], dict[str, Any]]:
    """What builds the response object of a part, in trtllm-serve's form.

    Args:
        disaggregation: seals what is handed over.
        part: the part.
        build: builds the object in this server's own form.
        chat: of a chat, whose prompt is one list of tokens; that of a completion is a list of lists.
    """

    def of_context(delta: Delta) -> dict[str, Any]:
        response = build(delta)
        choice = delta.choices[0]
        prompt = choice.prompt_token_ids or []
        response["prompt_token_ids"] = prompt if chat else [prompt]
        response["choices"][0][FIELD] = _params(disaggregation, part, choice, prompt)
        return in_trtllm_form(response)

    def of_generation(delta: Delta) -> dict[str, Any]:
        return in_trtllm_form(build(delta))

    return of_context if part.context else of_generation


def _params(
    disaggregation: Disaggregation, part: Part, choice: ChoiceDelta, prompt: list[int]
) -> dict[str, Any]:
    """What the orchestrator hands to the generation server."""
    params: dict[str, Any] = {"request_type": "context_only"}
    if choice.handover is None:
        # The answer is whole: nobody goes on. An orchestrator wants an id all the same.
        return {**params, "first_gen_tokens": choice.token_ids, "ctx_request_id": 0}
    handover = Handover(*choice.handover)
    return {
        **params,
        "first_gen_tokens": handover.first_tokens,
        "ctx_request_id": handover.request_id,
        "encoded_opaque_state": disaggregation.seal(handover, prompt, part),
        "draft_tokens": handover.draft_tokens or None,
    }


def in_trtllm_form(response: dict[str, Any]) -> dict[str, Any]:
    """A response object with the members that trtllm-serve's orchestrator knows: it refuses others."""
    response = _with(response, RESPONSE_MEMBERS)
    response["usage"] = _with(response["usage"], USAGE_MEMBERS)
    response["choices"] = [_with(choice, CHOICE_MEMBERS) for choice in response["choices"]]
    for choice in response["choices"]:
        if "message" in choice:
            choice["message"] = _with(choice["message"], MESSAGE_MEMBERS)
    return response


def _with(members: dict[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    return {name: members[name] for name in names if name in members}
