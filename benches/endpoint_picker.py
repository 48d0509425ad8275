"""Whether an endpoint picker of the Gateway API's inference extension picks servers of ours well.

Two servers of the sim engine with the times of a small GPU, and the picker of llm-d's router, which reads
their /metrics and, in mode `precise`, subscribes to their KV events and has prompts rendered by one of them.
This program is the gateway: it asks the picker by Envoy's ext_proc, as an HTTPRoute to an InferencePool makes
a gateway do, and sends the request where it says. Two questions:

- shared beginnings: of the later requests of a conversation, how many go to the server of its first one;
- a full server: while one has all slots taken and a queue, how many requests go to the other.

The picker is a program that is on the machine already (`epp`, 0.9 or later, which finds servers in a file):

    .venv/bin/uv pip install --target target/picker --require-hashes -r requirements/picker.txt
    PYTHONPATH=python:target/picker .venv/bin/python benches/endpoint_picker.py --picker /path/to/epp
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-not-found,import-untyped,unused-ignore]
import httpx
from envoy.config.core.v3 import base_pb2  # type: ignore[import-not-found]
from envoy.service.ext_proc.v3 import external_processor_pb2 as ext_proc  # type: ignore[import-not-found]
from envoy.service.ext_proc.v3 import (
    external_processor_pb2_grpc as ext_proc_grpc,
)
from load import free_port, print_table, wait_http

ROOT = Path(__file__).parents[1]
SLOTS = 4
STEP_US = 20_000
PREFILL_US_PER_TOKEN = 500
CACHE_TOKENS = 16_384
BLOCK_TOKENS = 16
BEGINNING_TOKENS = 400
ANSWER_TOKENS = 8
DESTINATION = "x-gateway-destination-endpoint"
MODEL = "sim"

LOAD = ["queue-scorer", "kv-cache-utilization-scorer"]
WEIGHTS = {"queue-scorer": 2, "kv-cache-utilization-scorer": 1, "prefix-cache-scorer": 3}


class Server:
    """A server of ours, which tells the picker of its KV events."""

    def __init__(self, kv_port: int, log: Path) -> None:
        self.port = free_port()
        topic = f'kv_events.topic="kv@{self.address}@{MODEL}"'
        arguments = [
            "--backend", "sim", "--served-model-name", MODEL,
            "--port", str(self.port),
            "--kv-events", f"zmq://127.0.0.1:{kv_port}", "--set", topic,
            "--set", f"kv_events.block_size={BLOCK_TOKENS}",
            "--set", f"runtime.max_batch_size={SLOTS}",
            "--set", f"sim.step_us={STEP_US}",
            "--set", f"sim.prefill_us_per_token={PREFILL_US_PER_TOKEN}",
            "--set", f"sim.prefix_cache_tokens={CACHE_TOKENS}",
        ]  # fmt: skip
        with log.open("w") as out:
            command = [sys.executable, "-m", "llgtrt", *arguments]
            # Envoy's definitions bring an empty package `opentelemetry`, which is not for the server.
            environment = {**os.environ, "PYTHONPATH": str(ROOT / "python")}
            self.process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)

    @property
    def address(self) -> str:
        """As the picker names it."""
        return f"127.0.0.1:{self.port}"


def picker_config(mode: str, endpoints: Path, kv_port: int, tokenizer: Server) -> dict[str, Any]:
    """The picker's configuration."""
    plugins: list[dict[str, Any]] = [
        {"name": "files", "type": "file-discovery", "parameters": {"path": str(endpoints)}},
        {"type": "single-profile-handler"},
        {"type": "metrics-data-source"},
        {"type": "core-metrics-extractor"},
        {"type": "max-score-picker"},
        *({"type": scorer} for scorer in LOAD),
    ]
    sources = [{"pluginRef": "metrics-data-source", "extractors": [{"pluginRef": "core-metrics-extractor"}]}]
    scorers = list(LOAD)
    if mode == "precise":
        url = f"http://{tokenizer.address}"
        plugins += [
            {"type": "token-producer", "parameters": {"modelName": MODEL, "vllm": {"url": url}}},
            {
                "type": "precise-prefix-cache-producer",
                "parameters": {
                    "tokenProcessorConfig": {"blockSize": BLOCK_TOKENS},
                    "kvEventsConfig": {
                        "topicFilter": "kv@",
                        "concurrency": 1,
                        "discoverPods": False,
                        "zmqEndpoint": f"tcp://127.0.0.1:{kv_port}",
                    },
                },
            },
            {
                "type": "prefix-cache-scorer",
                "parameters": {"prefixMatchInfoProducerName": "precise-prefix-cache-producer"},
            },
        ]
        scorers.append("prefix-cache-scorer")
    elif mode == "estimated":
        plugins.append({"type": "prefix-cache-scorer"})
        scorers.append("prefix-cache-scorer")
    profile = [{"pluginRef": scorer, "weight": WEIGHTS[scorer]} for scorer in scorers]
    return {
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": plugins,
        "schedulingProfiles": [{"name": "default", "plugins": [*profile, {"pluginRef": "max-score-picker"}]}],
        "dataLayer": {"discovery": {"pluginRef": "files"}, "sources": sources},
    }


@contextmanager
def picked_servers(mode: str, program: Path, log: Path) -> Iterator[tuple[list[Server], str]]:
    """Two servers, and the picker's address."""
    processes = []
    try:
        kv_port = free_port()
        servers = [Server(kv_port, log / f"server{index}.log") for index in range(2)]
        processes = [server.process for server in servers]
        for server in servers:
            wait_http(server.process, server.port, "/v1/health/ready")
        endpoints = log / "endpoints.yaml"
        listed = [
            {"name": f"server{index}", "address": "127.0.0.1", "port": str(server.port)}
            for index, server in enumerate(servers)
        ]
        endpoints.write_text(json.dumps({"endpoints": listed}))
        # JSON is YAML.
        config = log / "picker.yaml"
        config.write_text(json.dumps(picker_config(mode, endpoints, kv_port, servers[0]), indent=2))
        port = free_port()
        ports = [
            "--grpc-port", str(port),
            "--grpc-health-port", str(free_port()),
            "--metrics-port", str(free_port()),
        ]  # fmt: skip
        plain = [
            "--pool-name=llgtrt",
            "--pool-namespace=llgtrt",
            "--secure-serving=false",
            "--metrics-endpoint-auth=false",
            "--tracing=false",
            "--enable-pprof=false",
        ]
        with (log / "picker.log").open("w") as out:
            command = [str(program), "--config-file", str(config), *ports, *plain]
            picker = subprocess.Popen(command, stdout=out, stderr=out)
        processes.append(picker)
        yield servers, f"127.0.0.1:{port}"
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            process.wait()


class Gateway:
    """Sends requests where the picker says."""

    def __init__(self, picker: str) -> None:
        self._channel = grpc.aio.insecure_channel(picker)
        self._picker = ext_proc_grpc.ExternalProcessorStub(self._channel)
        self._http = httpx.AsyncClient(timeout=120, limits=httpx.Limits(max_connections=None))
        self._number = 0

    async def ready(self) -> None:
        await asyncio.wait_for(self._channel.channel_ready(), 30)

    async def close(self) -> None:
        await self._http.aclose()
        await self._channel.close()

    @asynccontextmanager
    async def asked(self, body: dict[str, Any]) -> AsyncIterator[tuple[str, dict[str, Any]]]:
        """Where a request is to go, and its body as the picker wrote it; the picker hears of the end."""
        self._number += 1
        stream = self._picker.Process()
        headers = {
            ":method": "POST",
            ":path": "/v1/chat/completions",
            ":authority": "gateway",
            "content-type": "application/json",
            "x-request-id": f"request-{self._number}",
        }
        await stream.write(ext_proc.ProcessingRequest(request_headers=header_map(headers)))
        whole = ext_proc.HttpBody(body=json.dumps(body).encode(), end_of_stream=True)
        await stream.write(ext_proc.ProcessingRequest(request_body=whole))
        destination, written, more = None, b"", True
        while more:
            answer = await asyncio.wait_for(stream.read(), 30)
            kind = answer.WhichOneof("response") if answer is not grpc.aio.EOF else None
            if kind == "request_headers":
                for option in answer.request_headers.response.header_mutation.set_headers:
                    if option.header.key == DESTINATION:
                        destination = option.header.raw_value.decode()
            elif kind == "request_body":
                part = answer.request_body.response.body_mutation.streamed_response
                written += part.body
                more = not part.end_of_stream
            else:
                raise RuntimeError(f"the picker refuses: {answer}")
        if destination is None:
            raise RuntimeError("the picker names no server")
        try:
            yield destination, json.loads(written)
            await stream.write(ext_proc.ProcessingRequest(response_headers=header_map({":status": "200"})))
            end = ext_proc.HttpBody(body=b"", end_of_stream=True)
            await stream.write(ext_proc.ProcessingRequest(response_body=end))
            await stream.done_writing()
            with contextlib.suppress(asyncio.TimeoutError):
                while await asyncio.wait_for(stream.read(), 5) is not grpc.aio.EOF:
                    pass
        finally:
            stream.cancel()

    async def send(self, body: dict[str, Any]) -> tuple[str, dict[str, Any]]:
        """The server that a request went to, and its answer."""
        async with self.asked(body) as (destination, written):
            return destination, await self.direct(destination, written)

    async def direct(self, address: str, body: dict[str, Any]) -> dict[str, Any]:
        """An answer of one server, past the picker."""
        response = await self._http.post(f"http://{address}/v1/chat/completions", json=body)
        response.raise_for_status()
        answer: dict[str, Any] = response.json()
        return answer


def header_map(headers: dict[str, str]) -> Any:
    values = [base_pb2.HeaderValue(key=key, raw_value=value.encode()) for key, value in headers.items()]
    return ext_proc.HttpHeaders(headers=base_pb2.HeaderMap(headers=values))


def conversation(beginning: str, number: int, **members: Any) -> dict[str, Any]:
    return {
        "model": MODEL,
        "messages": [{"role": "user", "content": f"{beginning} {number:06}?"}],
        "max_tokens": ANSWER_TOKENS,
        "ignore_eos": True,
        **members,
    }


async def shared_beginnings(gateway: Gateway, groups: int, turns: int) -> tuple[float, float]:
    """Shares of the later requests of conversations: sent where their beginning is; prompt tokens cached."""
    order = random.Random(1)
    beginnings = ["".join(order.choices("abcdefghijklmnop ", k=BEGINNING_TOKENS)) for _ in range(groups)]
    first: list[str] = []
    for index, beginning in enumerate(beginnings):
        first.append((await gateway.send(conversation(beginning, index)))[0])
    # What it is told of a cache, a picker knows a moment later.
    await asyncio.sleep(0.5)
    later = [index for index in range(groups) for _ in range(turns)]
    order.shuffle(later)
    free = asyncio.Semaphore(SLOTS)

    async def turn(number: int, index: int) -> tuple[bool, dict[str, Any]]:
        async with free:
            where, answer = await gateway.send(conversation(beginnings[index], groups + number))
        return where == first[index], answer["usage"]

    results = await asyncio.gather(*(turn(number, index) for number, index in enumerate(later)))
    usages = [usage for _, usage in results]
    cached = sum((usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0) for usage in usages)
    share = sum(there for there, _ in results) / len(results)
    return share, cached / sum(usage["prompt_tokens"] for usage in usages)


async def full_server(gateway: Gateway, servers: list[Server], requests: int) -> float:
    """The share of requests that go to the other server while one is full."""
    full = servers[0].address
    busy = [
        asyncio.ensure_future(gateway.direct(full, conversation("x", index, max_tokens=600)))
        for index in range(3 * SLOTS)
    ]
    # The picker reads the metrics every 50 ms.
    await asyncio.sleep(0.5)
    where: Counter[str] = Counter()
    for index in range(requests):
        where[(await gateway.send(conversation(f"new {index}", index)))[0]] += 1
    still = sum(not one.done() for one in busy)
    if still < 2 * SLOTS:
        raise RuntimeError("the full server was not full to the end")
    for one in busy:
        one.cancel()
    await asyncio.gather(*busy, return_exceptions=True)
    return 1 - where[full] / requests


async def body_unchanged(gateway: Gateway) -> bool:
    """Whether the picker leaves the order of a schema's properties as it is."""
    schema = {"type": "object", "properties": {"z": {"type": "null"}, "a": {"type": "null"}}}
    asked = conversation(
        "schema", 0, response_format={"type": "json_schema", "json_schema": {"schema": schema}}
    )
    async with gateway.asked(asked) as (_, written):
        return list(written["response_format"]["json_schema"]["schema"]["properties"]) == ["z", "a"]


async def measure(servers: list[Server], picker: str, groups: int, turns: int) -> list[str]:
    gateway = Gateway(picker)
    try:
        await gateway.ready()
        share, cached = await shared_beginnings(gateway, groups, turns)
        avoided = await full_server(gateway, servers, 40)
        kept = await body_unchanged(gateway)
    finally:
        await gateway.close()
    return [f"{share:.0%}", f"{cached:.0%}", f"{avoided:.0%}", "kept" if kept else "lost"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--picker", type=Path, required=True, help="the program epp of llm-d's router")
    parser.add_argument("--modes", nargs="+", default=["load", "estimated", "precise"])
    parser.add_argument("--groups", type=int, default=24, help="conversations")
    parser.add_argument("--turns", type=int, default=8, help="requests of each after its first")
    parser.add_argument("--log", type=Path, help="a folder for the logs")
    arguments = parser.parse_args()
    rows = []
    for mode in arguments.modes:
        with tempfile.TemporaryDirectory() as name:
            log = arguments.log or Path(name)
            log.mkdir(parents=True, exist_ok=True)
            with picked_servers(mode, arguments.picker, log) as (servers, picker):
                row = asyncio.run(measure(servers, picker, arguments.groups, arguments.turns))
        rows.append([mode, *row])
    header = ["picks by", "to its beginning", "tokens cached", "full one avoided", "order of properties"]
    print_table(header, rows)


if __name__ == "__main__":
    main()
