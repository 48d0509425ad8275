"""Servers with the simulated engine, and the failures that it acts out."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from llgtrt.config.merge import merge
from support.server import ServerProcess

NAN_PROMPT = "please give NaN"
FAIL_PROMPT = "please fail"

FAULTS = [
    {"kind": "nan_row", "at_step": 3, "prompt_contains": NAN_PROMPT},
    {"kind": "fail_sequence", "at_step": 3, "prompt_contains": FAIL_PROMPT},
]

StartServer = Callable[..., ServerProcess]


def sim_arguments(folder: Path, config: dict[str, Any]) -> list[str]:
    """Command line arguments for the simulated engine with a configuration; its answers are the same in each
    run of the tests."""
    file = folder / "sim.json5"
    seeded = merge({"runtime": {"seed": 1}}, config)
    file.write_text(json.dumps(seeded, ensure_ascii=False))
    return ["--backend", "sim", "-C", str(file), "--served-model-name", "sim-model"]
