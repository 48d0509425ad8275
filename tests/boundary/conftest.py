"""The native module alone, over the sim engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.core import Core, engine_config


@pytest.fixture
def make_core() -> Iterator[Callable[..., Core]]:
    """Makes cores with the given configuration sections; stops them at the end."""
    cores: list[Core] = []

    def make(**sections: dict[str, Any]) -> Core:
        cores.append(Core(engine_config(**sections)))
        return cores[-1]

    yield make
    for core in cores:
        core.engine.shutdown()


@pytest.fixture
def core(make_core: Callable[..., Core]) -> Core:
    """A core with the default configuration."""
    return make_core()
