"""``allowed_token_ids``: an answer of some tokens only, as vLLM has it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from llgtrt.serving.protocol.constraint import Constraint, lark
from llgtrt.tools import ControlTokens

PARAM = "allowed_token_ids"


def allowed_tokens(tokens: list[int], control: ControlTokens) -> Constraint:
    """Any sequence of these tokens.

    The answer may end where one of the tokens that end an answer is among them; which control tokens do so is
    the core's knowledge, so that any of them lets it end.
    """
    ranges = ",".join(f"{first}-{last}" if first < last else str(first) for first, last in _ranges(tokens))
    constraint = lark(f"start: <[{ranges}]>*", PARAM)
    ends = not control.ids.isdisjoint(tokens)
    return Constraint(constraint.grammar, PARAM, constraint.source, of_tokens=True, ends=ends)


def _ranges(tokens: Iterable[int]) -> Iterator[tuple[int, int]]:
    first = last = -2
    for token in sorted(set(tokens)):
        if token != last + 1:
            if first >= 0:
                yield first, last
            first = token
        last = token
    if first >= 0:
        yield first, last
