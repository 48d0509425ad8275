"""What the planner is told of the requests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast

from llgtrt.dynamo.answer import AnswerWriter
from llgtrt.dynamo.forward_pass import LiveRequest, forward_pass_figures
from llgtrt.engine import AsyncEngine
from support.core import engine_config
from support.dynamo import Context, collect, request, worker


@dataclass
class Counts:
    completion_tokens: int


@dataclass
class Written:
    """An :class:`AnswerWriter` that has come so far."""

    last: Any
    finished: int = 0


@dataclass
class Delta:
    so_far: Counts


def live(prompt: int, sequences: int = 1, generated: int | None = None, finished: int = 0) -> LiveRequest:
    last = None if generated is None else Delta(Counts(generated))
    return LiveRequest(prompt, sequences, cast("AnswerWriter", Written(last, finished)))


def test_an_idle_engine_has_nothing_to_do() -> None:
    assert not any(forward_pass_figures([], 8).values())


def test_the_oldest_get_the_slots() -> None:
    requests = [live(100, generated=7), live(10), live(20), live(30), live(40, generated=1)]
    assert forward_pass_figures(requests, 4) == {
        "scheduled_num_prefill_requests": 2,
        "scheduled_num_decode_requests": 2,
        "scheduled_sum_decode_kv_tokens": 148,
        "queued_num_prefill_requests": 1,
        "queued_sum_prefill_tokens": 30,
    }


def test_choices_count_one_by_one() -> None:
    figures = forward_pass_figures([live(100, 4, generated=40, finished=3), live(10, 3)], 2)
    assert figures == {
        "scheduled_num_prefill_requests": 1,
        "scheduled_num_decode_requests": 1,
        "scheduled_sum_decode_kv_tokens": 110,
        "queued_num_prefill_requests": 2,
        "queued_sum_prefill_tokens": 20,
    }


async def test_a_worker_knows_what_runs_and_what_waits() -> None:
    slow = await AsyncEngine.load(engine_config(runtime={"max_batch_size": 2}, sim={"step_us": 20_000}))
    one = worker(slow)
    try:
        endless = request("12345", stop_conditions__ignore_eos=True, stop_conditions__max_tokens=3000)
        contexts = [Context() for _ in range(4)]
        running = [one.generate(endless, context) for context in contexts[:2]]
        first = [await anext(chunks) for chunks in running]
        generated = sum(len(chunk["token_ids"]) for chunk in first)
        waiting = [asyncio.ensure_future(collect(one.generate(endless, context))) for context in contexts[2:]]
        while slow.active_requests() < 4:  # noqa: ASYNC110 (the core tells nobody)
            await asyncio.sleep(0)
        figures = one.forward_pass()
        # Tokens of a character that is not complete are in no chunk yet.
        assert figures.pop("scheduled_sum_decode_kv_tokens") >= 10 + generated
        assert figures == {
            "scheduled_num_prefill_requests": 0,
            "scheduled_num_decode_requests": 2,
            "queued_num_prefill_requests": 2,
            "queued_sum_prefill_tokens": 10,
        }
        for context in contexts:
            context.stopped.set_result(True)
        for chunks in running:
            await collect(chunks)
        await asyncio.gather(*waiting)
        assert not any(one.forward_pass().values())
    finally:
        await slow.shutdown()
