"""Popular forms of chat templates give byte for byte what stock ``transformers`` makes of them.

The goldens were rendered once by ``tests/data/chat_templates/render.py``.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from llgtrt.chat import ChatError, ChatTemplate

FOLDER = Path(__file__).parents[2] / "data" / "chat_templates"
DATA: dict[str, Any] = json.loads((FOLDER / "goldens.json").read_text(encoding="utf-8"))
CASES = [(template, name) for template, rendered in DATA["goldens"].items() for name in rendered]
SPECIAL_TOKENS = ["<s>", "</s>", "<|im_start|>", "<|im_end|>", "<|eot_id|>", "<end_of_turn>"]


@cache
def load(template: str) -> ChatTemplate:
    source = (FOLDER / f"{template}.jinja").read_text(encoding="utf-8")
    return ChatTemplate(source, name=template, tokens=DATA["tokens"], special_tokens=SPECIAL_TOKENS)


@pytest.mark.parametrize(("template", "name"), CASES)
def test_template(template: str, name: str) -> None:
    golden: str | None = DATA["goldens"][template][name]
    arguments = dict(DATA["conversations"][name])
    messages = arguments.pop("messages")
    if golden is None:
        with pytest.raises(ChatError):
            load(template).render(messages, **arguments)
        return
    prompt = load(template).render(messages, **arguments)
    assert prompt.expanded == golden
    assert prompt.add_special is not golden.startswith("<s>")


@pytest.mark.parametrize("template", sorted(DATA["goldens"]))
def test_parts_and_arguments_as_text_are_the_same(template: str) -> None:
    """Clients send contents as texts or parts, and arguments as JSON text."""
    for name in DATA["goldens"][template]:
        golden = DATA["goldens"][template][name]
        if golden is None:
            continue
        arguments = dict(DATA["conversations"][name])
        messages = json.loads(json.dumps(arguments.pop("messages")))
        for message in messages:
            if isinstance(message["content"], str) and message["content"]:
                message["content"] = [{"type": "text", "text": message["content"]}]
            for call in message.get("tool_calls", ()):
                call["function"]["arguments"] = json.dumps(call["function"]["arguments"])
        assert load(template).render(messages, **arguments).expanded == golden, name


def test_every_template_has_its_goldens() -> None:
    assert {path.stem for path in FOLDER.glob("*.jinja")} == set(DATA["goldens"])
    assert len(DATA["goldens"]) >= 30
    assert all(len(rendered) >= 8 for rendered in DATA["goldens"].values())
