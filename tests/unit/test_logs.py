"""Lines of the log."""

from __future__ import annotations

import json
import logging
import sys
from typing import Any

import pytest

from llgtrt.logs import REQUEST_ID, JsonFormatter, Levels, TextFormatter, hold, set_up


def record(message: str, *arguments: Any, failed: bool = False, **fields: Any) -> logging.LogRecord:
    info: Any = None
    if failed:
        try:
            raise ValueError("why")
        except ValueError:
            info = sys.exc_info()
    one = logging.LogRecord("llgtrt.x", logging.WARNING, __file__, 1, message, arguments, info)
    one.created = 1_700_000_000.25
    one.fields = fields
    return one


def test_a_line_of_text() -> None:
    line = TextFormatter().format(record("hello %s", "you", a=1, b="two words", c=0.5, d="", e="x"))
    assert line == (
        '2023-11-14T22:13:20.250000Z WARNING llgtrt.x: hello you a=1 b="two words" c=0.5 d="" e=x'
    )


UNSAFE = [chr(code) for code in (*range(32), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F)]
UNSAFE += [chr(code) for code in (*range(0x2028, 0x202F), *range(0x2066, 0x206A), 0xD800, 0xDFFF)]
"""What ends a line, commands a terminal or changes the order of reading; halves of characters."""


@pytest.mark.parametrize("value", ["a\nb", "a\r", "a b=c", '"', "\x1b[31m", "é"])
def test_a_value_cannot_pretend_to_be_more(value: str) -> None:
    line = TextFormatter().format(record("m", x=value))
    assert line.endswith(f" x={json.dumps(value)}")


@pytest.mark.parametrize("character", UNSAFE, ids=ascii)
def test_a_line_holds_nothing_that_acts_on_its_reader(character: str) -> None:
    shown = {"\n": "\\n", "\r": "\\r", "\t": "\\t"}.get(character, f"\\u{ord(character):04x}")
    text = TextFormatter().format(record("%s é", character, x=f"a{character}b"))
    assert text.split("llgtrt.x: ")[1].startswith(shown + " é ")
    line = JsonFormatter().format(record("%s", character, x=f"a{character}b"))
    for one in (text, line):
        assert not set(one) & set(UNSAFE)
        assert len(one.splitlines()) == 1
    assert (json.loads(line)["message"], json.loads(line)["x"]) == (character, f"a{character}b")


def test_a_traceback_begins_no_line() -> None:
    try:
        raise ValueError("one\n2023-11-14T22:13:20.250000Z INFO llgtrt.x: two\x1b[31m\u2028three")
    except ValueError:
        one = logging.LogRecord("llgtrt.x", logging.ERROR, __file__, 1, "failed", (), sys.exc_info())
    first, *rest = TextFormatter().format(one).splitlines()
    assert first.endswith(" ERROR llgtrt.x: failed")
    assert len(rest) > 3
    assert all(line.startswith("  ") for line in rest)
    assert "\\u001b[31m\\u2028three" in rest[-1]


def test_a_line_of_json() -> None:
    line = JsonFormatter().format(record("hello\n%s", "you", failed=True, status=200))
    assert "\n" not in line
    members = json.loads(line)
    assert members.pop("exception").endswith("ValueError: why")
    assert members == {
        "time": "2023-11-14T22:13:20.250000Z",
        "level": "WARNING",
        "logger": "llgtrt.x",
        "message": "hello\nyou",
        "status": 200,
    }


def test_lines_of_a_request_carry_its_id() -> None:
    token = REQUEST_ID.set("abc")
    try:
        assert TextFormatter().format(record("m")).endswith(" request_id=abc")
        assert json.loads(JsonFormatter().format(record("m")))["request_id"] == "abc"
    finally:
        REQUEST_ID.reset(token)
    assert "request_id" not in TextFormatter().format(record("m"))


def test_lines_are_held_until_their_form_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    root.handlers.clear()
    try:
        hold(logging.INFO)
        logging.getLogger("llgtrt.x").info("early")
        assert capsys.readouterr().err == ""
        set_up(logging.INFO, "json")
        logging.getLogger("llgtrt.x").info("late")
        lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
        assert [line["message"] for line in lines] == ["early", "late"]
    finally:
        root.handlers[:], root.level = before


def test_levels_of_parts() -> None:
    levels = Levels.parse("warning, llgtrt.core.grammar=debug,llgtrt.requests=info,llama_cpp=error")
    assert levels.base == "warning"
    assert str(levels) == "warning,llgtrt.core.grammar=debug,llgtrt.requests=info,llama_cpp=error"
    # The core's filter knows modules; loggers of Python alone are nothing to it.
    assert levels.core() == "warn,llgtrt_grammar=debug,llama_cpp=error"
    assert Levels.parse("llgtrt.core=debug").core() == "info,llgtrt_=debug"
    assert Levels.parse("llgtrt.core.grammar.slot=warning").core() == "info,llgtrt_grammar::slot=warn"
    assert Levels.parse("llgtrt=debug,uvicorn.error=error").core() == "info,llgtrt=debug"


@pytest.mark.parametrize(
    "text", ["", "loud", "info,debug", "info,=debug", "info,a b=debug", "info,llgtrt=loud"]
)
def test_levels_that_are_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"is no level|is no name|without a name"):
        Levels.parse(text)


def test_levels_apply_to_loggers() -> None:
    root, part = logging.getLogger(), logging.getLogger("llgtrt.test_part")
    before = root.level
    try:
        Levels.parse("error,llgtrt.test_part=debug").apply()
        assert root.level == logging.ERROR
        assert part.isEnabledFor(logging.DEBUG)
        assert not logging.getLogger("llgtrt.other_part").isEnabledFor(logging.WARNING)
    finally:
        root.setLevel(before)
        part.setLevel(logging.NOTSET)
