"""Thinking before the answer: the tags that a model family puts around it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class ReasoningFormat:
    """Tags around the thinking.

    Attributes:
        name: what the configuration calls it.
        begin: the opening tag, written by the model or by the template at the end of the prompt.
        end: the closing tag, with all that comes between the thinking and what follows.
        answer: what an answer that is no call begins with, where the format marks that too.
    """

    name: str
    begin: str
    end: str
    answer: str = ""


HARMONY = ReasoningFormat(
    "harmony",
    "<|channel|>analysis<|message|>",
    "<|end|><|start|>assistant",
    "<|channel|>final<|message|>",
)
"""gpt-oss: messages of one answer go to channels."""

FORMATS = (
    ReasoningFormat("think", "<think>", "</think>"),
    ReasoningFormat("magistral", "[THINK]", "[/THINK]"),
    ReasoningFormat("seed", "<seed:think>", "</seed:think>"),
    ReasoningFormat("minimax-m3", "<mm:think>", "</mm:think>"),
)

SCRATCH = ReasoningFormat("scratch", "<think>", "</think>")
"""For models without tags of their own: the prompt opens it, the grammar closes it."""

CHARS_PER_TOKEN = 4
"""What a thinking budget counts with: the grammar counts characters."""


def speaks_harmony(template: str) -> bool:
    """Whether a chat template is one of gpt-oss. OpenAI's own never writes ``<|constrain|>``; others' do."""
    return "<|channel|>" in template and "<|message|>" in template


def find_reasoning(template: str) -> ReasoningFormat | None:
    """The tags that a chat template speaks of."""
    if speaks_harmony(template):
        return HARMONY
    return next((one for one in FORMATS if one.end in template), None)
