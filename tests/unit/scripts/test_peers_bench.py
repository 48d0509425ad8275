"""``benches/peers.py``: turns, failures and figures, with programs that only pretend."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from llgtrt.bench.client import Answer

sys.path.append(str(Path(__file__).parents[3] / "benches"))
import peers

BOOK = {"title": "Salt", "year": 1900, "genre": "mystery", "available": True}
Call = tuple[str, peers.Task]
PLAIN = peers.Task(30, 2, False, 10)
SCHEMA = peers.Task(30, 2, True, 10)


def program(
    name: str, calls: list[tuple[str, peers.Task]], seconds: float = 1.0, text: str = "x"
) -> peers.Peer:
    """Answers every prompt with ten tokens within so many seconds."""

    def ask(task: peers.Task, first: int) -> list[Answer]:
        calls.append((name, task))
        times = (0.5 * seconds, seconds)
        return [Answer(0.0, seconds, times, text, "stop", 30, 10) for _ in range(task.streams)]

    return peers.Peer(name, ask, lambda: None)


def broken(name: str, error: Exception) -> peers.Peer:
    def ask(task: peers.Task, first: int) -> list[Answer]:
        raise error

    return peers.Peer(name, ask, lambda: None)


def test_programs_take_turns_and_each_task_is_warmed_up_once() -> None:
    calls: list[Call] = []
    both = [program("ours", calls), program("other", calls)]
    peers.run(both, [PLAIN], rounds=2, limit_s=1)
    assert [name for name, _ in calls[2:]] == ["ours", "other", "other", "ours"]
    assert all(task.streams == 1 for _, task in calls[:2])
    assert all(len(peer.rounds[PLAIN]) == 2 for peer in both)


def test_a_program_that_fails_is_left_out_with_its_reason_and_ours_may_not() -> None:
    ours, slow = program("ours", []), broken("slow", TimeoutError())
    peers.run([ours, slow], [PLAIN], rounds=1, limit_s=7)
    assert slow.failure == "a round takes over 7 s"
    assert peers.row("m", PLAIN, slow, ours)[-1] == slow.failure
    with pytest.raises(RuntimeError, match="no"):
        peers.run([broken("ours", RuntimeError("no")), program("other", [])], [PLAIN], rounds=1, limit_s=7)


def test_the_ratio_is_of_tokens_per_second_in_the_same_round() -> None:
    ours, other = program("ours", [], seconds=1.0), program("other", [], seconds=2.5)
    peers.run([ours, other], [PLAIN], rounds=3, limit_s=7)
    cells = peers.row("m", PLAIN, other, ours)
    assert cells[5:11] == ["8.0", "10", "2.50", "2.50-2.50", "1250", "1250"]
    assert peers.row("m", PLAIN, ours, ours)[5:8] == ["20.0", "10", ""]


def test_an_answer_is_valid_if_its_text_is_a_value_of_the_schema() -> None:
    for text, right in ((json.dumps(BOOK), "2/2"), (json.dumps(BOOK)[:-1], "0/2"), ("{}", "0/2")):
        ours = program("ours", [], text=text)
        peers.run([ours], [SCHEMA], rounds=1, limit_s=7)
        assert peers.row("m", SCHEMA, ours, ours)[-2] == right


def test_prompts_differ_from_their_beginning_and_have_the_length_that_was_asked_for() -> None:
    long = [peers.prompt(number, 1000) for number in range(64)]
    assert len({text[:12] for text in long}) == 64
    assert {len(text.split("Notes: ")[1].split()) for text in long} == {1000 - peers.FRAME}
