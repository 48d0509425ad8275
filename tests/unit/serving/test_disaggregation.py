"""The seal of what one server hands over to another, and what may be divided."""

from __future__ import annotations

import base64
from dataclasses import replace
from typing import Any

import pytest

from llgtrt.engine import Handover
from llgtrt.serving.disaggregation import Disaggregation, Part, in_trtllm_form, requested_part
from llgtrt.serving.errors import RequestError
from llgtrt.serving.protocol import CompletionRequest
from llgtrt.serving.protocol.disaggregation import DisaggregatedParams

HANDOVER = Handover(2**64 - 1, [5], [6, 7], b"where the blocks are")
PROMPT = [1, 2, 300]
STATE = "disaggregated_params.encoded_opaque_state"


def servers(phases: str = "context generation", key: bytes = b"k" * 16, most: int = 64) -> Disaggregation:
    return Disaggregation(frozenset(phases.split()), key, most)


def part(sealed: str | None = None, handover: Handover = HANDOVER, model: Any = ("model", None)) -> Part:
    """The part of a generation server that was given what another said."""
    params = DisaggregatedParams(
        request_type="generation_only",
        first_gen_tokens=handover.first_tokens,
        ctx_request_id=handover.request_id,
        draft_tokens=handover.draft_tokens,
        encoded_opaque_state=sealed,
    )
    return Part(False, params, model)


def refused(disaggregation: Disaggregation, given: Part, prompt: list[int]) -> str | None:
    with pytest.raises(RequestError) as caught:
        disaggregation.open(given, prompt)
    return caught.value.param


def test_what_is_sealed_is_opened_by_who_has_the_key() -> None:
    sealed = servers().seal(HANDOVER, PROMPT, part())
    assert servers().open(part(sealed), PROMPT) == HANDOVER
    assert refused(servers(key=b"l" * 16), part(sealed), PROMPT) == STATE


def test_each_thing_that_is_sealed_counts() -> None:
    sealed = servers().seal(HANDOVER, PROMPT, part())
    others = [
        replace(HANDOVER, request_id=1),
        replace(HANDOVER, first_tokens=[5, 6]),
        replace(HANDOVER, draft_tokens=[7]),
    ]
    for other in others:
        assert refused(servers(), part(sealed, other), PROMPT) == STATE
    for model in (("other", None), ("model", "adapter")):
        assert refused(servers(), part(sealed, model=model), PROMPT) == STATE
    assert refused(servers(), part(sealed), [1, 2]) == STATE
    # The state's first byte moved into the MAC's place, and a state without one.
    raw = base64.b64decode(sealed)
    for changed in (raw[1:], raw[:32], raw[:-1], raw + b"\0", b""):
        text = base64.b64encode(changed).decode() or "="
        assert refused(servers(), part(text), PROMPT) == STATE


def test_a_state_has_a_bound() -> None:
    largest = replace(HANDOVER, state=bytes(64))
    sealed = servers().seal(largest, PROMPT, part())
    assert servers().open(part(sealed), PROMPT) == largest
    larger = servers().seal(replace(HANDOVER, state=bytes(67)), PROMPT, part())
    assert refused(servers(), part(larger), PROMPT) == STATE


def test_nothing_is_divided_unless_the_server_was_told_to() -> None:
    request = CompletionRequest(prompt="a")
    context = DisaggregatedParams(request_type="context_only")
    with pytest.raises(RequestError) as caught:
        requested_part(None, request, context, "model", None)
    assert caught.value.param == "disaggregated_params"
    whole = DisaggregatedParams(request_type="context_and_generation")
    assert requested_part(None, request, whole, "model", None) is None
    assert requested_part(servers(), request, None, "model", None) is None
    asked = requested_part(servers(), request, context, "model", "adapter")
    assert asked is not None
    assert asked.context
    assert asked.model == ("model", "adapter")
    with pytest.raises(RequestError) as caught:
        requested_part(servers("generation"), request, context, "model", None)
    assert caught.value.param == "disaggregated_params.request_type"


def test_the_form_is_trtllm_serves() -> None:
    response = {
        "id": "x",
        "system_fingerprint": "y",
        "choices": [{"index": 0, "message": {"content": "a", "refusal": None}, "constraint": {}}],
        "usage": {"prompt_tokens": 1, "prompt_tokens_details": {}},
    }
    assert in_trtllm_form(response) == {
        "id": "x",
        "choices": [{"index": 0, "message": {"content": "a"}}],
        "usage": {"prompt_tokens": 1},
    }
