"""Lines of the core's log."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from support.core import engine_config
from support.gguf import write_model

TESTS = Path(__file__).parents[1]
UNSAFE = "\x1b\x7f\x85\u2028\u202e\u2069"
"""Commands of terminals, ends of lines, and what changes the order of reading."""


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_line_holds_nothing_that_acts_on_its_reader(tmp_path: Path, form: str) -> None:
    # llama.cpp writes this name into its log.
    model = tmp_path / "model.gguf"
    write_model(model, {"general.architecture": f"a{UNSAFE}b"}, {})
    config = {**json.loads(engine_config()), "backend": "llamacpp", "model_path": str(model)}
    program = f"""
        from llgtrt import _native
        from support.core import Core
        _native.init_logging("debug", json={form == "json"})
        core = Core({engine_config()!r})
        core.finish(core.submit(max_tokens=1, request_id={f"c{UNSAFE}d"!r}))
        core.engine.shutdown()
        try:
            _native.Engine({json.dumps(config)!r})
        except _native.ConfigurationError:
            print("refused")
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        check=True,
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        timeout=60,
    )
    assert result.stdout == b"refused\n"
    log = result.stderr.decode()
    assert not set(log) & set(UNSAFE)
    assert log.splitlines() == log[:-1].split("\n")
    shown = r"\u001b\u007f\u0085\u2028\u202e\u2069"
    assert f"a{shown}b" in log
    assert f"c{shown}d" in log
    if form == "json":
        lines = [json.loads(line) for line in log.splitlines()]
        assert any(line.get("request_id") == f"c{UNSAFE}d" for line in lines)
        assert any(f"a{UNSAFE}b" in line["message"] for line in lines)
