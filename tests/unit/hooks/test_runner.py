"""Calls of a hook's methods: their results, failures and limits; how hooks are found."""

from __future__ import annotations

import asyncio
import importlib.metadata
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from llgtrt.config import ConfigError, PyConfig
from llgtrt.config.py import absolute_hook
from llgtrt.hooks import (
    HookEnd,
    HookFailedError,
    HookRequest,
    HookRunner,
    HookTimeoutError,
    Refusal,
    load_hook,
    start_hook,
)
from llgtrt.hooks.user_loop import UserLoop

REQUEST = HookRequest(id="1", kind="chat")
MakeRunner = Callable[..., HookRunner]


@pytest.fixture
async def make_runner() -> AsyncIterator[MakeRunner]:
    runners: list[HookRunner] = []

    def make(hook: object, timeout_s: float = 10.0) -> HookRunner:
        runners.append(HookRunner(hook, UserLoop(2, "test-hook"), timeout_s))
        return runners[-1]

    yield make
    for runner in runners:
        assert await asyncio.to_thread(runner.stop, 5.0)


async def test_results_of_both_kinds(make_runner: MakeRunner) -> None:
    class Hook:
        def on_request(self, request: HookRequest) -> str:
            return threading.current_thread().name

        async def on_output(self, request: HookRequest, output: Any) -> str:
            return threading.current_thread().name

    runner = make_runner(Hook())
    assert (await runner.call("on_request", REQUEST)).startswith("test-hook-sync")
    assert await runner.call("on_output", REQUEST, None) == "test-hook"
    assert await runner.call("on_end", REQUEST, None) is None
    assert runner.has("on_output")
    assert not runner.has("on_end")


@pytest.mark.parametrize(
    ("error", "form"),
    [
        (RuntimeError, "sync"),
        (RuntimeError, "async"),
        (SystemExit, "sync"),
        (SystemExit, "async"),
        (KeyboardInterrupt, "sync"),
        (StopIteration, "sync"),
    ],
)
async def test_what_it_raises_is_contained(
    make_runner: MakeRunner, error: type[BaseException], form: str
) -> None:
    def raises(self: Any, request: HookRequest) -> None:
        raise error

    async def raises_async(self: Any, request: HookRequest) -> None:
        raise error

    runner = make_runner(type("Hook", (), {"on_request": raises if form == "sync" else raises_async})())
    counts: list[tuple[str, str]] = []
    runner.count_failure = lambda *what: counts.append(what)
    with pytest.raises(HookFailedError):
        await runner.call("on_request", REQUEST)
    assert counts == [("on_request", "error")]


async def test_a_refusal_is_no_failure(make_runner: MakeRunner) -> None:
    class Hook:
        def on_request(self, request: HookRequest) -> None:
            raise Refusal("No.", 429, code="x", headers={"a": "b"})

    runner = make_runner(Hook())
    runner.count_failure = lambda *what: pytest.fail(str(what))
    with pytest.raises(Refusal) as refusal:
        await runner.call("on_request", REQUEST)
    assert (refusal.value.status, refusal.value.code, refusal.value.headers) == (429, "x", {"a": "b"})
    with pytest.raises(ValueError, match="400 to 599"):
        Refusal("x", 200)


async def test_a_call_that_takes_too_long(make_runner: MakeRunner) -> None:
    cancelled = threading.Event()

    class Hook:
        async def on_request(self, request: HookRequest) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                cancelled.set()

    runner = make_runner(Hook(), timeout_s=0.01)
    counts: list[tuple[str, str]] = []
    runner.count_failure = lambda *what: counts.append(what)
    with pytest.raises(HookTimeoutError):
        await runner.call("on_request", REQUEST)
    assert counts == [("on_request", "timeout")]
    await asyncio.to_thread(cancelled.wait, 10)
    assert cancelled.is_set()


async def test_nobody_waits_for_the_end_but_the_server_s(make_runner: MakeRunner) -> None:
    ended: list[str] = []

    class Hook:
        async def on_end(self, request: HookRequest, end: HookEnd) -> None:
            await asyncio.sleep(0)
            ended.append(end.outcome)

    runner = make_runner(Hook())
    runner.end(REQUEST, HookEnd("ok"))
    runner.end(REQUEST, HookEnd("error"))
    assert ended == []
    await runner.finish()
    assert sorted(ended) == ["error", "ok"]


HOOK = (
    "class Hook:\n    def __init__(self{arguments}): self.given = {value}\n    def on_request(self, r): ...\n"
)


async def test_where_a_hook_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_hook.py").write_text(HOOK.format(arguments="", value="1"))
    assert load_hook(f"{tmp_path / 'my_hook.py'}:Hook")().given == 1
    monkeypatch.syspath_prepend(tmp_path)
    assert load_hook("my_hook:Hook")().given == 1
    entry = importlib.metadata.EntryPoint("mine", "my_hook:Hook", "llgtrt.hooks")
    points = importlib.metadata.EntryPoints([entry])
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda **given: points.select(**given))
    assert load_hook("mine")().given == 1
    with pytest.raises(ConfigError, match=r"no entry point 'other' .*installed are mine"):
        load_hook("other")
    other = importlib.metadata.EntryPoint("mine", "their_hook:Hook", "llgtrt.hooks")
    points = importlib.metadata.EntryPoints([entry, entry])
    assert load_hook("mine")().given == 1, "a package that is found twice is one"
    points = importlib.metadata.EntryPoints([entry, other])
    with pytest.raises(ConfigError, match="several packages offer a 'mine': my_hook:Hook, their_hook:Hook"):
        load_hook("mine")


@pytest.mark.parametrize(("arguments", "value", "given"), [(", a", "a", [5]), ("", "None", None)])
async def test_its_constructor(tmp_path: Path, arguments: str, value: str, given: Any) -> None:
    file = tmp_path / "h.py"
    file.write_text(
        HOOK.format(arguments=arguments, value=value) + "    def on_end(self, r, e): return self.given\n"
    )
    reference = f"{file}:Hook"
    runner = await start_hook(load_hook(reference), PyConfig(hooks=reference, hooks_arguments=[5]))
    assert await runner.call("on_end", REQUEST, HookEnd("ok")) == given
    assert await asyncio.to_thread(runner.stop, 5.0)
    file.write_text(HOOK.format(arguments="", value="1 / 0"))
    with pytest.raises(ConfigError, match=r"h\.py:2: ZeroDivisionError"):
        await start_hook(load_hook(reference), PyConfig(hooks=reference))


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("x = 1", "has none of on_request, on_output, on_end"),
        ("def on_request(self): ...", r"on_request must take \(self, request\)"),
        ("def on_output(self, r): ...", r"on_output must take \(self, request, output\)"),
        ("def on_end(self, r): yield", "on_end must not be a generator"),
    ],
)
def test_what_is_no_hook(tmp_path: Path, body: str, message: str) -> None:
    file = tmp_path / "h.py"
    file.write_text(f"class Hook:\n    {body}\n")
    with pytest.raises(ConfigError, match=message):
        load_hook(f"{file}:Hook")
    file.write_text("import nothing_there\n")
    with pytest.raises(ConfigError, match=r"h\.py:1: ModuleNotFoundError"):
        load_hook(f"{file}:Hook")


def test_a_file_counts_from_the_configuration(tmp_path: Path) -> None:
    assert absolute_hook("x/h.py:Hook", Path("/etc/a")) == "/etc/a/x/h.py:Hook"
    assert absolute_hook("/x/h.py:Hook", Path("/etc")) == "/x/h.py:Hook"
    assert absolute_hook("module:Hook", Path("/etc")) == "module:Hook"
    assert absolute_hook("name", Path("/etc")) == "name"
