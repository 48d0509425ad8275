"""Threads that run before there is work for them."""

from __future__ import annotations

import threading

import pytest

from llgtrt.config import ConfigError
from llgtrt.threads import start_threads


def test_all_of_them_run_before_there_is_work() -> None:
    with start_threads("offload-test", 5) as pool:
        running = [thread for thread in threading.enumerate() if thread.name.startswith("offload-test")]
        assert len(running) == 5
        assert pool.submit(lambda: 7).result(10) == 7


def test_too_few_threads_are_an_error_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[threading.Thread] = []
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if len(started) == 2:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(ConfigError, match="can't start new thread"):
        start_threads("offload-few", 5)
    monkeypatch.undo()
    for thread in started:
        thread.join(10)
        assert not thread.is_alive()
