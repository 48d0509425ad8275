"""How a model family writes a call: the fixed texts around names and arguments."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable
from dataclasses import dataclass

from llgtrt.tools.arguments import ArgumentStyle
from llgtrt.tools.json_arguments import JSON_ARGUMENTS

_ID_ALPHABET = string.ascii_letters + string.digits


def random_id(_name: str, _index: int) -> str:
    """An id as OpenAI's look."""
    return "call_" + "".join(secrets.choice(_ID_ALPHABET) for _ in range(24))


@dataclass(frozen=True)
class ToolFormat:
    """The call format of a model family.

    An answer that calls tools is ``section_begin``, then each call as ``head`` (with the tool's name in place
    of ``{name}`` and the call's number in place of ``{index}``), its arguments and ``tail``, with
    ``separator`` between calls, then ``section_end``. The grammar holds answers to exactly this, so that the
    parser needs no guesses.

    Attributes:
        name: what ``tools.parser`` in the configuration calls it.
        detects: whether a chat template, given as text, asks for this format.
        trigger: what begins the calls wherever it stands in free text: a beginning of ``section_begin`` with
            ``head``. Empty: there is no such mark, and only an answer that begins with one of ``openings``
            is a call.
        section_begin, head, tail, separator, section_end: the fixed texts.
        openings: heads that models write instead of ``head`` at the beginning of an answer, where there is no
            trigger, with ``{name}``; the one in ``head`` included.
        marked: the format to use in place of this one where a call has to be told apart from a JSON answer.
        parallel: whether an answer may hold several calls.
        arguments: how the arguments are written.
        new_id: makes the id of a call of its name and number.
    """

    name: str
    detects: Callable[[str], bool]
    head: str
    tail: str
    trigger: str = ""
    section_begin: str = ""
    separator: str = ""
    section_end: str = ""
    openings: tuple[str, ...] = ()
    marked: ToolFormat | None = None
    parallel: bool = True
    arguments: ArgumentStyle = JSON_ARGUMENTS
    new_id: Callable[[str, int], str] = random_id

    def __post_init__(self) -> None:
        whole = self.section_begin + self.head
        if self.trigger and not whole.startswith(self.trigger):
            raise ValueError(f"{self.name}: the trigger does not begin a call")
        if "{name}" in self.trigger or "{name}" not in self.head:
            raise ValueError(f"{self.name}: the name of the tool belongs into the head, behind the trigger")
        if not self.trigger and not self.openings:
            raise ValueError(f"{self.name}: without a trigger there are openings")

    def call_head(self, name: str, index: int) -> str:
        """``head`` of one call."""
        return filled(self.head, name, index)


def filled(text: str, name: str, index: int) -> str:
    """A fixed text with the tool's name and the call's number in it."""
    return text.replace("{name}", name).replace("{index}", str(index))
