"""Stop strings and characters in answers (P1, P2)."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from support.api import CHAT, COMPLETIONS, chat, finish_reasons, joined, ok, stream_chunks, text_of
from support.server import ServerProcess


@pytest.mark.parametrize("stop", ["e", "th", [" ", "a"], ["never in there"], ["q", "qu", "que"]])
@pytest.mark.parametrize("seed", range(3))
def test_p1_stop_strings_do_not_leak(http: httpx.Client, stop: Any, seed: int) -> None:
    free = text_of(ok(http.post(CHAT, json=chat(seed=seed))))
    body = chat(seed=seed, stop=stop)
    whole = ok(http.post(CHAT, json=body))
    chunks = stream_chunks(http, CHAT, body)
    stops = [stop] if isinstance(stop, str) else stop
    cuts = [free.find(one) for one in stops if one in free]
    expected = free[: min(cuts)] if cuts else free
    assert text_of(whole) == expected
    assert joined(chunks) == expected
    assert finish_reasons(chunks)[0] == whole["choices"][0]["finish_reason"]
    if cuts:
        assert whole["choices"][0]["finish_reason"] == "stop"


def test_p1_the_stop_string_can_be_kept(http: httpx.Client) -> None:
    text = text_of(ok(http.post(CHAT, json=chat(stop=" ", include_stop_str_in_output=True))))
    assert text.endswith(" ")
    assert text.count(" ") == 1


SCRIPT = "Grüße, 世界! 👩‍👩‍👧 ❤️ naïve 🏳️‍🌈."


@pytest.fixture(scope="module")
def unicode_server(tmp_path_factory: pytest.TempPathFactory) -> Any:
    from support.sim import sim_arguments

    config = {"sim": {"text": "script", "script": SCRIPT}}
    with ServerProcess(*sim_arguments(tmp_path_factory.mktemp("unicode"), config)) as process:
        yield process


def test_p2_characters_are_never_cut(unicode_server: ServerProcess) -> None:
    # The byte tokenizer makes every character of several bytes several tokens.
    with httpx.Client(base_url=unicode_server.base_url) as client:
        assert text_of(ok(client.post(CHAT, json=chat()))) == SCRIPT
        chunks = stream_chunks(client, CHAT, chat())
        assert joined(chunks) == SCRIPT
        assert all("\ufffd" not in json.dumps(chunk, ensure_ascii=False) for chunk in chunks)
        for most in range(1, 24):
            body = ok(client.post(CHAT, json=chat(max_tokens=most)))
            assert SCRIPT.startswith(text_of(body)), most
            assert body["choices"][0]["finish_reason"] == "length"
            assert body["usage"]["completion_tokens"] == most
            assert joined(stream_chunks(client, CHAT, chat(max_tokens=most))) == text_of(body)


def test_p2_logprobs_carry_the_bytes(unicode_server: ServerProcess) -> None:
    with httpx.Client(base_url=unicode_server.base_url) as client:
        body = ok(client.post(CHAT, json=chat(logprobs=True, top_logprobs=2)))
        content = body["choices"][0]["logprobs"]["content"]
        assert bytes(byte for token in content for byte in token["bytes"]).decode() == SCRIPT
        assert all(len(token["top_logprobs"]) == 2 for token in content)


@pytest.mark.parametrize("path", [CHAT, COMPLETIONS])
def test_what_stopped_an_answer_is_in_it(http: httpx.Client, path: str) -> None:
    def choice(**fields: Any) -> dict[str, Any]:
        body = chat(**fields) if path == CHAT else {"prompt": "Go", "seed": 7, "max_tokens": 99, **fields}
        answer: dict[str, Any] = ok(http.post(path, json=body))["choices"][0]
        return answer

    assert choice(stop=["never there", " "])["stop_reason"] == " "
    assert choice(stop_token_ids=[32])["stop_reason"] == 32
    assert choice(guided_choice=["yes"])["stop_reason"] is None
