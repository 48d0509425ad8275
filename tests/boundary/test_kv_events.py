"""KV events across the boundary: what a reader gets, waits for, and misses."""

from __future__ import annotations

import threading

import pytest

from llgtrt import _native
from support.core import Core, engine_config

BOS = 256


def core(block_size: int = 4, tokens: int = 64) -> Core:
    config = engine_config(sim={"prefix_cache_tokens": tokens})
    return Core(config[:-1] + f', "kv_events": {{"block_size": {block_size}, "required": true}}}}')


def generate(one: Core, prompt: str) -> None:
    one.finish(one.submit(prompts=[prompt], max_tokens=4, ignore_eos=True))


def test_blocks_carry_their_tokens_and_what_they_stand_on() -> None:
    one = core()
    generate(one, "abcdefgh")
    events = one.engine.kv_events(20)
    assert events is not None
    assert {event.kind for event in events} == {"stored"}
    assert events[0].parent is None
    assert events[0].tokens == [BOS, *b"abcdefg"]
    assert len(events[0].hashes) == 2
    answer = [event for event in events[1:] if event.parent == events[0].hashes[-1]]
    if not answer:
        # The end of the sequence may be a later step's news.
        later = one.engine.kv_events(20)
        answer = [event for event in later or () if event.parent == events[0].hashes[-1]]
    assert len(answer[0].tokens) == 4
    one.engine.shutdown()


def test_a_reader_that_waits_sees_the_end() -> None:
    one = core()
    found: list[list[_native.KvEvent] | None] = []
    reader = threading.Thread(target=lambda: found.append(one.engine.kv_events(60)))
    reader.start()
    one.engine.shutdown()
    reader.join(20)
    assert found == [None]


def test_without_being_asked_there_are_no_events() -> None:
    one = Core(engine_config(sim={"prefix_cache_tokens": 64}))
    generate(one, "abcdefgh")
    assert one.engine.kv_events(0) is None
    one.engine.shutdown()


def test_a_cache_that_cannot_be_is_refused() -> None:
    with pytest.raises(_native.ConfigurationError, match="prefix_cache_tokens is 0"):
        core(tokens=0)


def test_the_usage_is_that_of_running_sequences() -> None:
    one = core()
    assert one.engine.kv_cache_usage() == 0
    config = engine_config(sim={"step_us": 20_000}, runtime={"max_batch_size": 1, "max_seq_len": 100})
    slow = Core(config)
    handle = slow.submit(prompts=["x" * 50], max_tokens=40, ignore_eos=True)
    slow.next(handle)
    assert 0.5 <= slow.engine.kv_cache_usage() < 1
    slow.engine.shutdown()
    one.engine.shutdown()
