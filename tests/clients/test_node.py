"""Clients in JavaScript: their scripts are in ``node/``, one per client."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from conftest import KEY
from judge import Judge

FOLDER = Path(__file__).parent / "node"


@pytest.mark.parametrize("script", sorted(path.name for path in FOLDER.glob("*.test.mjs")))
def test_script(script: str, sim: Judge, calling: Judge) -> None:
    variables = {"SIM_URL": sim.url, "CALLING_URL": calling.url, "KEY": KEY}
    process = subprocess.run(
        ["node", "--test", "--test-reporter=spec", script],
        cwd=FOLDER,
        env={**os.environ, **variables},
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert process.returncode == 0, process.stdout + process.stderr
