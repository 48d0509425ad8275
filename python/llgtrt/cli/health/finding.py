"""One line of the doctor's table."""

from dataclasses import dataclass
from typing import Literal

State = Literal["ok", "warning", "failure", "skipped"]


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Attributes:
        check: what was looked at.
        state: ``failure`` if a server would not start or not answer; ``skipped`` if nobody could look.
        found: what is there.
        advice: what to do about it; empty if nothing is to be done.
    """

    check: str
    state: State
    found: str
    advice: str = ""


def gigabytes(count: float) -> str:
    """A number of bytes for people."""
    return f"{count / 2**30:.1f} GiB"
