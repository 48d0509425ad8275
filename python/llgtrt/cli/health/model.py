"""The model's own files."""

from __future__ import annotations

import json
from pathlib import Path

from llgtrt.config import ConfigError, Settings
from llgtrt.config.gguf import read_text_value
from llgtrt.config.memory import model_parts

from .finding import Finding


def check_model(settings: Settings) -> list[Finding]:
    """The model, its tokenizer and its chat template."""
    if settings.backend == "sim":
        return [Finding("model", "ok", "simulated")]
    findings = [_gguf(settings.model_path)] if settings.backend == "llamacpp" and settings.model_path else []
    return [*findings, _tokenizer(settings), _template(settings)]


def _gguf(file: Path) -> Finding:
    try:
        architecture = read_text_value(file, "general.architecture")
        name = read_text_value(file, "general.name")
    except ConfigError as error:
        return Finding("model", "failure", str(error), "download it again")
    if architecture is None:
        return Finding("model", "failure", f"{file.name} names no architecture", "it is no language model")
    parts = model_parts(file)
    if mark := file.name.partition("-of-")[2]:
        expected = int(mark.removesuffix(file.suffix))
        if len(parts) != expected:
            found = f"{len(parts)} of {expected} parts are there"
            return Finding("model", "failure", found, "download the others into the same folder")
    return Finding("model", "ok", f"{name or file.name}, {architecture}, {len(parts)} file(s)")


def _tokenizer(settings: Settings) -> Finding:
    file = settings.tokenizer_path
    if file is None:
        if settings.backend == "llamacpp":
            return Finding("tokenizer", "ok", "the model file's own")
        advice = (
            "copy tokenizer.json and tokenizer_config.json of the model into the engine folder, or use -T"
        )
        return Finding("tokenizer", "failure", "there is no tokenizer.json", advice)
    try:
        vocabulary = vocabulary_size(file)
    except (OSError, ValueError, KeyError, TypeError) as error:
        return Finding("tokenizer", "failure", f"{file}: {error}", "copy it from the model again")
    return Finding("tokenizer", "ok", f"{file.name} with {vocabulary} tokens")


def vocabulary_size(file: Path) -> int:
    """Tokens of a tokenizer.json, counted by the largest id.

    Raises:
        ValueError, KeyError, TypeError: it is none.
        OSError: it cannot be read.
    """
    document = json.loads(file.read_text(encoding="utf-8"))
    model = document["model"]["vocab"]
    ids = model.values() if isinstance(model, dict) else range(len(model))
    added = (token["id"] for token in document.get("added_tokens", ()))
    return max((*ids, *added), default=-1) + 1


def _template(settings: Settings) -> Finding:
    if settings.chat_template is not None:
        return Finding("chat template", "ok", f"from {settings.chat_template_source}")
    if settings.backend == "llamacpp" and settings.model_path is not None:
        try:
            if read_text_value(settings.model_path, "tokenizer.chat_template") is not None:
                return Finding("chat template", "ok", "the model file's own")
        except ConfigError:
            return Finding("chat template", "skipped", "the model's file cannot be read")
    advice = "name the model's own with --chat-template; /v1/completions needs none"
    return Finding("chat template", "warning", "none: chats are written in a plain form", advice)
