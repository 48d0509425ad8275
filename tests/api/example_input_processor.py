"""An input processor for tests: it does what the last message says."""

from __future__ import annotations

import json
import sys
import threading
from array import array
from pathlib import Path
from typing import Any

from llgtrt.hooks import InputError, InputProcessor, InputRequest, PreparedInput, ProcessorContext


class Example(InputProcessor):
    """Joins the parts of a content; an image is the data of its URL in parentheses."""

    def __init__(self, context: ProcessorContext) -> None:
        super().__init__(context)
        self.arguments: dict[str, Any] = context.arguments
        self.folder = Path(self.arguments.get("folder", "."))

    def process(self, request: InputRequest) -> PreparedInput:
        content = request.messages[-1]["content"]
        match self.arguments.get("mode", content):
            case "refuse":
                raise InputError("No.", "messages[0]")
            case "raise":
                raise RuntimeError("internals")
            case "nothing":
                return None  # type: ignore[return-value]
            case "exit":
                sys.exit(0)
            case "nonsense":
                return "text"  # type: ignore[return-value]
            case "beyond":
                return PreparedInput(tokens=[self.context.vocab_size])
            case "table":
                table = memoryview(array("f", range(8))).cast("B").cast("f", (2, 4))
                first = self.context.vocab_size
                return PreparedInput(tokens=[1, first, first + 1], prompt_table=table, position_ids=[0, 1, 1])
            case "positions":
                return PreparedInput(tokens=[1, 2], position_ids=[0, 5])
            case "template":
                return PreparedInput(tokens=self.tokenize(self.render(request)))
            case "tokens only":
                return PreparedInput(tokens=self.tokenize("tokens only"))
            case "options":
                text = json.dumps(_options(request))
                return PreparedInput(tokens=self.tokenize(text), prompt=text)
            case "until cancelled":
                (self.folder / "started").touch()
                while not request.cancelled:
                    threading.Event().wait(0.005)
                (self.folder / "cancelled").touch()
                raise RuntimeError("nobody waits")
            case "for ever":
                threading.Event().wait()
            case "never":
                (self.folder / "never").touch()
        text = self.arguments["prefix"] + _text(content)
        return PreparedInput(tokens=self.tokenize(self.guard(text)), prompt=text)


def _options(request: InputRequest) -> list[Any]:
    return [
        request.json_schema,
        request.n,
        request.max_tokens,
        request.seed,
        request.stream,
        request.template_kwargs,
        request.add_generation_prompt,
        request.continue_final_message,
    ]


def _text(content: Any) -> str:
    if isinstance(content, str):
        return content
    return "".join(_part(part, f"messages[0].content[{index}]") for index, part in enumerate(content))


def _part(part: dict[str, Any], where: str) -> str:
    if part["type"] == "text":
        return str(part["text"])
    url: str = part["image_url"]["url"]
    if not url.startswith("data:,"):
        raise InputError("Only data: URLs are taken.", f"{where}.image_url.url")
    return f"({url.removeprefix('data:,')})"
