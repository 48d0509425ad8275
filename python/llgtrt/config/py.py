"""Section ``py``: the Python input processor of multi-modal models."""

import os
from pathlib import Path
from typing import Any

from pydantic import Field, JsonValue

from .section import Section

PATH_OPTIONS = ("input_processor", "hf_model_dir", "visual_engine_dir")
"""Options that hold a path; a relative one counts from the folder of the file that names it."""


class PyConfig(Section):
    """The Python input processor. Accepted and kept; no engine of this build uses it."""

    input_processor: str | None = Field(
        default=None,
        description="Python script that does multi-modal and chat template processing.\n"
        "null: <engine>/input_processor.py if it exists.",
    )
    hf_model_dir: str | None = Field(
        default=None, description="Hugging Face model folder. null: the engine folder."
    )
    visual_engine_dir: str | None = Field(
        default=None, description="TensorRT-LLM visual engine. null: <engine>/visual_engine."
    )
    arguments: JsonValue = Field(
        default=None, description="Additional arguments for the script: any JSON value."
    )


def resolve_paths(section: Any, folder: str) -> None:
    """Makes the relative paths of a raw ``py`` section absolute, in place."""
    if not isinstance(section, dict):
        return
    for option in PATH_OPTIONS:
        if isinstance(section.get(option), str):
            section[option] = os.path.normpath(Path(folder, section[option]))
