"""Merging of configuration values."""

from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from llgtrt.config.merge import merge

_leaves = st.none() | st.booleans() | st.integers() | st.text(max_size=3)
_values = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=10,
)
_objects = st.dictionaries(st.sampled_from("abc"), _values, max_size=3)


def test_objects_merge_and_the_rest_replaces() -> None:
    base = {"a": {"x": 1, "y": [1, 2]}, "b": 1, "c": {"z": 1}}
    patch = {"a": {"y": [3], "w": None}, "b": {"n": 1}, "c": None}
    assert merge(base, patch) == {"a": {"x": 1, "y": [3], "w": None}, "b": {"n": 1}, "c": None}


def test_keys_keep_their_order() -> None:
    assert list(merge({"b": 1, "a": 2}, {"c": 3, "a": 4})) == ["b", "a", "c"]


@settings(suppress_health_check=[HealthCheck.too_slow])  # it measures the machine
@given(_objects)
def test_nothing_changes_with_itself_or_an_empty_object(value: dict[str, Any]) -> None:
    assert merge(value, value) == value
    assert merge(value, {}) == value
    assert merge({}, value) == value


@given(_objects, _objects, _objects)
def test_files_may_be_grouped(a: dict[str, Any], b: dict[str, Any], c: dict[str, Any]) -> None:
    # Holds only while no value turns from an object into something else and back: then the last wins anyway.
    assert merge(merge(a, b), b) == merge(a, b)
    assert leaves_of(c).items() <= leaves_of(merge(merge(a, b), c)).items()


@given(_objects, _objects)
def test_the_arguments_are_left_alone(base: dict[str, Any], patch: dict[str, Any]) -> None:
    before = repr((base, patch))
    merge(base, patch)
    assert repr((base, patch)) == before


def leaves_of(value: Any, path: str = "") -> dict[str, str]:
    """Every value that is not an object, by its path."""
    if isinstance(value, dict):
        return {key: leaf for name in value for key, leaf in leaves_of(value[name], f"{path}/{name}").items()}
    return {path: repr(value)}
