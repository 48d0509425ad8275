"""Prompts that a model fills in between: what comes before, what comes behind, in its own tokens."""

from __future__ import annotations

from typing import TypeAlias

from llgtrt.engine import ModelInfo
from llgtrt.serving.errors import RequestError
from llgtrt.serving.protocol import CompletionRequest

Marks: TypeAlias = tuple[str, str, str]
"""Control tokens before the prefix, before the suffix and before what is to be written."""

KNOWN: tuple[Marks, ...] = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
)
"""Of Qwen and others, StarCoder, its older form, DeepSeek, CodeLlama: where only names are known."""


def fill_in_marks(info: ModelInfo) -> Marks | None:
    """The tokens of a model, if it can fill in."""
    if info.fill_in is not None:
        return info.fill_in
    names = set(info.special_tokens)
    return next((marks for marks in KNOWN if names.issuperset(marks)), None)


def filled_in(
    request: CompletionRequest, prompts: list[str | list[int]], marks: Marks | None
) -> list[str | list[int]]:
    """The prompts of a request with ``suffix``.

    Raises:
        RequestError: the model has no such tokens, or prompts are of tokens or to be repeated.
    """
    if marks is None:
        raise RequestError(
            "suffix: this model has no tokens to fill in a text; models made for code usually do.",
            "suffix",
        )
    if request.echo:
        raise RequestError("suffix cannot be combined with echo.", "suffix")
    before, behind, middle = marks
    texts: list[str | list[int]] = []
    for prompt in prompts:
        if not isinstance(prompt, str):
            raise RequestError("suffix needs a prompt that is a text.", "suffix")
        texts.append(f"{before}{prompt}{behind}{request.suffix}{middle}")
    return texts
