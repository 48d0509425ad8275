"""Receipts and summaries as they cross from the core."""

from __future__ import annotations

import json
from typing import Any

import pytest

from llgtrt import _native
from support.core import Core

SCHEMA = json.dumps({"type": "array", "items": {"enum": ["a", "b"]}, "minItems": 1, "maxItems": 3})


def test_a_receipt_is_json_on_the_last_delta_of_its_choice(core: Core) -> None:
    grammar = _native.GrammarSpec.json_schema(SCHEMA)
    handle = core.submit(grammar=grammar, receipt="mine", n=2, seed=1, max_tokens=60)
    deltas = core.finish(handle)
    receipts: dict[int, Any] = {}
    for delta in deltas:
        for choice in delta.choices:
            assert (choice.constraint is not None) == (choice.finish_reason is not None)
            if choice.constraint is not None:
                receipts[choice.index] = json.loads(choice.constraint)
    assert [receipts[index]["kind"] for index in (0, 1)] == ["mine", "mine"]
    usage = deltas[-1].usage
    assert usage is not None
    counted = sum(one["sampled_tokens"] + one["forced_tokens"] for one in receipts.values())
    assert counted == usage.completion_tokens
    assert sum(one["forced_tokens"] for one in receipts.values()) == usage.forced_tokens


@pytest.mark.parametrize("fields", [{}, {"receipt": "free"}])
def test_there_is_none_without_a_constraint_or_a_wish(core: Core, fields: dict[str, Any]) -> None:
    grammar = None if fields else _native.GrammarSpec.json_schema(SCHEMA)
    deltas = core.finish(core.submit(grammar=grammar, max_tokens=60, **fields))
    assert all(choice.constraint is None for delta in deltas for choice in delta.choices)


def test_a_summary_knows_counts_reasons_and_moments(core: Core) -> None:
    handle = core.submit(grammar=_native.GrammarSpec.json_schema(SCHEMA), n=2, max_tokens=60)
    usage = core.finish(handle)[-1].usage
    summary = handle.summary()
    assert usage is not None
    for name in ("prompt_tokens", "completion_tokens", "cached_tokens", "forced_tokens"):
        assert getattr(summary.usage, name) == getattr(usage, name)
    assert len(summary.finish_reasons) == 2
    assert summary.compile_s is not None
    moments = [0.0, *summary.compile_s, summary.started_s, summary.first_token_s, summary.ended_s]
    known = [moment for moment in moments if moment is not None]
    assert len(known) == len(moments)
    assert known == sorted(known)


def test_a_request_that_is_refused_or_cancelled_has_an_end(core: Core) -> None:
    refused = core.submit(grammar=_native.GrammarSpec.json_schema('{"type": "nothing"}'))
    core.finish(refused)
    summary = refused.summary()
    assert summary.ended_s is not None
    assert summary.started_s is None
    assert summary.usage.completion_tokens == 0
    cancelled = core.submit(max_tokens=2000, ignore_eos=True)
    cancelled.cancel()
    assert cancelled.summary().ended_s is not None
    assert cancelled.summary().finish_reasons == []
