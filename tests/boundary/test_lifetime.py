"""Ownership across the boundary: cancellation, the GIL, leaks, shutdown."""

from __future__ import annotations

import gc
import json
import resource
import socket
import subprocess
import sys
import textwrap
import threading
import weakref
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from llgtrt import _native
from llgtrt.engine import AsyncEngine
from support.core import Core, engine_config, native_request
from support.server import wait_until

SLOW = {"step_us": 20_000}
"""Steps so slow that a request to the context's end outlasts every deadline here: only cancelling ends it."""


def is_idle(core: Core) -> bool:
    return core.engine.active_requests() == 0


def other_threads_progress(work: Callable[[], object]) -> int:
    """How often this thread could run while another was inside ``work``."""
    started, done = threading.Event(), threading.Event()

    def run() -> None:
        started.set()
        work()
        done.set()

    worker = threading.Thread(target=run)
    worker.start()
    started.wait()
    rounds = 0
    while not done.is_set():
        rounds += 1
    worker.join()
    return rounds


def test_tokenizing_releases_the_gil(core: Core) -> None:
    text = "some words and numbers 12345 " * 200_000
    assert other_threads_progress(lambda: core.engine.tokenize(text)) > 1000


def test_shutdown_releases_the_gil_and_can_be_repeated(core: Core) -> None:
    handles = [core.submit(seed=seed, max_tokens=400, ignore_eos=True) for seed in range(8)]
    other_threads_progress(core.engine.shutdown)
    core.engine.shutdown()
    with pytest.raises((_native.ShuttingDownError, _native.EngineFailedError)):
        core.engine.reserve(1)
    del handles


def test_python_runs_while_a_grammar_compiles(core: Core) -> None:
    properties = {f"property_{number}": {"type": "integer"} for number in range(1500)}
    part = {"type": "object", "properties": properties}
    schema = {"type": "object", "properties": {"first": part, "second": part}}
    grammar = _native.GrammarSpec.json_schema(json.dumps(schema))
    answers: list[_native.Delta] = []
    rounds = other_threads_progress(
        lambda: answers.extend(
            core.finish(core.submit(grammar=grammar, output="final", max_tokens=1, at_limit="cut"))
        )
    )
    assert answers[-1].error is None
    assert rounds > 1000


def open_files() -> int:
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


@pytest.mark.parametrize("end", ["the request ends", "it is cancelled", "writing is stopped"])
def test_a_connection_s_second_descriptor_is_closed(make_core: Callable[..., Core], end: str) -> None:
    core = make_core(sim={"step_us": 1000})
    ours, theirs = socket.socketpair()
    with ours, theirs:
        before = open_files()
        handle = core.submit(output="chat_sse", max_tokens=50, ignore_eos=True)
        frames, _ = core.next(handle)
        assert isinstance(frames, bytes)
        assert handle.write_to(ours.fileno(), frames) == b""
        assert open_files() == before + 1
        assert handle.written_ago_s() is not None
        if end == "the request ends":
            while not core.next(handle)[1]:
                pass
        elif end == "it is cancelled":
            handle.cancel()
        else:
            handle.stop_writing()
        assert open_files() == before
        assert handle.written_ago_s() is None
        assert theirs.recv(1 << 16).startswith(b"%x\r\n%b\r\n" % (len(frames), frames))


def test_where_files_are_few_connections_have_no_second_descriptor(core: Core) -> None:
    handle = core.submit(output="chat_sse", ignore_eos=True)
    ours, theirs = socket.socketpair()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with ours, theirs:
        before = open_files()
        resource.setrlimit(resource.RLIMIT_NOFILE, (8 * ours.fileno(), hard))
        try:
            with pytest.raises(OSError, match="files"):
                handle.write_to(ours.fileno(), b"data: x\n\n")
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert open_files() == before
        with pytest.raises(ValueError, match="socket"):
            handle.write_to(-1, b"data: x\n\n")


def test_dropping_the_handle_cancels(make_core: Callable[..., Core]) -> None:
    core = make_core(sim=SLOW)
    handle = core.submit(ignore_eos=True)
    core.next(handle)
    assert core.engine.active_requests() == 1
    del handle
    gc.collect()
    wait_until(lambda: is_idle(core), "the dropped request is gone")


def test_cancel_is_idempotent_and_silent(make_core: Callable[..., Core]) -> None:
    core = make_core(sim=SLOW)
    handle = core.submit(ignore_eos=True)
    core.next(handle)
    handle.cancel()
    handle.cancel()
    wait_until(lambda: is_idle(core), "the cancelled request is gone")
    assert handle.id not in [request_id for request_id, _, _ in core.engine.drain()]


def test_cancel_while_queued(make_core: Callable[..., Core]) -> None:
    core = make_core(runtime={"max_batch_size": 1}, sim=SLOW)
    running = core.submit(ignore_eos=True)
    core.next(running)
    queued = [core.submit(max_tokens=4) for _ in range(5)]
    assert core.engine.active_requests() == 6
    del queued
    gc.collect()
    wait_until(lambda: core.engine.active_requests() == 1, "the queued requests are gone")
    running.cancel()
    wait_until(lambda: is_idle(core), "all requests are gone")


@pytest.mark.parametrize("text", ["x" * 200, "\u00e9" * 100])
def test_a_prompt_is_not_copied_and_is_let_go(core: Core, text: str) -> None:
    before = sys.getrefcount(text)
    request = native_request(prompts=[text], output="deltas", max_tokens=1)
    assert sys.getrefcount(text) == before + 1
    handle = core.engine.submit(request, core.engine.reserve(1))
    del request
    while not core.next(handle)[1]:
        pass
    # What another thread lets go of is free after the next call.
    wait_until(lambda: is_idle(core) and sys.getrefcount(text) == before, "the text is free")


def one_of_each(core: Core, seed: int) -> None:
    """A finished, a constrained, a refused and a dropped request."""
    core.finish(core.submit(max_tokens=5, seed=seed, ignore_eos=True))
    grammar = _native.GrammarSpec.regex(f"[a-c]{{3}}{seed}")
    core.finish(core.submit(grammar=grammar, seed=seed))
    core.finish(core.submit(grammar=_native.GrammarSpec.regex("((" * (seed % 7 + 1))))
    core.submit(ignore_eos=True)


@pytest.mark.timeout(240)
def test_nothing_leaks_over_1000_requests(make_core: Callable[..., Core]) -> None:
    # A small cache fills during the warm-up, so that it does not look like a leak.
    core = make_core(llguidance={"cache_megabytes": 4})
    process = psutil.Process()
    for seed in range(100):
        one_of_each(core, seed)
    wait_until(lambda: is_idle(core), "the warm-up is done")
    gc.collect()
    before = process.memory_info().rss
    for seed in range(100, 350):
        one_of_each(core, seed)
    wait_until(lambda: is_idle(core), "all requests are gone")
    gc.collect()
    grown = process.memory_info().rss - before
    # A leaked handle or matcher is at least 100 kB: a thousand of them would be 100 MB.
    assert grown < 24 * 2**20, f"{grown / 2**20:.1f} MiB"


def test_a_core_can_be_dropped_while_it_runs(make_core: Callable[..., Core]) -> None:
    core = Core(engine_config(sim=SLOW))
    handles = [core.submit(ignore_eos=True) for _ in range(4)]
    core.next(handles[0])
    del core, handles
    gc.collect()
    again = make_core()
    (delta,) = again.finish(again.submit(output="final", max_tokens=3, ignore_eos=True))
    assert delta.error is None


def test_leaving_the_interpreter_with_a_running_core() -> None:
    program = f"""
        from llgtrt import _native
        engine = _native.Engine({engine_config(sim=SLOW)!r})
        fields = b'{{"request": {{"sampling": {{"ignore_eos": true}}}}}}'
        request = _native.GenerateRequest(fields, prompts=["x"])
        handle = engine.submit(request, engine.reserve(1))
    """
    result = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, timeout=60, check=False
    )
    assert (result.returncode, result.stderr) == (0, b"")


async def test_a_request_that_failed_leaves_nothing_behind() -> None:
    class Body:
        """What the handler of a request holds."""

    engine = await AsyncEngine.load(engine_config())
    kept: list[weakref.ref[Body]] = []

    async def ask() -> None:
        body = Body()
        kept.append(weakref.ref(body))
        request = native_request(grammar=_native.GrammarSpec.regex("("))
        await engine.submit(request, engine.reserve(1)).result()

    try:
        for _ in range(3):
            with pytest.raises(_native.GrammarError) as failure:
                await ask()
            assert failure.value.kind == "grammar"
            assert failure.value.message
            del failure
        gc.collect()
        assert [one() for one in kept] == [None] * 3
    finally:
        await engine.shutdown()
