"""What answers depend on beside the request, as a short hash: OpenAI's ``system_fingerprint``."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from llgtrt.config import Settings
from llgtrt.config.generation import SamplingDefaults
from llgtrt.engine import ModelInfo, __version__
from llgtrt.serving import TokenLimits

SECTIONS = ("runtime", "tokenizer", "llguidance", "tools", "py")
"""Sections of the configuration that change answers, beside that of the engine."""

BLOCKS = 8
BLOCK_BYTES = 16_384
"""Of a file that is longer, so many blocks are read, at even distances: models are too long to be read."""

_FIRST_SHARD = re.compile(r"-00001-of-(\d{5})\.gguf$")


def system_fingerprint(
    settings: Settings, info: ModelInfo, template: str, defaults: SamplingDefaults, limits: TokenLimits
) -> str:
    """The hash: equal for servers that run the same version with the same model and options.

    It says nothing about the machine. Reads up to 128 KiB of each file of the model.

    Args:
        settings: the model's own.
        info: of the loaded model.
        template: source of the chat template.
        defaults: how tokens are chosen where a request does not say.
        limits: how long answers are where a request does not say.
    """
    sections = (*SECTIONS, "py" if settings.backend == "python" else settings.backend)
    digest = hashlib.blake2b(digest_size=5)
    parts: dict[str, Any] = {
        "version": __version__,
        "backend": info.backend,
        "context": info.max_sequence_tokens,
        "vocabulary": info.vocab_size,
        "metadata": sorted(info.metadata.items()),
        "options": {name: getattr(settings.config, name).model_dump(mode="json") for name in sections},
        "template": template,
        "defaults": asdict(defaults),
        "limits": (limits.default_max_tokens, limits.clamp_max_tokens),
    }
    digest.update(to_json(parts))
    for path in (settings.model_path, settings.tokenizer_path, settings.lora_root, settings.input_processor):
        digest.update(b"\0")
        for name, file in _files(path):
            digest.update(to_json([name]))
            _sample(file, digest)
    return f"fp_{digest.hexdigest()}"


def _files(path: Path | None) -> Iterator[tuple[str, Path]]:
    """The files of a model with their names in its folder, wherever that is."""
    if path is None:
        return
    if path.is_dir():
        yield from ((str(file.relative_to(path)), file) for file in sorted(path.rglob("*")) if file.is_file())
        return
    shards = _FIRST_SHARD.search(path.name)
    if shards is None:
        yield path.name, path
        return
    rest = path.name[: shards.start()]
    count = shards[1]
    for file in sorted(path.parent.glob(f"*-of-{count}.gguf")):
        if file.name.startswith(rest):
            yield file.name, file


def _sample(file: Path, digest: hashlib.blake2b) -> None:
    """Adds a file's size and blocks of it; of one that cannot be read, nothing."""
    try:
        with file.open("rb") as stream:
            size = file.stat().st_size
            digest.update(to_json([size]))
            if size <= BLOCKS * BLOCK_BYTES:
                digest.update(stream.read(size))
                return
            for number in range(BLOCKS):
                stream.seek((size - BLOCK_BYTES) * number // (BLOCKS - 1))
                digest.update(stream.read(BLOCK_BYTES))
    except OSError:
        # The engine does without it, or has said so.
        return
