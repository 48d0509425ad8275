"""The edge of a real server, with the stock client: TLS, keys and their limits, names, options."""

from __future__ import annotations

import ssl
from pathlib import Path

import httpx
import openai as openai_package
import pytest
from openai import DefaultHttpxClient, OpenAI

from support.api import chat, ok
from support.server import wait_until
from support.sim import StartServer

TLS = Path(__file__).parents[1] / "data" / "tls"
WITH_TLS = ("--ssl-keyfile", str(TLS / "server.key"), "--ssl-certfile", str(TLS / "server.crt"))


def answers(client: httpx.Client) -> bool:
    try:
        return client.get("/health").status_code == 200
    except httpx.TransportError:
        return False


def test_https(start_server: StartServer) -> None:
    server = start_server(*WITH_TLS, wait=False)
    url = server.base_url.replace("http:", "https:")
    trust = ssl.create_default_context(cafile=str(TLS / "server.crt"))
    with httpx.Client(base_url=url, verify=trust) as http:
        wait_until(lambda: answers(http), "the server answers over TLS")
        trusting = DefaultHttpxClient(verify=trust)
        with OpenAI(base_url=f"{url}/v1", api_key="x", max_retries=0, http_client=trusting) as client:
            assert client.chat.completions.create(**chat(), max_tokens=5).choices[0].message.content
            stream = client.chat.completions.create(**chat(), max_tokens=5, stream=True)
            assert [chunk.choices[0].finish_reason for chunk in stream][-1] == "length"
    assert f"listening on {url}" in server.output
    with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
        httpx.get(url + "/health")
    with pytest.raises(httpx.TransportError):
        server.get("/health")


def test_clients_show_a_certificate(start_server: StartServer) -> None:
    server = start_server(*WITH_TLS, "--ssl-ca-certs", str(TLS / "client.crt"), wait=False)
    url = server.base_url.replace("http:", "https:")
    trust = ssl.create_default_context(cafile=str(TLS / "server.crt"))
    trust.load_cert_chain(TLS / "client.crt", TLS / "client.key")
    with httpx.Client(base_url=url, verify=trust) as http:
        wait_until(lambda: answers(http), "the server answers over TLS")
    nobody = ssl.create_default_context(cafile=str(TLS / "server.crt"))
    with httpx.Client(base_url=url, verify=nobody) as http, pytest.raises(httpx.TransportError):
        http.get("/health")


def test_a_certificate_that_is_missing_ends_the_start(start_server: StartServer) -> None:
    server = start_server("--ssl-certfile", "/nowhere.crt", wait=False)
    assert server.wait_exit() == 1
    assert "/nowhere.crt: No such file or directory (server.ssl_certfile" in server.output


def test_keys_of_several_clients(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("slow k-slow requests_per_minute=1\n")
    server = start_server("--api-key", "k-1", "--api-key", "k-2", "--api-key-file", str(tmp_path / "keys"))
    for key in ("k-1", "k-2", "k-slow"):
        with OpenAI(base_url=f"{server.base_url}/v1", api_key=key, max_retries=0) as client:
            assert client.chat.completions.create(**chat(), max_tokens=2).choices
            if key == "k-slow":
                with pytest.raises(openai_package.RateLimitError) as caught:
                    client.chat.completions.create(**chat(), max_tokens=2)
                assert caught.value.code == "rate_limit_exceeded"
                assert 1 <= int(caught.value.response.headers["retry-after"]) <= 60
    like_anthropic = httpx.get(server.base_url + "/v1/models", headers={"x-api-key": "k-1"})
    assert like_anthropic.status_code == 200
    headers = {"x-api-key": "k-1"}
    counts = httpx.get(server.base_url + "/metrics", headers=headers).text
    assert 'llgtrt_key_requests_total{key="slow",result="limited"} 1.0' in counts
    assert "key=slow" in server.output
    assert "k-slow" not in server.output


def test_a_stream_keeps_its_place(start_server: StartServer) -> None:
    keys = [{"name": "a", "key": "k", "max_concurrent": 1}]
    endless = {"step_us": 20_000, "text": "script", "script": "on and ", "script_end": "repeat"}
    server = start_server(server={"api_keys": keys}, sim=endless)
    with OpenAI(base_url=f"{server.base_url}/v1", api_key="k", max_retries=0) as client:
        with client.chat.completions.create(**chat(), stream=True) as stream:
            next(iter(stream))
            with pytest.raises(openai_package.RateLimitError):
                client.chat.completions.create(**chat(), max_tokens=1)
        # The client has left: its place is free as soon as the server knows.
        with OpenAI(base_url=f"{server.base_url}/v1", api_key="k", max_retries=0) as again:

            def works() -> bool:
                try:
                    again.chat.completions.create(**chat(), max_tokens=1)
                except openai_package.RateLimitError:
                    return False
                return True

            wait_until(works, "the place is free again")


def test_names_of_the_model(start_server: StartServer) -> None:
    server = start_server("-a", "first", "-a", "second", server={"model_aliases": {"gpt-4o": "first"}})
    with httpx.Client(base_url=server.base_url) as http:
        for name in ("first", "second", "gpt-4o"):
            answer = ok(http.post("/v1/chat/completions", json={**chat(max_tokens=1), "model": name}))
            assert answer["model"] == "sim-model", "the first name of all"
            assert http.get(f"/v1/models/{name}").status_code == 200
        assert http.get("/v1/models/third").status_code == 404
        names = [one["id"] for one in ok(http.get("/v1/models"))["data"]]
        assert names == ["sim-model", "first", "second"]


def test_any_option_on_the_command_line(start_server: StartServer) -> None:
    server = start_server(
        "--set", "runtime.max_seq_len=64", "--set", "server.max_n=2", "--max-model-len", "128"
    )
    with httpx.Client(base_url=server.base_url) as http:
        assert ok(http.get("/v1/models"))["data"][0]["max_model_len"] == 64
        response = http.post("/v1/chat/completions", json=chat(n=3))
        assert (response.status_code, response.json()["error"]["param"]) == (400, "n")


def test_the_wrong_option_is_named(start_server: StartServer) -> None:
    server = start_server("--set", "server.prot=1", wait=False)
    assert server.wait_exit() == 1
    assert "--set: server.prot: unknown option, did you mean 'server.port'?" in server.output
