"""Logits processors that requests may name: callables of the operator's that change rows of logits.

A processor is made for one answer by calling what its entry point names with the request's arguments, and is
then called once for every token that is drawn::

    class Ban:
        def __init__(self, arguments: dict[str, Any]) -> None:
            self._tokens: list[int] = arguments["tokens"]

        def __call__(
            self, prompt_ids: tuple[int, ...], generated_ids: list[int], logits: memoryview[float]
        ) -> None:
            for token in self._tokens:
                logits[token] = -math.inf

docs/plugins.md says what it may do and what it costs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from llgtrt.config import ConfigError, PyConfig

from .references import load_reference

logger = logging.getLogger("llgtrt.hooks")

ENTRY_POINTS = "llgtrt.logits_processors"
"""Group of the entry points that packages offer logits processors by."""

OPTION = "py.logits_processors"
MODULE = "llgtrt_logits_processor"
"""Name that a file is imported under."""

LogitsProcessor: TypeAlias = Callable[[tuple[int, ...], list[int], "memoryview[float]"], None]
"""Gets the ids of the prompt and of what was generated so far, and a row of 32-bit floats, one per entry of
the vocabulary, which it changes in place."""

ProcessorFactory: TypeAlias = Callable[[dict[str, Any]], LogitsProcessor]
"""Makes the processor of one answer of a request's arguments. ``ValueError``, ``KeyError`` and ``TypeError``
are the client's fault."""


class ProcessorArgumentsError(Exception):
    """The arguments of a request are not what the processor wants. The text is for the client."""


@dataclass(frozen=True, slots=True)
class LogitsProcessors:
    """Those that requests may name.

    Attributes:
        factories: by name.
        limit_s: the longest that one call may take.
    """

    factories: Mapping[str, ProcessorFactory] = field(default_factory=dict)
    limit_s: float = 1.0

    @classmethod
    def load(cls, section: PyConfig) -> LogitsProcessors:
        """Imports what the configuration names.

        Raises:
            ConfigError: something is not there, cannot be imported or called, or two have one name.
        """
        factories: dict[str, ProcessorFactory] = {}
        for reference in section.logits_processors:
            factory = load_reference(reference, OPTION, ENTRY_POINTS, MODULE)
            if not callable(factory):
                raise ConfigError(f"{OPTION}: {reference} is nothing that can be called")
            name = reference.rpartition(":")[2]
            if name in factories:
                raise ConfigError(f"{OPTION}: two are called {name}")
            factories[name] = factory
            logger.info("logits processor %s", reference)
        return cls(factories, section.logits_processor_timeout_s)

    def make(
        self, chosen: Sequence[tuple[str, dict[str, Any]]], answers: int
    ) -> list[list[tuple[str, LogitsProcessor]]]:
        """The processors of each answer: none is shared, so that one may keep a state.

        Args:
            chosen: names that are known, with their arguments.

        Raises:
            ProcessorArgumentsError: a factory does not want the arguments, or fails.
        """
        return [[(name, self._one(name, arguments)) for name, arguments in chosen] for _ in range(answers)]

    def _one(self, name: str, arguments: dict[str, Any]) -> LogitsProcessor:
        try:
            processor = self.factories[name](dict(arguments))
        except (ValueError, KeyError, TypeError) as error:
            text = f"no {error}" if isinstance(error, KeyError) else str(error)
            raise ProcessorArgumentsError(f"{name} does not take these arguments: {text}") from error
        if not callable(processor):
            raise TypeError(f"{name} made a {type(processor).__name__}, which cannot be called")
        return processor
