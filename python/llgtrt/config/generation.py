"""How a model's makers want it sampled: ``generation_config.json``, or what a GGUF file says of it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from .errors import ConfigError
from .files import read_text
from .settings import Settings

logger = logging.getLogger("llgtrt.config")

FILE = "generation_config.json"
IN_GGUF = {
    "temperature": "general.sampling.temp",
    "top_k": "general.sampling.top_k",
    "top_p": "general.sampling.top_p",
    "min_p": "general.sampling.min_p",
    "repetition_penalty": "general.sampling.penalty_repeat",
}
"""Names of the same in the metadata of a GGUF file."""

RANGES = {
    "temperature": (0, 100),
    "top_k": (0, 2**31 - 1),
    "top_p": (0, 1),
    "min_p": (0, 1),
    "repetition_penalty": (1e-6, 10),
}
"""Least and greatest values, as requests may have them."""


@dataclass(frozen=True, slots=True)
class SamplingDefaults:
    """How to sample where a request does not say; as OpenAI does unless the model's files say more."""

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    repetition_penalty: float = 1.0


def sampling_defaults(settings: Settings, metadata: Mapping[str, str]) -> SamplingDefaults:
    """The defaults of a model.

    Args:
        settings: where the model is, and whether its files count (``server.generation_config``).
        metadata: of a GGUF file; of other models there is none.

    Raises:
        ConfigError: the file is there and cannot be read.
    """
    if settings.config.server.generation_config == "none":
        return SamplingDefaults()
    in_gguf = {name: metadata[key] for name, key in IN_GGUF.items() if key in metadata}
    defaults = _with(SamplingDefaults(), in_gguf, "the model file")
    tokenizer = None if settings.tokenizer_path is None else settings.tokenizer_path.parent
    for folder in (tokenizer, settings.model_folder):
        if folder is not None and (path := folder / FILE).is_file():
            return _with(defaults, _read(path), str(path))
    return defaults


def _read(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{path}: not JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected an object")
    return content


def _with(defaults: SamplingDefaults, given: Mapping[str, Any], where: str) -> SamplingDefaults:
    """The defaults with what is given, as far as it can be used; the log says what cannot."""
    found: dict[str, Any] = {}
    for field in fields(defaults):
        value = given.get(field.name)
        if value is None:
            continue
        least, most = RANGES[field.name]
        try:
            number = float(value)
        except (TypeError, ValueError):
            number = float("nan")
        if isinstance(value, bool) or not least <= number <= most:
            logger.warning("%s: %s is %r, which cannot be used", where, field.name, value)
            continue
        found[field.name] = int(number) if field.name == "top_k" else number
    if found:
        said = ", ".join(f"{name} {value:g}" for name, value in found.items())
        logger.info("sampling as %s says where a request does not: %s", where, said)
    return replace(defaults, **found)
