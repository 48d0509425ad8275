"""Users cannot write control tokens."""

import importlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from llgtrt.chat import GUARD, Guard, guard
from llgtrt.chat.guard import remove_guards

NAMES = ["<|im_start|>", "<|im_end|>", "<s>", "[INST]", "|><|", "<|im_start|>x"]


def test_a_name_is_marked_after_its_first_character() -> None:
    assert guard("a <s> b", NAMES) == f"a <{GUARD}s> b"
    assert guard("<s><s>", NAMES) == f"<{GUARD}s><{GUARD}s>"
    assert guard("plain < s > [inst]", NAMES) == "plain < s > [inst]"


def test_overlapping_names_are_all_marked() -> None:
    assert guard("<|im_end|><|im_end|>", NAMES) == f"<{GUARD}|im_end|{GUARD}><{GUARD}|im_end|>"


def test_names_are_not_patterns() -> None:
    assert guard("aaa .*", [".*"]) == f"aaa .{GUARD}*"
    assert guard("anything", ["", "("]) == "anything"


def test_values_are_marked_everywhere_and_copied() -> None:
    value = {"<s>": ["<s>", 1, None, {"k": ("<s>", True)}]}
    marked = f"<{GUARD}s>"
    assert Guard(NAMES).protect(value) == {marked: [marked, 1, None, {"k": [marked, True]}]}
    assert value == {"<s>": ["<s>", 1, None, {"k": ("<s>", True)}]}


def test_without_control_tokens_nothing_happens() -> None:
    tool = Guard([])
    assert tool.protect("<s>") == tool.protect_beginnings("<s>") == "<s>"
    assert not tool.may_begin(["<s>"])
    assert tool.count("<s>") == 0


def test_beginnings_of_names_are_marked_and_names_are_counted() -> None:
    tool = Guard(NAMES)
    marked = {"k": f"<{GUARD}<{GUARD}|{GUARD} [{GUARD}x]"}
    assert tool.protect_beginnings({"k": "<<| [x]"}) == marked
    assert [tool.may_begin(value) for value in ({"k": ["a <"]}, {"[": 1}, ["a", {"k": ">"}])] == [
        True,
        True,
        False,
    ]
    assert tool.count(f"<s> <{GUARD}s> <|im_start|><|im_end|>") == 4, (
        "|><| between the last two is one as well"
    )


@given(st.lists(st.sampled_from([*NAMES, "<", "|", "im_", "start|>", "é", " "])).map("".join))
def test_no_name_survives_and_the_mark_can_be_removed(text: str) -> None:
    tool = Guard(NAMES)
    marked = tool.protect(text)
    assert not any(name in marked for name in NAMES)
    assert remove_guards(marked) == text


@given(
    st.text(st.sampled_from("ab<"), max_size=12), st.sets(st.text("ab<", min_size=2, max_size=4), max_size=5)
)
def test_any_set_of_names(text: str, names: set[str]) -> None:
    marked = guard(text, names)
    assert not any(name in marked for name in names)
    assert remove_guards(marked) == text


@settings(deadline=None)
@given(st.lists(st.sampled_from([*NAMES, "<", "|", "é"]), max_size=40).map("".join), st.integers(1, 9))
def test_a_long_text_is_searched_in_pieces_with_the_same_result(text: str, piece: int) -> None:
    whole = Guard(NAMES).protect(text)
    with pytest.MonkeyPatch.context() as patch:
        # The package has a function of the module's name.
        patch.setattr(importlib.import_module("llgtrt.chat.guard"), "PIECE_CHARS", piece)
        assert Guard(NAMES).protect(text) == whole
