"""The same with a real model: its KV cache, its threads and its masks are not the simulated engine's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from llgtrt.config.engine import demo_model
from support.api import CHAT, chat
from support.hostile.barrage import barrage
from support.hostile.figures import record
from support.hostile.positions import positions
from support.hostile.schemas import SCHEMAS
from support.hostile.values import VALUES
from support.hostile.watch import watched
from support.hostile.wire import open_request, post
from support.server import ServerProcess

pytestmark = [pytest.mark.full_form, pytest.mark.timeout(1200)]

CLIENTS = 40


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    model = demo_model()
    assert model is not None, "the demo model is not installed: run `make setup`"
    config = tmp_path_factory.mktemp("real") / "llgtrt.json5"
    # One thread of llama.cpp's: the clients of the suite need the other cores. Sequences end while clients
    # wait for them.
    config.write_text(
        "{llamacpp: {threads: 1}, runtime: {max_queue_size: 2048, max_seq_len: 1024}, "
        "server: {log_requests: false}}"
    )
    with ServerProcess(str(model), "-C", str(config), "--served-model-name", "sim-model") as process:
        yield process


def test_values_texts_and_schemas(real: ServerProcess) -> None:
    places = positions(real.get("/openapi.json").json())
    pairs = itertools.islice(itertools.product(places, VALUES.items()), 0, None, 41)
    shots = [(f"{place} = {name}", place.path, place.filled(value)) for place, (name, value) in pairs]
    with watched(real, "real model, hostile values"), ThreadPoolExecutor(4) as pool:
        count, faults = barrage(real, shots)
        schemas = [chat(max_tokens=20, guided_json=schema) for schema in SCHEMAS.values()]
        for response in pool.map(lambda body: post(real, CHAT, body), schemas):
            assert response.status_code in (200, 400, 422), response.text
    record("real model, hostile values", f"{count} requests, {len(faults)} answered wrongly")
    assert not faults, "\n".join(faults)


def test_tokens_are_taken_back_in_proportion_to_the_answer(real: ServerProcess) -> None:
    # The numbers that satisfy this are hard to find by digits, so near its limit the answer has no known end.
    steps = {
        "any": {"oneOf": [{"multipleOf": 3}, {"multipleOf": 5}, {"multipleOf": 15}]},
        "eight": {"oneOf": [{"not": {"anyOf": [{"multipleOf": 5}, {"multipleOf": 3}]}}, {"multipleOf": 8}]},
        "eleven": {"oneOf": [{"not": {"multipleOf": 8}}, {"multipleOf": 11}]},
    }
    parts = [{"minimum": 1}, *({"$ref": f"#/$defs/{name}"} for name in steps)]
    schema = {"type": "number", "allOf": parts, "$defs": steps}
    body = chat(
        "Write example number 1 as JSON.", guided_json=schema, temperature=0.8, seed=1, max_tokens=200
    )
    before = real.metric("llgtrt_retracted_tokens_total")
    response = post(real, CHAT, body)
    assert response.status_code in (200, 422), response.text
    taken_back = real.metric("llgtrt_retracted_tokens_total") - before
    record("real model, tokens taken back", f"{taken_back:.0f} for an answer of 200")
    # Ten times the attempts at one place, four for each token, and what the last way back takes.
    assert taken_back <= 10 * 200 + 4 * 200 + 200


def test_clients_that_leave(real: ServerProcess) -> None:
    with watched(real, f"real model, {CLIENTS} clients leave"):
        for number in range(CLIENTS):
            text = "word " * (500 if number % 3 == 0 else 3)
            body = chat(text, stream=number % 2 == 0, n=1 + number % 3, ignore_eos=True, max_tokens=400)
            with open_request(real, CHAT, body) as client:
                if number % 4 == 0:
                    client.recv(1)
