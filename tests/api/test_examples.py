"""The scripts in examples/ run as they are."""

from __future__ import annotations

import ast
import math
import os
import re
import subprocess
import sys
from pathlib import Path

from support.server import ServerProcess

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(server: ServerProcess, name: str, *arguments: str) -> str:
    """What an example prints; fails if it fails."""
    result = subprocess.run(
        [sys.executable, str(EXAMPLES / name), *arguments],
        env={**os.environ, "LLGTRT_URL": server.base_url},
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_tools(server: ServerProcess) -> None:
    first, *_ = run(server, "tools.py", "Where is it warm?").splitlines()
    assert first.startswith("get_temperature({")
    assert "'celsius': " in first


def test_chat(server: ServerProcess) -> None:
    answer, count = run(server, "chat.py", "Hello").splitlines()[-2:]
    assert answer
    assert re.fullmatch(r"\[\d+ tokens asked, \d+ answered\]", count)


def test_stream(server: ServerProcess) -> None:
    *text, count = run(server, "stream.py", "Hello").splitlines()
    assert "".join(text)
    assert re.fullmatch(r"\[\d+ tokens\]", count)


def test_pydantic_schema(server: ServerProcess) -> None:
    head, *guests = run(server, "pydantic_schema.py").splitlines()
    assert re.fullmatch(r"table \d+ on \d{4}-\d\d-\d\d", head)
    assert 1 <= len(guests) <= 4
    assert all(guest.rpartition(": ")[2] in ("meat", "fish", "vegetarian") for guest in guests)


def test_regex(server: ServerProcess) -> None:
    assert re.fullmatch(r"\d\d:\d\d\n", run(server, "regular_expression.py"))


def test_choice(server: ServerProcess) -> None:
    answer, *tokens = run(server, "choice.py").splitlines()
    assert answer in ("positive", "neutral", "negative")
    assert "".join(ast.literal_eval(line.strip().rpartition(": ")[0]) for line in tokens) == answer


def test_lark(server: ServerProcess) -> None:
    text, _, total = run(server, "lark_grammar.py").strip().partition(" = ")
    products = [[int(number) for number in product.split(" * ")] for product in text.split(" + ")]
    assert sum(map(math.prod, products)) == int(total)
    assert 2 <= len(products) <= 4


def test_logprobs(server: ServerProcess) -> None:
    *tokens, perplexity = run(server, "logprobs.py", "Once upon").splitlines()
    assert "".join(ast.literal_eval(line.rpartition(": ")[0]) for line in tokens).endswith("Once upon")
    assert re.fullmatch(r"perplexity \d+\.\d", perplexity)


def test_several_answers(server: ServerProcess) -> None:
    lines = run(server, "several_answers.py").splitlines()
    assert sum(int(line.split(" x ")[0]) for line in lines) == 8


def test_prefill(server: ServerProcess) -> None:
    output = run(server, "prefill.py", "It is ")
    assert output.startswith("It is ")
    assert len(output) > 8


def test_thinking(server: ServerProcess) -> None:
    thoughts, answer = run(server, "thinking.py").splitlines()
    assert thoughts.startswith("thoughts: ")
    assert len(thoughts) > 14
    assert re.fullmatch(r"answer: \d\.\d\d", answer)


def test_every_example_has_its_test() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    elsewhere = {"_client.py", "normalize_for_llguidance.py", "ray_serve.py"}
    names = {path.name for path in EXAMPLES.glob("*.py")} - elsewhere
    assert {name for name in names if f'"{name}"' not in here} == set()
