"""Section ``py``: Python of the operator."""

import os
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, Field, JsonValue

from .errors import ConfigError
from .section import Section


def _names(value: object) -> object:
    """One name, as a flag gives it, or several."""
    return [value] if isinstance(value, str) else value


Names = Annotated[list[str], BeforeValidator(_names, json_schema_input_type=str | list[str])]


class PyConfig(Section):
    """The operator's own Python, run as part of the server. The input processor is a class that turns chat
    messages into the prompt, for multi-modal models and templates that Jinja2 cannot express: see
    docs/input-processor.md. For model.py, business logic around the engine, see docs/model-py.md."""

    input_processor: str | None = Field(
        default=None,
        description="Python file with a class that derives from llgtrt.hooks.InputProcessor.\n"
        "null: <engine>/input_processor.py if ENGINE is a folder that has it.",
    )
    hf_model_dir: str | None = Field(
        default=None, description="Hugging Face model folder. null: the engine folder."
    )
    visual_engine_dir: str | None = Field(
        default=None, description="TensorRT-LLM visual engine. null: <engine>/visual_engine."
    )
    arguments: JsonValue = Field(
        default=None, description="Additional arguments for the class: any JSON value."
    )
    threads: int = Field(
        default=1,
        ge=1,
        le=256,
        description="Requests that the class processes at the same time. More than 1 only where it is\n"
        "thread-safe.",
    )
    hooks: str | None = Field(
        default=None,
        description="A class around every generation: access control, rate limits, billing, audit: see\n"
        "docs/hooks.md. file.py:Class, module:Class, or the name of an entry point.",
    )
    hooks_arguments: JsonValue = Field(
        default=None, description="Argument of that class's constructor: any JSON value."
    )
    hooks_timeout_s: float = Field(
        default=5.0, gt=0, description="How long each call of the hook may take, in seconds."
    )
    hooks_threads: int = Field(
        default=8, ge=1, le=1024, description="Synchronous methods of the hook that run at the same time."
    )
    engine: str | None = Field(
        default=None,
        description="An engine in Python (backend: python): see docs/plugins.md. The name of an entry\n"
        "point, module:Class or file.py:Class.",
    )
    engine_arguments: JsonValue = Field(
        default=None, description="Second argument of that class's constructor: any JSON value."
    )
    logits_processors: Names = Field(
        default=[],
        description="Logits processors that requests may name, and nothing else: see docs/plugins.md. Names\n"
        "of entry points, module:Class or file.py:Class; requests name the last two by the class.",
    )
    logits_processor_timeout_s: float = Field(
        default=1.0,
        gt=0,
        le=3600,
        description="How long one call of a logits processor may take, in seconds. Meanwhile nothing is\n"
        "generated; one that took longer ends its request with an error.",
    )
    model_threads: int = Field(
        default=40,
        ge=1,
        le=1024,
        description="Synchronous methods of model.py (--model-py) that run at the same time.",
    )
    model_max_requests: int = Field(
        default=1024,
        ge=1,
        description="Requests that model.py works on at the same time; more are refused with status 503.",
    )


def absolute_hook(reference: str, folder: Path) -> str:
    """The reference to a hook or a processor, the path of its file, if it has one, counted from a folder."""
    name, separator, class_name = reference.rpartition(":")
    if not (separator and name.endswith(".py")):
        return reference
    return f"{os.path.normpath(folder / name)}:{class_name}"


def input_processor_file(section: PyConfig, folder: Path | None) -> Path | None:
    """The input processor of a server, ``None`` if it has none.

    Args:
        section: the configuration.
        folder: the engine folder, if one was named.

    Raises:
        ConfigError: the configured file does not exist.
    """
    if section.input_processor is not None:
        file = Path(section.input_processor)
        if not file.is_file():
            raise ConfigError(f"{file}: no such file (py.input_processor)")
        return file
    if folder is not None and (file := folder / "input_processor.py").is_file():
        return file
    return None
