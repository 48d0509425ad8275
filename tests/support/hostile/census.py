"""What a server process holds: counted before an attack and after it."""

from __future__ import annotations

from dataclasses import astuple, dataclass
from pathlib import Path

from support.server import ServerProcess, wait_until

SETTLE_S = 30.0
MOST_STRAY = 6
"""Compilations that may go on beyond their time: ``llguidance.compile_memory_megabytes`` allows as many."""
COUNTS = 5
MATCHERS = "llgtrt_matchers"


@dataclass(frozen=True, slots=True)
class Census:
    """Counts of one moment.

    Attributes:
        descriptors: open files and connections, the one that asks for the metrics not among them.
        threads: threads of the process, without those that compile for nobody.
        sequences: sequences that run or wait.
        kv_usage: part of the KV cache in use.
        matchers: of sequences under a grammar.
        stray_compiles: grammars that are compiled for nobody any more. They go on at the lowest priority, and
            on a busy machine for as long as it is busy: so their number is bounded, not compared.
    """

    descriptors: int
    threads: int
    sequences: int
    kv_usage: float
    matchers: int
    stray_compiles: int

    def is_within(self, other: Census) -> bool:
        """Whether nothing is held that was not held then."""
        return (
            self.descriptors <= other.descriptors
            and self.threads <= other.threads
            and self.sequences <= other.sequences
            and self.kv_usage <= other.kv_usage
            and self.matchers <= other.matchers
            and self.stray_compiles <= MOST_STRAY
        )


def count(server: ServerProcess) -> Census:
    """What the server holds now."""
    metrics = server.metrics()
    process = Path("/proc") / str(server.process.pid)
    stray = int(metrics["llgtrt_grammar_compiles_overrun"])
    return Census(
        descriptors=len(list((process / "fd").iterdir())),
        threads=len(list((process / "task").iterdir())) - stray,
        sequences=int(metrics["llgtrt_num_requests_running"] + metrics["llgtrt_num_requests_waiting"]),
        kv_usage=metrics["llgtrt_kv_cache_usage_perc"],
        matchers=int(metrics[MATCHERS]),
        stray_compiles=stray,
    )


def baseline(server: ServerProcess) -> Census:
    """What an idle server holds: the least of some counts, as connections take a moment to be closed."""
    counts = [astuple(count(server)) for _ in range(COUNTS)]
    return Census(*map(min, zip(*counts, strict=True)))


def resident_bytes(pid: int) -> int:
    """Memory of a process that is in RAM and its own; files mapped into it do not count."""
    for line in (Path("/proc") / str(pid) / "status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise ValueError("the kernel does not say RssAnon")


def wait_for_nothing_left(server: ServerProcess, before: Census, settle_s: float = SETTLE_S) -> None:
    """Waits until the server holds no more than before; fails with what is left."""
    last = [before]

    def settled() -> bool:
        last[0] = count(server)
        return last[0].is_within(before)

    try:
        wait_until(settled, "nothing is left", settle_s)
    except AssertionError:
        raise AssertionError(f"left behind: {last[0]}, before it was {before}") from None
