"""The demo model twice, and a simulated one, in one process."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import psutil

from support.api import CHAT, ok
from support.server import ServerProcess

AUTH = {"authorization": "Bearer secret"}


def test_models_answer_side_by_side_and_one_goes(model_file: Path, tmp_path: Path) -> None:
    small = {"engine": str(model_file), "runtime": {"max_seq_len": 512, "max_batch_size": 2}}
    file = tmp_path / "several.json5"
    file.write_text(
        json.dumps(
            {
                "models": [
                    {"name": "one", **small},
                    {"name": "two", **small},
                    {"name": "sim", "backend": "sim", "sim": {"text": "script", "script": "I am simulated."}},
                ],
                "llamacpp": {"threads": 1},
                "server": {"api_key": "secret"},
            }
        )
    )

    def answer(http: httpx.Client, name: str, **fields: object) -> str:
        messages = [{"role": "user", "content": "What is the capital of France?"}]
        body = {"model": name, "messages": messages, "temperature": 0, "max_tokens": 20, **fields}
        answered = ok(http.post(CHAT, json=body))
        assert answered["model"] == name
        text: str = answered["choices"][0]["message"]["content"]
        return text

    with (
        ServerProcess("-C", str(file)) as server,
        httpx.Client(base_url=server.base_url, headers=AUTH, timeout=120) as http,
    ):
        memory = psutil.Process(server.process.pid)
        real = answer(http, "one")
        assert real
        assert answer(http, "two") == real
        assert answer(http, "sim") == "I am simulated."
        schema = {
            "type": "json_schema",
            "json_schema": {
                "name": "a",
                "schema": {"type": "object", "properties": {"a": {"type": "integer"}}},
            },
        }
        assert isinstance(json.loads(answer(http, "two", response_format=schema)), dict)
        both = memory.memory_info().rss
        assert http.post("/v2/repository/models/one/unload").status_code == 200
        # Its copy of the weights is gone: rearranged ones are not mapped from the file.
        assert both - memory.memory_info().rss > 50 * 2**20
        assert (
            http.post(
                CHAT, json={"model": "one", "messages": [{"role": "user", "content": "Hi"}]}
            ).status_code
            == 404
        )
        assert answer(http, "two") == real
        assert http.post("/v2/repository/models/one/load").status_code == 200
        assert answer(http, "one") == real
