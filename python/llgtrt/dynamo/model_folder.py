"""The folder that Dynamo's frontend reads a model from: tokenizer, template, configuration; no weights."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import shutil
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from llgtrt.config import ConfigError, Settings, gguf_values
from llgtrt.dynamo.tokenizer_json import GGML, byte_tokenizer, gguf_tokenizer
from llgtrt.engine import AsyncEngine, ModelInfo, tokenize_with

END_TOKENS = tuple(f"{GGML}{name}" for name in ("eos_token_id", "eot_token_id", "eom_token_id"))

SAMPLES = (
    "Hello, world!",
    "  two  spaces,\ttab\n\n newline \r\n and   three",
    "It's we'll I'VE don't 'twas",
    "0 12 345 6789 10000000 3.1415e-10",
    'def f(x):\n    return {"a": [1, 2.5], "b": None}  # done\n',
    "Äpfel, naïve, Ελληνικά, Русский, हिन्दी, ไทย, 日本語, 한국어, العربية",
    "👩‍👩‍👧‍👦 🇩🇪 é e\u0301 \u00a0\u2028\u200b",
    "CamelCaseWord snake_case_word http://example.org/a?b=c&d=%20",
    "<|im_start|>user\n<s>[INST] </s><|endoftext|>",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa!!!!!!!!!!????....;;;;",
)
"""Texts on which two tokenizers that split otherwise differ."""


def write_model_folder(
    root: Path, settings: Settings, engine: AsyncEngine, template: str
) -> tuple[Path, tuple[int, ...]]:
    """Writes the folder, and gives it and the ids of the tokens that end answers.

    Its name follows from what is in it, and it stays: the frontend takes workers for copies of each other
    only if their folders have the same path. Blocks for about a second with a large vocabulary.

    Raises:
        ConfigError: the tokenizer is not one that can be written, or tokenizes otherwise than the engine.
    """
    files, ends = _files(settings, engine, template)
    digest = hashlib.blake2b(digest_size=12)
    for name, content in sorted(files.items()):
        digest.update(f"{name} {len(content)}\n".encode() + content)
    folder = root / f"llgtrt-model-{os.getuid()}-{digest.hexdigest()}"
    fresh = Path(tempfile.mkdtemp(prefix="llgtrt-model-", dir=root))
    try:
        for name, content in files.items():
            (fresh / name).write_bytes(content)
        check_tokenizer(fresh / "tokenizer.json", engine)
        fresh.chmod(0o755)
        # Another worker may have made it before, or makes it now.
        with contextlib.suppress(OSError):
            fresh.rename(folder)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
    if folder.is_symlink() or any((folder / name).read_bytes() != files[name] for name in files):
        raise ConfigError(f"{folder} was changed: remove it")
    return folder, ends


def _files(
    settings: Settings, engine: AsyncEngine, template: str
) -> tuple[dict[str, bytes], tuple[int, ...]]:
    info = engine.model_info
    values: dict[str, Any] = {}
    if settings.tokenizer_path is not None:
        tokenizer = settings.tokenizer_path.read_bytes()
    elif settings.backend == "sim":
        tokenizer = _json(byte_tokenizer())
    elif settings.backend == "llamacpp" and settings.model_path is not None:
        values = gguf_values(settings.model_path, (GGML, "general.architecture"))
        tokenizer = _json(gguf_tokenizer(values))
    else:
        raise ConfigError("the engine folder has no tokenizer.json: give one with -T or --model-folder")
    ends = [values[key] for key in END_TOKENS if isinstance(values.get(key), int)]
    if not ends and info.eos_token is not None:
        ends = engine.encode(info.eos_token, False)
    architecture = values.get("general.architecture", "llama")
    config = {
        "architectures": [f"{str(architecture).title()}ForCausalLM"],
        "model_type": architecture,
        "bos_token_id": engine.encode(info.bos_token, False)[0] if info.bos_token else None,
        "eos_token_id": ends[0] if len(ends) == 1 else ends,
        "max_position_embeddings": info.max_sequence_tokens,
        "vocab_size": info.vocab_size,
    }
    tokenizer_config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": info.bos_token,
        "eos_token": info.eos_token,
        "model_max_length": info.max_sequence_tokens,
        "chat_template": template,
    }
    files = {
        "config.json": _json(config),
        "tokenizer.json": tokenizer,
        "tokenizer_config.json": _json(tokenizer_config),
    }
    return files, tuple(dict.fromkeys(ends))


def model_end_tokens(folder: Path, engine: AsyncEngine) -> tuple[int, ...]:
    """The tokens that end answers, of a folder that was given.

    Raises:
        ConfigError: a file is missing or cannot be read, or the tokenizer is not the engine's.
    """
    check_tokenizer(folder / "tokenizer.json", engine)
    ends: list[int] = []
    for name in ("config.json", "generation_config.json"):
        path = folder / name
        if not path.is_file():
            continue
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ConfigError(f"{path} is not JSON: {error}") from error
        found = content.get("eos_token_id") if isinstance(content, dict) else None
        ends += found if isinstance(found, list) else [found] if isinstance(found, int) else []
    return tuple(dict.fromkeys(ends))


def check_tokenizer(path: Path, engine: AsyncEngine, samples: Sequence[str] = SAMPLES) -> None:
    """Compares a tokenizer with the engine's.

    Raises:
        ConfigError: they differ: the frontend would send other tokens than the text has.
    """
    texts = [*samples, *_names(engine.model_info)]
    for text, tokens in zip(texts, tokenize_with(str(path), texts), strict=True):
        if tokens != engine.encode(text, False):
            raise ConfigError(
                f"{path} tokenizes {text[:40]!r} otherwise than the engine: give the folder of the original "
                "model with --model-folder"
            )


def _names(info: ModelInfo) -> list[str]:
    return [f"a{name} b" for name in info.special_tokens[:64]]


def _json(content: dict[str, Any]) -> bytes:
    return json.dumps(content, ensure_ascii=False).encode()
