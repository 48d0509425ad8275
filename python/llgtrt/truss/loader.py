"""From the file of a Truss to its model: imported by its path, built with what its constructor names."""

from __future__ import annotations

import ast
import asyncio
import importlib.util
import inspect
import json
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

from llgtrt.config import ConfigError, Truss
from llgtrt.hooks.files import describe_failure

from .definition import Definition
from .secrets import Secrets

logger = logging.getLogger("llgtrt.truss")

LOAD_RETRIES = 1
LOAD_PAUSE_S = 1.0
ENVIRONMENT_FILE = Path("/etc/b10_dynamic_config/environment")
"""Where the environment is, as JSON, if there is one."""


class LazyDataResolver:
    """What models wait for that have large files fetched beside their start. Nothing is fetched here."""

    def block_until_download_complete(self, log_stats: bool = True, issue_collect: bool = True) -> str:
        """Returns at once."""
        return ""


def load_model_class(truss: Truss) -> type[Any]:
    """Runs the file and gives its class. The working folder is then the Truss's.

    Raises:
        ConfigError: the file cannot be run, or does not have the class.
    """
    os.chdir(truss.folder)
    for name, value in truss.config["environment_variables"].items():
        os.environ.setdefault(str(name), str(value))
    packages = [truss.folder / truss.config["bundled_packages_dir"]]
    packages += [truss.folder / folder for folder in truss.config["external_package_dirs"]]
    # Last, so that a file beside it does not hide a module of the server.
    for folder in (truss.folder, *packages):
        if folder.is_dir() and str(folder) not in sys.path:
            sys.path.append(str(folder))
    spec = importlib.util.spec_from_file_location(truss.file.stem, truss.file)
    if spec is None or spec.loader is None:
        raise ConfigError(f"{truss.file}: not a Python file")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except ImportError as error:
        if _is_relative(error, truss.file):
            error = ImportError(
                f"{error}: relative imports in the model file are not supported; write absolute ones, such "
                f"as `from {truss.config['model_module_dir']}.module import name`"
            ).with_traceback(error.__traceback__)
        raise ConfigError(describe_failure(truss.file, error)) from error
    except (Exception, SystemExit) as error:
        raise ConfigError(describe_failure(truss.file, error)) from error
    kind = getattr(module, truss.class_name, None)
    if not isinstance(kind, type):
        raise ConfigError(f"{truss.file}:1: no class {truss.class_name}")
    return kind


def make_model(
    kind: type[Any],
    truss: Truss,
    engine: object,
    finish: Callable[[Coroutine[Any, Any, Any]], object] = asyncio.run,
) -> tuple[object, Definition]:
    """The model, checked and told its environment.

    Args:
        kind: its class.
        truss: where it is from.
        engine: what it gets as ``trt_llm["engine"]``.
        finish: runs a coroutine to its end, and blocks; ``setup_environment`` may be one.

    Raises:
        ConfigError: its constructor or setup_environment fails, or a method is not of a known form.
    """
    environment = read_environment()
    given: dict[str, Any] = {
        "config": truss.config,
        "data_dir": Path("data"),
        "secrets": Secrets(truss.config["secrets"]),
        "lazy_data_resolver": LazyDataResolver(),
        "environment": environment,
        "trt_llm": {"engine": engine},
    }
    try:
        model = kind(**{name: given[name] for name in _accepted(kind, given)})
        definition = Definition.of(model)
        if definition.setup_environment is not None:
            told = definition.setup_environment(environment)
            if inspect.iscoroutine(told):
                finish(told)
    except (Exception, SystemExit) as error:
        raise ConfigError(describe_failure(truss.file, error)) from error
    return model, definition


def load_model(truss: Truss, load: Callable[[], Any], cancelled: threading.Event) -> None:
    """Calls ``load()``, once more after a pause if it fails. Blocks.

    Raises:
        ConfigError: it fails again.
    """
    for attempt in range(LOAD_RETRIES + 1):
        try:
            load()
            return
        except (Exception, SystemExit) as error:  # noqa: PERF203 (two rounds at most)
            if attempt == LOAD_RETRIES or cancelled.is_set():
                raise ConfigError(describe_failure(truss.file, error)) from error
            logger.warning("Failed to load model. Retrying...", exc_info=error)
            cancelled.wait(LOAD_PAUSE_S)


def read_environment() -> Any:
    """What the deployment says of itself, ``None`` if nothing.

    Raises:
        ConfigError: it is not JSON.
    """
    if not ENVIRONMENT_FILE.is_file():
        return None
    text = ENVIRONMENT_FILE.read_text()
    try:
        return json.loads(text) if text.strip() else None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{ENVIRONMENT_FILE}:{error.lineno}:{error.colno}: {error.msg}") from error


def _accepted(kind: type[Any], given: dict[str, Any]) -> list[str]:
    parameters = inspect.signature(kind).parameters
    everything = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    return [name for name in given if everything or name in parameters]


def _is_relative(error: ImportError, file: Path) -> bool:
    """Whether the statement of the file that failed is a relative import."""
    lines = [one.lineno for one in traceback.extract_tb(error.__traceback__) if one.filename == str(file)]
    return any(
        isinstance(node, ast.ImportFrom) and node.level > 0 and node.lineno == lines[-1]
        for node in ast.walk(ast.parse(file.read_bytes()))
        if lines
    )
