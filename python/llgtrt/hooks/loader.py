"""From a Python file to an input processor. Every error names the file and the line."""

from __future__ import annotations

import inspect
from pathlib import Path
from types import ModuleType

from llgtrt.config import ConfigError

from .files import run_file
from .processor import InputProcessor

MODULE = "llgtrt_input_processor"
"""Name that the file is imported under."""


def load_processor_class(file: Path) -> type[InputProcessor]:
    """Runs the file and gives its one class that derives from :class:`InputProcessor`.

    Modules beside the file can be imported by it.

    Raises:
        ConfigError: the file cannot be run, or has no such class, several, or one of a wrong form.
    """
    module = run_file(file, MODULE)
    found = [
        value
        for value in vars(module).values()
        if isinstance(value, type) and issubclass(value, InputProcessor) and value.__module__ == MODULE
    ]
    # A class that another one of the file builds upon is not meant.
    classes = [kind for kind in found if not any(kind in other.__bases__ for other in found)]
    if not classes:
        raise ConfigError(_no_class(file, module))
    if len(classes) > 1:
        names = ", ".join(kind.__name__ for kind in classes)
        raise ConfigError(f"{file}:{_line(classes[1])}: several input processors: {names}")
    _check(file, classes[0])
    return classes[0]


def _check(file: Path, kind: type[InputProcessor]) -> None:
    place = f"{file}:{_line(kind)}: {kind.__name__}"
    if inspect.isabstract(kind):
        raise ConfigError(f"{place} has no method process(self, request)")
    try:
        inspect.signature(kind).bind(None)
    except TypeError as error:
        line = _line(kind.__init__)
        raise ConfigError(
            f"{file}:{line}: {kind.__name__}.__init__ must take (self, context): {error}"
        ) from error
    process = inspect.unwrap(kind.process)
    if not callable(process):
        raise ConfigError(f"{file}:{_line(kind)}: {kind.__name__}.process must be a method")
    place = f"{file}:{_line(process)}: {kind.__name__}.process"
    if (
        inspect.iscoroutinefunction(process)
        or inspect.isasyncgenfunction(process)
        or inspect.isgeneratorfunction(process)
    ):
        raise ConfigError(f"{place} must be a plain method: it runs on a thread of its own")
    try:
        # A static or class method has one parameter less.
        bound = isinstance(inspect.getattr_static(kind, "process"), staticmethod | classmethod)
        inspect.signature(kind.process).bind(*[None] * (1 if bound else 2))
    except TypeError as error:
        raise ConfigError(f"{place} must take (self, request): {error}") from error


def _no_class(file: Path, module: ModuleType) -> str:
    wanted = "no class that derives from llgtrt.hooks.InputProcessor"
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == MODULE:
            return f"{file}:{_line(value)}: {wanted}; {value.__name__} does not"
    return f"{file}:1: {wanted}"


def _line(value: object) -> int:
    """Where a class or a function begins; 1 where that is not known."""
    try:
        return inspect.getsourcelines(value)[1]  # type: ignore[arg-type]
    except (OSError, TypeError):
        return 1
