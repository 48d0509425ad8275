"""Beam search over the core, beside every answer that there is."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from pydantic_core import from_json

from llgtrt import _native
from llgtrt.engine import AsyncEngine, ComposedDelta, GrammarSpec, OverloadedError, generate_request
from llgtrt.serving.beams import BeamPlan, BeamRequest, start_beams
from llgtrt.serving.core_request import CoreRequest
from support.core import engine_config

BRANCHES = 6
DEPTH = 3


@asynccontextmanager
async def running(**sections: dict[str, Any]) -> AsyncIterator[AsyncEngine]:
    engine = await AsyncEngine.load(engine_config(**sections))
    try:
        yield engine
    finally:
        await engine.shutdown()


def beams(
    prompt: str | list[int],
    width: int,
    *,
    max_tokens: int = DEPTH,
    grammar: GrammarSpec | None = None,
    **fields: Any,
) -> BeamRequest:
    sampling = fields.pop("sampling", {"ignore_eos": True})
    core = {"n": 1, "max_tokens": max_tokens, "sampling": sampling, "return_token_ids": True, **fields}
    return BeamRequest(
        plan=BeamPlan(width, width, 1.0, False),
        core=CoreRequest({"most_prompt_tokens": None, **core}, max_tokens),
        prompts=[prompt],
        add_special=True,
        grammar=grammar,
        grammar_param="response_format",
        adapter=None,
        logprobs=0,
        control_text=False,
        completion=True,
    )


async def result(engine: AsyncEngine, request: BeamRequest) -> Any:
    return await start_beams(engine, request, engine.reserve(request.plan.width)).result()


async def likely(engine: AsyncEngine, tokens: list[int]) -> list[tuple[int, float]]:
    """The likeliest tokens behind some others, by an ordinary request."""
    fields = {
        "max_tokens": 1,
        "add_special": False,
        "logprobs_form": "tokens",
        "sampling": {"temperature": 0.0, "ignore_eos": True, "logprobs": BRANCHES},
    }
    delta = await engine.submit(generate_request(fields, [tokens]), engine.reserve(1)).result()
    top = from_json(delta.choices[0].logprobs or "")["top"][0]
    return [(token, logprob) for token, logprob in top]


@pytest.mark.parametrize("prompt", ["Once upon a time", "Hi", "Seven samurai"])
def test_the_best_answer_is_the_best_of_all(prompt: str) -> None:
    async def run() -> None:
        async with running() as engine:
            delta = await result(engine, beams(prompt, BRANCHES // 2))
            best = delta.choices[0]
            paths = {tuple[int, ...](): 0.0}
            for _ in range(DEPTH):
                paths = {
                    (*path, token): before + logprob
                    for path, before in paths.items()
                    for token, logprob in await likely(engine, [*best.prompt_token_ids, *path])
                }
            assert len(paths) == BRANCHES**DEPTH
            assert tuple(best.token_ids) == max(paths, key=lambda path: paths[path])
            for choice in delta.choices:
                own = sum(from_json(choice.logprobs)["token_logprobs"])
                assert own == pytest.approx(paths[tuple(choice.token_ids)], abs=1e-4)
            assert delta.usage.completion_tokens == DEPTH * BRANCHES // 2

    asyncio.run(run())


def test_places_are_taken_once_and_come_back() -> None:
    async def run() -> None:
        async with running(runtime={"max_batch_size": 2, "max_queue_size": 2}) as engine:
            # All four places belong to the search, though two of its beams wait.
            stream = start_beams(engine, beams("Go", 4, max_tokens=200), engine.reserve(4))
            with pytest.raises(OverloadedError):
                engine.reserve(1)
            assert engine.active_requests() > 0
            delta = await stream.result()
            assert len(delta.choices) == 4
            await until(lambda: is_free(engine, 4), "the places are free")

    asyncio.run(run())


def test_a_search_that_is_cancelled_ends() -> None:
    async def run() -> None:
        async with running(sim={"step_us": 1000}) as engine:
            most = engine.model_info.max_batch_size
            stream = start_beams(engine, beams("Go", most, max_tokens=4000), engine.reserve(most))
            await until(lambda: sampled(engine) > 0, "the search has begun")
            stream.cancel()
            await until(lambda: engine.active_requests() == 0, "nothing is left of it")
            await until(lambda: is_free(engine, most), "the places are free")

    asyncio.run(run())


def sampled(engine: AsyncEngine) -> float:
    lines = [line for line in engine.metrics().splitlines() if line.startswith("llgtrt_sampled_tokens")]
    return sum(float(line.split()[-1]) for line in lines)


def is_free(engine: AsyncEngine, places: int) -> bool:
    try:
        engine.reserve(places)
    except OverloadedError:
        return False
    return True


async def until(condition: Callable[[], bool], what: str) -> None:
    """Lets the loop turn until the condition holds."""

    async def turn() -> None:
        turned = asyncio.Event()
        asyncio.get_running_loop().call_soon(turned.set)
        await turned.wait()

    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, what
        await turn()


def test_a_search_goes_on_while_the_server_drains() -> None:
    async def run() -> None:
        async with running() as engine:
            stream = start_beams(engine, beams("Go", 2, max_tokens=20), engine.reserve(2))
            engine.begin_drain()
            delta = await stream.result()
            assert [choice.token_count for choice in delta.choices] == [20, 20]

    asyncio.run(run())


def test_an_error_of_the_first_step_is_that_of_the_request() -> None:
    async def run() -> None:
        async with running() as engine:
            grammar = GrammarSpec.json_schema('{"type": "nothing"}')
            stream = start_beams(engine, beams("Go", 2, grammar=grammar), engine.reserve(2))
            with pytest.raises(_native.GrammarError) as caught:
                await stream.result()
            assert caught.value.param == "response_format.type"
            with pytest.raises(_native.ContextLengthError):
                await result(engine, beams("Go", 2, max_tokens=10**6))

    asyncio.run(run())


@pytest.mark.parametrize("width", [1, 2, 5])
def test_answers_under_a_grammar_are_complete(width: int) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}, "ok": {"type": "boolean"}},
        "required": ["n", "ok"],
        "additionalProperties": False,
    }

    async def run() -> None:
        async with running() as engine:
            for most in (17, 18, 19, 20, 24, 30, 40, 60):
                request = beams(
                    "Go", width, max_tokens=most, grammar=GrammarSpec.json_schema(json.dumps(schema))
                )
                delta: ComposedDelta = await result(engine, request)
                assert delta.choices
                for choice in delta.choices:
                    answer = json.loads(choice.text)
                    assert set(answer) == {"n", "ok"}, choice.text
                    assert 0 <= answer["n"] <= 99
                    assert choice.token_count <= most

    asyncio.run(run())


def test_likelihoods_under_a_grammar_are_those_of_what_it_allows() -> None:
    async def run() -> None:
        async with running() as engine:
            request = beams("Go", 4, max_tokens=8, grammar=GrammarSpec.choice(["a", "b", "c"]))
            delta = await result(engine, request)
            assert sorted(choice.text for choice in delta.choices) == ["a", "b", "c"]
            first = [from_json(choice.logprobs)["token_logprobs"][0] for choice in delta.choices]
            assert sum(2.718281828**logprob for logprob in first) == pytest.approx(1.0, abs=1e-3)
            assert first == sorted(first, reverse=True)

    asyncio.run(run())
