"""Schemas that are dear to compile: each is answered, and the next client's schema is as well."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from statistics import median
from typing import Any

import httpx
import pytest

from support.api import CHAT, chat, ok
from support.hostile.figures import record
from support.hostile.form import FULL
from support.hostile.gaps import TokenGaps
from support.hostile.probe import percentile
from support.hostile.schemas import CORPUS, SCHEMAS, corpus, corpus_of_suite
from support.hostile.verdict import fault_of
from support.hostile.watch import watched
from support.hostile.wire import JSON, post
from support.server import ServerProcess

ANSWERED = {200, 400, 422}
"""Taken, refused, or taken with an answer that could not be made to fit."""
_fresh = itertools.count()

MOST_SLOWER = 1.2
"""How much longer a simple schema may take behind the hostile ones, on a machine that does nothing else."""

MOST_GAP_MS = 250.0
"""Between two tokens of a neighbour's stream, there."""


def ask(server: ServerProcess, schema: Any, path: str = CHAT) -> httpx.Response:
    body = (
        chat(max_tokens=20, guided_json=schema)
        if path == CHAT
        else {"json_schema": schema, "instances": [[1, 2], {"a": 1}, "a"]}
    )
    return post(server, path, body)


def simple(server: ServerProcess) -> dict[str, Any]:
    """Asks under a schema that nobody has asked for before: it must be compiled."""
    properties = {f"name{next(_fresh)}": {"type": "integer"}}
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return ok(post(server, CHAT, chat(max_tokens=60, guided_json=schema)))


def simple_ms(server: ServerProcess) -> float:
    """How long such a request takes."""
    began = time.perf_counter()
    simple(server)
    return (time.perf_counter() - began) * 1000


def check(name: str, response: httpx.Response) -> None:
    fault = fault_of(response.status_code, response.headers["content-type"], response.content)
    assert fault is None, (name, fault)
    assert response.status_code in ANSWERED, (name, response.text)


def ask_with_text(server: ServerProcess, schema: str) -> httpx.Response:
    body = json.dumps(chat(max_tokens=20, guided_json="@")).replace('"@"', schema)
    return httpx.post(server.base_url + CHAT, content=body.encode(), headers=JSON, timeout=110, verify=False)


def one_after_another(server: ServerProcess, case: str, schemas: Iterable[tuple[str, str]]) -> None:
    statuses: list[int] = []
    longest = (0.0, "")
    behind_ms: list[float] = []
    usual_ms: list[float] = []
    with watched(server, case), TokenGaps(server.port) as gaps:
        for name, schema in schemas:
            began = time.monotonic()
            response = ask_with_text(server, schema)
            took_s = time.monotonic() - began
            longest = max(longest, (took_s, name))
            check(name, response)
            statuses.append(response.status_code)
            behind_ms.append(simple_ms(server))
            # Who has waited is slow to go on, whatever the server did meanwhile: processors fall asleep.
            time.sleep(took_s)
            usual_ms.append(simple_ms(server))
    overruns = server.metric("llgtrt_grammar_overruns_total")
    taken = sum(status != 400 for status in statuses)
    record(
        case,
        f"{len(statuses)} answered, {taken} of them taken; longest {longest[0]:.1f} s "
        f"({longest[1]}); {overruns:.0f} beyond their time",
    )
    times = gaps.times_ms
    record(
        case,
        f"a simple schema takes {median(usual_ms):.1f} ms, behind them {median(behind_ms):.1f} ms; "
        f"gaps of a stream beside: p99 {percentile(times, 99):.1f} ms, longest {max(times):.1f} ms",
    )
    if FULL:
        # The budget is counted in steps: on a machine that does nothing else it ends each in time.
        assert overruns == 0
        assert median(behind_ms) <= MOST_SLOWER * median(usual_ms), (usual_ms, behind_ms)
        assert max(times) <= MOST_GAP_MS


def test_each_is_answered_and_the_next_one_too(attacked: ServerProcess) -> None:
    one_after_another(attacked, "hostile schemas", corpus_of_suite())


@pytest.mark.full_form
@pytest.mark.timeout(1800)
def test_the_whole_corpus_of_the_compiler(attacked: ServerProcess) -> None:
    assert CORPUS.is_file(), "`make hostile` writes it"
    one_after_another(attacked, "hostile schemas, all", corpus())


@pytest.mark.parametrize("path", [CHAT, "/v1/grammar/validate"])
def test_all_at_once_keep_nobody_out(attacked: ServerProcess, path: str) -> None:
    with watched(attacked, f"hostile schemas at once, {path}"), ThreadPoolExecutor(10) as pool:
        # Another key makes another schema: nothing comes from the cache.
        hostile = [
            pool.submit(ask, attacked, {**schema, "$comment": path}, path) for schema in SCHEMAS.values()
        ]
        others = [pool.submit(simple, attacked) for _ in range(6)]
        for name, response in zip(SCHEMAS, hostile, strict=True):
            check(name, response.result())
        for other in others:
            assert other.result()["choices"][0]["finish_reason"] in ("stop", "length")
