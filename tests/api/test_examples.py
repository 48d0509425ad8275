"""The scripts in examples/ run as they are."""

from __future__ import annotations

import os
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
