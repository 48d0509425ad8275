"""What the planner is told of the requests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast

from llgtrt.dynamo.answer import AnswerWriter
from llgtrt.dynamo.forward_pass import LiveRequest, request_figures
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


def told(figures: dict[str, float]) -> dict[str, float]:
    """Those that are not 0."""
    return {name: value for name, value in figures.items() if value}


def test_an_idle_engine_has_nothing_to_do() -> None:
    assert not any(request_figures([], 8).values())


def test_the_oldest_get_the_slots() -> None:
    requests = [live(100, generated=7), live(10), live(20), live(30), live(40, generated=1)]
    assert told(request_figures(requests, 4)) == {
        "scheduled_num_prefill_requests": 2,
        "scheduled_num_decode_requests": 2,
        "scheduled_sum_decode_kv_tokens": 148,
        "queued_num_prefill_requests": 1,
        "queued_sum_prefill_tokens": 30,
    }


def test_choices_count_one_by_one() -> None:
    figures = request_figures([live(100, 4, generated=40, finished=3), live(10, 3)], 2)
    assert told(figures) == {
        "scheduled_num_prefill_requests": 1,
        "scheduled_num_decode_requests": 1,
        "scheduled_sum_decode_kv_tokens": 110,
        "queued_num_prefill_requests": 2,
        "queued_sum_prefill_tokens": 20,
    }


async def test_each_pass_is_told_with_its_prompt_tokens_and_its_duration() -> None:
    config = engine_config(sim={"step_us": 2000, "prefill_us_per_token": 1000, "prefill_chunk_tokens": 3})
    engine = await AsyncEngine.load(config)
    one = worker(engine)
    try:
        asked = request("12345", stop_conditions__ignore_eos=True, stop_conditions__max_tokens=3)
        await collect(one.generate(asked, Context()))
        # The last chunk may come before the engine's thread has noted its pass.
        passes: list[dict[str, float]] = []
        while len(passes) < 4:
            await asyncio.sleep(0)
            passes += [figures for figures in one.forward_passes() if figures["wall_time_secs"]]
        assert [told(figures) for figures in passes] == [
            {
                "scheduled_num_prefill_requests": 1,
                "scheduled_sum_prefill_tokens": 3,
                "wall_time_secs": 0.005,
            },
            {
                "scheduled_num_prefill_requests": 1,
                "scheduled_sum_prefill_tokens": 2,
                "scheduled_sum_prefill_kv_tokens": 3,
                "wall_time_secs": 0.004,
            },
            {
                "scheduled_num_decode_requests": 1,
                "scheduled_sum_decode_kv_tokens": 5,
                "wall_time_secs": 0.002,
            },
            {
                "scheduled_num_decode_requests": 1,
                "scheduled_sum_decode_kv_tokens": 6,
                "wall_time_secs": 0.002,
            },
        ]
    finally:
        await engine.shutdown()


async def test_a_worker_knows_what_runs_and_what_waits() -> None:
    slow = await AsyncEngine.load(engine_config(runtime={"max_batch_size": 2}, sim={"step_us": 20_000}))
    one = worker(slow)
    try:
        endless = request("12345", stop_conditions__ignore_eos=True, stop_conditions__max_tokens=3000)
        contexts = [Context() for _ in range(4)]
        running = [one.generate(endless, context) for context in contexts[:2]]
        first = [await anext(chunks) for chunks in running]
        generated = sum(len(chunk["token_ids"]) for chunk in first)
        queued = [asyncio.ensure_future(collect(one.generate(endless, context))) for context in contexts[2:]]
        while slow.active_requests() < 4:  # noqa: ASYNC110 (the core tells nobody)
            await asyncio.sleep(0)
        waiting = {"queued_num_prefill_requests": 2, "queued_sum_prefill_tokens": 10}
        passes: list[dict[str, float]] = []
        while not passes or passes[-1]["scheduled_num_prefill_requests"] or not passes[-1]["wall_time_secs"]:
            await asyncio.sleep(0)
            passes = one.forward_passes()
        last = told(passes[-1])
        # The token that was sampled last is not in the cache yet.
        assert last.pop("scheduled_sum_decode_kv_tokens") >= 10 + generated - 2
        assert last == {"scheduled_num_decode_requests": 2, "wall_time_secs": 0.02, **waiting}
        for context in contexts:
            context.stopped.set_result(True)
        for chunks in running:
            await collect(chunks)
        await asyncio.gather(*queued)
        one.forward_passes()
        assert not one.forward_passes()
    finally:
        await slow.shutdown()
