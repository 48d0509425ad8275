"""From a file to the class in it; every error names the file and the line."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest

from llgtrt.config import ConfigError
from llgtrt.hooks import InputProcessor, load_processor_class

IMPORTS = "from llgtrt.hooks import InputProcessor, PreparedInput\n"
PROCESS = "    def process(self, request):\n        return PreparedInput(tokens=[1])\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "input_processor.py"


def load(file: Path, text: str) -> type[InputProcessor]:
    file.write_text(textwrap.dedent(text))
    return load_processor_class(file)


def test_the_one_class_is_found(file: Path) -> None:
    (file.parent / "beside_the_processor.py").write_text("NAME = 'beside'")
    text = (
        "import dataclasses\nimport beside_the_processor\n"
        + IMPORTS
        + "@dataclasses.dataclass\nclass Note:\n    text: str\n"
        + "class Base(InputProcessor):\n"
        + PROCESS
        + "class Mine(Base):\n    name = beside_the_processor.NAME\n"
    )
    kind = load(file, text)
    assert kind.__name__ == "Mine"
    assert vars(kind)["name"] == "beside"


def test_a_file_beside_it_does_not_hide_a_module(file: Path) -> None:
    (file.parent / "json.py").write_text("raise RuntimeError('hidden')")
    load(file, "import json\njson.dumps(1)\n" + IMPORTS + "class Mine(InputProcessor):\n" + PROCESS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x = (\n\n1", ":1: '(' was never closed"),
        ("\nimport no_such_module_1\n", ":2: ModuleNotFoundError: No module named 'no_such_module_1'"),
        ("def f():\n    raise ValueError('why')\n\nf()\n", ":2: ValueError: why"),
        ("import json\n\njson.loads('{')\n", ":3: JSONDecodeError: "),
        ("import sys\nsys.exit('over')\n", ":2: SystemExit: over"),
        ("from . import other\n", ":1: ImportError: "),
        ("x = 1\n", ":1: no class that derives from llgtrt.hooks.InputProcessor"),
        ("\n\nclass Mine:\n    pass\n", ":3: no class that derives from .*; Mine does not"),
        (
            IMPORTS + "class Mine(InputProcessor):\n    pass\n",
            ":2: Mine has no method process(self, request)",
        ),
        (
            IMPORTS + "class A(InputProcessor):\n" + PROCESS + "class B(InputProcessor):\n" + PROCESS,
            ":5: several input processors: A, B",
        ),
        (
            IMPORTS + "class Mine(InputProcessor):\n    def process(self):\n        pass\n",
            ":3: Mine.process must take (self, request): ",
        ),
        (
            IMPORTS + "class Mine(InputProcessor):\n\n    def process(self, request, more):\n        pass\n",
            ":4: Mine.process must take (self, request): ",
        ),
        (
            IMPORTS + "class Mine(InputProcessor):\n    async def process(self, request):\n        pass\n",
            ":3: Mine.process must be a plain method",
        ),
        (
            IMPORTS + "class Mine(InputProcessor):\n    def process(self, request):\n        yield 1\n",
            ":3: Mine.process must be a plain method",
        ),
        (
            IMPORTS + "class Mine(InputProcessor):\n    process = 3\n",
            ":2: Mine.process must be a method",
        ),
        (
            IMPORTS + "class Mine(InputProcessor):\n" + PROCESS + "    def __init__(self):\n        pass\n",
            ":5: Mine.__init__ must take (self, context): ",
        ),
    ],
)
def test_errors_name_file_and_line(file: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(file, text)
    start, _, rest = message.partition(".*")
    assert str(caught.value).startswith(f"{file}{start}")
    assert str(caught.value).endswith(rest)


def test_the_next_file_is_not_the_last_one(file: Path) -> None:
    first = load(file, IMPORTS + "class First(InputProcessor):\n" + PROCESS)
    other = file.with_name("other.py")
    second = load(other, IMPORTS + "class Second(InputProcessor):\n" + PROCESS)
    assert (first.__name__, second.__name__) == ("First", "Second")


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"missing\.py"):
        load_processor_class(tmp_path / "missing.py")
    with pytest.raises(ConfigError, match="not a Python file"):
        load_processor_class(tmp_path / "missing.txt")
