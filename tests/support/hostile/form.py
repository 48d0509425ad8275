"""The suite has two forms: a short one for every test run, and all of it (``make hostile``)."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TypeVar

ENVIRONMENT = Path(__file__).parents[3] / ".venv-hostile"
"""Python environment of ``make hostile``: what only the full form needs (``requirements/hostile.in``)."""

FULL = os.environ.get("LLGTRT_HOSTILE") == "full"

Value = TypeVar("Value")


def by_form(short: Value, full: Value) -> Value:
    """A size of a test: the one of the form that runs."""
    return full if FULL else short
