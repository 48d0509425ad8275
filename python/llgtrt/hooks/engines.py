"""Engines in Python: objects of the operator's that give rows of logits. The core does all else.

::

    class MyEngine:
        vocab_size = 32000
        context_tokens = 4096
        slots = 4
        tokenizer = "/models/mine/tokenizer.json"

        def __init__(self, model: Path | None, arguments: Any) -> None: ...

        def forward(
            self, batch: list[tuple[int, int, list[int], int]], rows: memoryview[float]
        ) -> None: ...

        def free(self, slot: int) -> None: ...

docs/plugins.md says what each is.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

from llgtrt.config import ConfigError, PyConfig

from .files import describe_failure
from .references import load_reference

logger = logging.getLogger("llgtrt.hooks")

ENTRY_POINTS = "llgtrt.engines"
"""Group of the entry points that packages offer engines by."""

OPTION = "py.engine"
MODULE = "llgtrt_engine"
"""Name that a file is imported under."""


def load_engine_class(reference: str) -> type[Any]:
    """The class of an engine.

    Raises:
        ConfigError: there is none, it cannot be imported, or it has no ``forward``.
    """
    kind = load_reference(reference, OPTION, ENTRY_POINTS, MODULE)
    if not isinstance(kind, type) or not callable(getattr(kind, "forward", None)):
        raise ConfigError(f"{OPTION}: {reference} is no class with a method forward")
    return kind


def make_engine(kind: type[Any], model: Path | None, section: PyConfig) -> object:
    """The engine. It may load a model: call it on another thread.

    Raises:
        ConfigError: its constructor fails.
    """
    logger.info("engine %s", section.engine)
    try:
        return kind(model, section.engine_arguments)
    except (Exception, SystemExit) as error:
        file = getattr(__import__(kind.__module__, fromlist=["_"]), "__file__", None)
        raise ConfigError(describe_failure(Path(file or kind.__module__), error)) from error
