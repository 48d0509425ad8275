"""What answers of the core are worth to pydantic: its own parser takes them."""

from __future__ import annotations

import json

import pytest
from pydantic import TypeAdapter

from llgtrt import _native
from support.core import Core
from support.pydantic_types import LOOSER, TYPES

OPEN = {"set_str", "frozenset", "dict_bounded"}


@pytest.mark.parametrize("name", [name for name in TYPES if name not in LOOSER | OPEN])
def test_random_answers_parse(core: Core, name: str) -> None:
    adapter = TypeAdapter(TYPES[name])
    grammar = _native.GrammarSpec.json_schema(json.dumps(adapter.json_schema()))
    finished = 0
    for seed in range(6):
        (delta,) = core.finish(core.submit(output="final", grammar=grammar, seed=seed, max_tokens=300))
        assert delta.error is None
        choice = delta.choices[0]
        if choice.finish_reason == "stop":
            finished += 1
            adapter.validate_json(choice.text)
    assert finished > 0


def test_all_other_types_are_taken(core: Core) -> None:
    for name in LOOSER | OPEN:
        schema = TypeAdapter(TYPES[name]).json_schema()
        if name in OPEN:
            schema["x-guidance"] = {"residual": "verify"}
        grammar = _native.GrammarSpec.json_schema(json.dumps(schema))
        (delta,) = core.finish(
            core.submit(output="final", grammar=grammar, seed=1, max_tokens=1, at_limit="cut")
        )
        assert delta.error is None, name
