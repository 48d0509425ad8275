"""The suite itself: each thing that it is to notice is planted in a stand-in, and noticed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from support.api import COMPLETIONS
from support.hostile import fake_server
from support.hostile.census import baseline, wait_for_nothing_left
from support.hostile.neighbours import Neighbours
from support.hostile.probe import HealthProbe, percentile
from support.hostile.soak import check_memory, growth, soak
from support.hostile.verdict import fault_of
from support.hostile.wire import post
from support.server import ServerProcess, wait_until

MB = 1 << 20

Start = Callable[[str], ServerProcess]


@pytest.fixture
def stand_in() -> Iterator[Start]:
    with ExitStack() as stack:
        command = [sys.executable, str(Path(fake_server.__file__))]

        def start(fault: str) -> ServerProcess:
            return stack.enter_context(ServerProcess(fault, command=command))

        yield start


def ask(server: ServerProcess) -> None:
    assert post(server, COMPLETIONS, {"prompt": "x"}).status_code == 200


def test_a_server_without_faults_passes(stand_in: Start) -> None:
    server = stand_in("none")
    ask(server)
    before = baseline(server)
    with HealthProbe(server.port) as probe, Neighbours(server.base_url) as neighbours:
        samples = soak(server, lambda _: ask(server), 0)
    probe.check()
    neighbours.check()
    check_memory(samples)
    wait_for_nothing_left(server, before)


@pytest.mark.parametrize("fault", ["descriptors", "threads", "matchers"])
def test_what_is_left_behind_is_noticed(stand_in: Start, fault: str) -> None:
    server = stand_in(fault)
    before = baseline(server)
    for _ in range(5):
        # More than the connections and threads that come and go with a count.
        ask(server)
    with pytest.raises(AssertionError, match="left behind"):
        wait_for_nothing_left(server, before, settle_s=0.5)
    with pytest.raises(AssertionError, match="left behind"):
        soak(server, lambda _: ask(server), 0, settle_s=0.5)


def test_a_leak_of_memory_is_noticed(stand_in: Start) -> None:
    server = stand_in("memory")
    samples = soak(server, lambda _: ask(server), 0)
    with pytest.raises(AssertionError, match="memory grew"):
        check_memory(samples)


def test_growth_does_not_count_the_warm_up_and_outliers() -> None:
    flat = [100 * MB] * 12
    assert growth([10 * MB, 50 * MB, 90 * MB, *flat]) == 0
    assert growth([*flat[:8], 500 * MB, *flat[8:]]) == 0
    assert growth([MB * size for size in range(100, 120)]) > 0.02


def probed(server: ServerProcess, timeout_s: float) -> HealthProbe:
    """Probes before a request and after it."""
    with HealthProbe(server.port, timeout_s) as probe:
        ask(server)
        wait_until(lambda: server.metric(fake_server.PROBES) >= 3, "it was probed since")
    return probe


def test_a_stall_is_noticed(stand_in: Start) -> None:
    probe = probed(stand_in("stall"), timeout_s=0.2)
    with pytest.raises(AssertionError, match="timed out"):
        probe.check()


def test_a_failing_probe_is_noticed(stand_in: Start) -> None:
    probe = probed(stand_in("failure"), timeout_s=10)
    with pytest.raises(AssertionError, match="500"):
        probe.check()


def test_slow_probes_show_in_the_percentile(stand_in: Start) -> None:
    probe = probed(stand_in("slow"), timeout_s=10)
    probe.check()
    assert percentile(probe.report.times_ms, 99) > 1000 * fake_server.SLOW_S


def test_an_answer_that_changes_is_noticed(stand_in: Start) -> None:
    server = stand_in("neighbours")
    with Neighbours(server.base_url) as neighbours:
        wait_until(lambda: neighbours.answers > 5, "neighbours were answered")
    with pytest.raises(AssertionError, match="instead of"):
        neighbours.check()


@pytest.mark.parametrize(
    ("status", "content_type", "body"),
    [
        (500, "application/json", b'{"error": {"message": "x", "type": "y"}}'),
        (200, "application/json", b'{"a": NaN}'),
        (200, "application/json", b'{"a": "\xff"}'),
        (200, "application/json", b"5"),
        (400, "application/json", b'{"detail": "x"}'),
        (400, "application/json", b'{"error": {"message": "", "type": "y"}}'),
        (400, "application/json", b'{"error": {"message": "' + b"x" * 5000 + b'", "type": "y"}}'),
        (200, "text/event-stream", b'data: {"a": 1}'),
        (200, "text/event-stream", b'data: {"a": Infinity}\n\ndata: [DONE]\n\n'),
    ],
)
def test_answers_that_are_wrong(status: int, content_type: str, body: bytes) -> None:
    assert fault_of(status, content_type, body) is not None


@pytest.mark.parametrize(
    ("status", "content_type", "body"),
    [
        (200, "application/json", b'{"a": 1}'),
        (400, "application/json", b'{"error": {"message": "x", "type": "y", "param": null, "code": null}}'),
        (400, "application/json", b'{"error": "x"}'),
        (200, "text/event-stream", b': ping\n\ndata: {"a": "data: x"}\n\ndata: [DONE]\n\n'),
        (200, "text/event-stream", b'event: a\ndata: {"a": 1}\n\n'),
    ],
)
def test_answers_that_are_right(status: int, content_type: str, body: bytes) -> None:
    assert fault_of(status, content_type, body) is None
