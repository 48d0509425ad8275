"""Runs a Python file of the operator's, and says where one failed."""

from __future__ import annotations

import importlib.util
import logging
import sys
import traceback
from pathlib import Path
from types import ModuleType

from llgtrt.config import ConfigError

from .errors import ProcessorFailedError

logger = logging.getLogger("llgtrt.hooks")


def run_file(file: Path, name: str) -> ModuleType:
    """The module that the file makes, imported as ``name``. Modules beside the file can be imported by it.

    Raises:
        ConfigError: there is no such file, or it cannot be run.
    """
    file = file.absolute()
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{file}: not a Python file")
    if not file.is_file():
        raise ConfigError(f"{file}: no such file")
    module = importlib.util.module_from_spec(spec)
    # Last, so that a file beside it does not hide a module of the server.
    if (folder := str(file.parent)) not in sys.path:
        sys.path.append(folder)
    # Dataclasses and pickle look a class's module up here.
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise ConfigError(describe_failure(file, error)) from error
    return module


def describe_failure(file: Path, error: BaseException) -> str:
    """What went wrong while code of the file ran, with the innermost line of the file."""
    if isinstance(error, ProcessorFailedError):
        if error.__cause__ is None:
            return f"{file}: {error}"
        error = error.__cause__
    logger.debug("the input processor failed", exc_info=error)
    name = str(file.absolute())
    if isinstance(error, SyntaxError) and error.filename == name:
        return f"{file}:{error.lineno or 1}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    lines = [frame.lineno for frame in frames if frame.filename == name]
    line = next((line for line in reversed(lines) if line is not None), 1)
    text = f": {error}" if str(error) else ""
    return f"{file}:{line}: {type(error).__name__}{text}"
