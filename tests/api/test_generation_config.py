"""A model whose files say how to sample it, through llama.cpp."""

from __future__ import annotations

import json
from pathlib import Path

import httpx
import pytest

from support.api import COMPLETIONS, ok
from support.server import ServerProcess
from support.tiny_llama import write_llama


@pytest.mark.parametrize(("setting", "greedy"), [("auto", True), ("none", False)])
def test_a_request_that_does_not_say_is_sampled_as_the_files_say(
    tmp_path: Path, setting: str, greedy: bool
) -> None:
    model = write_llama(tmp_path / "model.gguf", {"general.sampling.temp": 0.0})
    config = tmp_path / "config.json5"
    config.write_text(json.dumps({"server": {"generation_config": setting}, "llamacpp": {"threads": 1}}))
    with (
        ServerProcess("serve", str(model), "-C", str(config)) as server,
        httpx.Client(base_url=server.base_url, timeout=60) as http,
    ):

        def texts(**fields: float) -> set[str]:
            body = {"prompt": "abc", "max_tokens": 12, "n": 4, **fields}
            return {choice["text"] for choice in ok(http.post(COMPLETIONS, json=body))["choices"]}

        assert len(texts()) == (1 if greedy else 4)
        assert len(texts(temperature=1)) == 4
        assert len(texts(temperature=0)) == 1
        assert len(texts(temperature=50)) == 4
