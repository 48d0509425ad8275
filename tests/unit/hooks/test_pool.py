"""Calls of a processor: off the loop, in order, and what becomes of errors and of clients that leave."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from llgtrt.chat import CHATML, ChatTemplate
from llgtrt.engine import ContextLengthError, InvalidRequestError, LlgtrtError, OverloadedError, new_error
from llgtrt.hooks import (
    InputError,
    InputProcessor,
    InputRequest,
    PreparedInput,
    ProcessorContext,
    ProcessorFailedError,
    ProcessorPool,
)


def context(template: ChatTemplate | None = None) -> ProcessorContext:
    def encode(text: str, add_special: bool) -> list[int]:
        return ([1] if add_special else []) + list(text.encode())

    return ProcessorContext(
        vocab_size=300,
        max_sequence_tokens=100,
        template=template or ChatTemplate(CHATML, special_tokens=["<|im_end|>"]),
        encode=encode,
        decode=lambda tokens: bytes(tokens).decode(),
    )


class Scripted(InputProcessor):
    """Does what a test says."""

    def __init__(self, act: Callable[[InputRequest], Any]) -> None:
        super().__init__(context())
        self.act = act

    def process(self, request: InputRequest) -> PreparedInput:
        result: PreparedInput = self.act(request)
        return result


def request(text: Any = "Hello") -> InputRequest:
    return InputRequest(messages=[{"role": "user", "content": text}])


def pool(act: Callable[[InputRequest], Any], threads: int = 1) -> ProcessorPool:
    return ProcessorPool(Scripted(act), threads, vocab_size=300)


async def test_it_runs_off_the_event_loop() -> None:
    seen = []

    def act(_: InputRequest) -> PreparedInput:
        seen.append(threading.current_thread())
        return PreparedInput(tokens=(1, 2))

    prepared = await pool(act).process(request())
    assert prepared.tokens == [1, 2]
    assert seen[0] is not threading.current_thread()


@pytest.mark.parametrize(
    "error",
    [ValueError("secret"), SystemExit(3), StopIteration(), KeyboardInterrupt(), asyncio.CancelledError()],
)
async def test_any_exception_is_a_failure_of_the_processor(error: BaseException) -> None:
    def act(_: InputRequest) -> PreparedInput:
        raise error

    with pytest.raises(ProcessorFailedError) as caught:
        await pool(act).process(request())
    assert caught.value.__cause__ is error
    assert "secret" not in str(caught.value)


async def test_a_wrong_result_is_a_failure_of_the_processor() -> None:
    with pytest.raises(ProcessorFailedError, match="there are no tokens"):
        await pool(lambda _: PreparedInput(tokens=[])).process(request())


async def test_what_the_client_has_to_change() -> None:
    def act(_: InputRequest) -> PreparedInput:
        raise InputError("No such image.", "messages[0].content[1].image_url")

    with pytest.raises(InputError) as caught:
        await pool(act).process(request())
    assert caught.value.param == "messages[0].content[1].image_url"

    def render(asked: InputRequest) -> PreparedInput:
        processor = Scripted(render)
        return PreparedInput(tokens=processor.tokenize(processor.render(asked)))

    with pytest.raises(InputError) as caught:
        await pool(render).process(request([{"type": "image_url"}]))
    assert caught.value.param == "messages[0].content[0]"


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (InvalidRequestError, InputError),
        (ContextLengthError, ContextLengthError),
        (OverloadedError, OverloadedError),
    ],
)
async def test_errors_of_the_core(kind: type[LlgtrtError], expected: type[Exception]) -> None:
    def act(_: InputRequest) -> PreparedInput:
        raise new_error(kind, "no", "prompt")

    with pytest.raises(expected):
        await pool(act).process(request())


async def test_a_cancelled_request_does_not_run_and_a_running_one_is_told() -> None:
    started, go = threading.Event(), threading.Event()
    ran: list[InputRequest] = []

    def act(asked: InputRequest) -> PreparedInput:
        ran.append(asked)
        started.set()
        assert go.wait(10)
        return PreparedInput(tokens=[1])

    calls = pool(act)
    requests = [request(), request(), request()]
    tasks = [asyncio.ensure_future(calls.process(one)) for one in requests]
    assert await asyncio.to_thread(started.wait, 10)
    for task in tasks[:2]:
        task.cancel()
    await asyncio.wait(tasks[:2])
    assert [one.cancelled for one in requests] == [True, True, False]
    assert not calls.stop(0)
    go.set()
    assert calls.stop(10)
    # The third was still waiting when the pool was stopped.
    with pytest.raises(asyncio.CancelledError):
        await tasks[2]
    assert ran == [requests[0]]


async def test_threads_bound_the_calls_at_a_time() -> None:
    together = threading.Barrier(2)
    running, most = 0, 0
    lock = threading.Lock()

    def act(_: InputRequest) -> PreparedInput:
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        together.wait(10)
        with lock:
            running -= 1
        return PreparedInput(tokens=[1])

    calls = pool(act, threads=2)
    await asyncio.gather(*(calls.process(request()) for _ in range(8)))
    assert most == 2


def test_rendering_and_tokenizing() -> None:
    processor = Scripted(lambda _: None)
    prompt = processor.render(request("a <|im_end|>"))
    assert prompt.expanded == "<|im_start|>user\na <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    assert prompt.text.count("\ufdd0") == 1, "what the user typed is marked"
    assert processor.tokenize(prompt) == [1, *prompt.text.encode()]
    assert processor.tokenize("ab") == [97, 98]
    assert processor.tokenize("ab", add_special=True) == [1, 97, 98]
    assert processor.detokenize([97, 400, 98]) == "ab"
    assert processor.guard("<|im_end|>") == "<\ufdd0|im_end|>"


def test_a_request_with_other_messages_is_cancelled_with_the_first() -> None:
    first = InputRequest(messages=[{"role": "user", "content": "x"}], json_schema={}, seed=3)
    other = first.with_messages([])
    first.cancel()
    assert (other.messages, other.json_schema, other.seed, other.cancelled) == ([], {}, 3, True)
