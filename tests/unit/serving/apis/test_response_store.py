"""Responses that are kept: both bounds, the order in which they go, and their items by name."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from llgtrt.serving.apis.responses.store import ENTRY_BYTES, ID_BYTES, ResponseStore, StoredResponse


def entry(*ids: str, size: int = 0) -> StoredResponse:
    response = {"output": [{"id": name, "text": "x" * size} for name in ids]}
    return StoredResponse(json.dumps(response).encode(), b"[]", ids)


def test_the_least_recently_used_goes_first() -> None:
    store = ResponseStore(2, 10**6)
    assert store.put("a", entry())
    assert store.put("b", entry())
    assert store.get("a") is not None
    assert store.put("c", entry())
    assert [store.get(name) is not None for name in "abc"] == [True, False, True]


def test_bytes_are_counted() -> None:
    one = entry("x", size=5000)
    assert one.size == len(one.response) + len(one.items) + ENTRY_BYTES + ID_BYTES
    store = ResponseStore(100, 2 * one.size)
    for name in "abc":
        assert store.put(name, one)
    assert store.size == 2 * one.size
    assert store.count == 2
    assert not store.put("large", entry("x", size=3 * one.size))
    assert store.get("large") is None
    assert store.count == 2


def test_what_does_not_fit_takes_the_place_of_nothing_but_its_own_name() -> None:
    store = ResponseStore(10, 10_000)
    assert store.put("a", entry("i"))
    assert not store.put("a", entry("i", size=20_000))
    assert store.get("a") is None
    assert store.item("i") is None
    assert (store.count, store.size) == (0, 0)


def test_items_by_name() -> None:
    store = ResponseStore(10, 10_000)
    store.put("a", entry("i", "j", size=1))
    assert store.item("j") == {"id": "j", "text": "x"}
    assert store.item("k") is None
    assert store.delete("a")
    assert not store.delete("a")
    assert store.item("j") is None


def test_only_what_is_still_there_is_replaced() -> None:
    store = ResponseStore(10, 10_000)
    store.put("a", entry())
    assert store.replace("a", entry("i"))
    assert store.item("i") is not None
    store.delete("a")
    assert not store.replace("a", entry("i"))
    assert store.count == 0


def test_none_are_kept() -> None:
    store = ResponseStore(0, 10_000)
    assert not store.enabled
    assert not store.put("a", entry())


@given(
    st.lists(
        st.tuples(st.sampled_from("abcdef"), st.integers(0, 3000), st.sampled_from(["put", "delete", "get"]))
    )
)
def test_the_bounds_hold_always(steps: list[tuple[str, int, str]]) -> None:
    store = ResponseStore(3, 8000)
    for name, size, step in steps:
        if step == "put":
            store.put(name, entry(name * 2, size=size))
        elif step == "delete":
            store.delete(name)
        else:
            store.get(name)
        kept = [one for one in map(store.get, "abcdef") if one is not None]
        assert store.count == len(kept) <= 3
        assert store.size == sum(one.size for one in kept) <= 8000
        assert [store.item(letter * 2) is not None for letter in "abcdef"] == [
            store.get(letter) is not None for letter in "abcdef"
        ]
