"""What the model is given (P25, P26)."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.api import CHAT, COMPLETIONS, chat, ok, stream_chunks
from support.sim import StartServer


@pytest.mark.parametrize("prefix", ["", "{{ bos_token }}"])
def test_p25_there_is_one_bos_token(start_server: StartServer, tmp_path: Path, prefix: str) -> None:
    template = tmp_path / "template.j2"
    template.write_text(prefix + "{{ messages[0].content }}")
    server = start_server("--chat-template", str(template))
    body = ok(httpx.post(server.base_url + CHAT, json=chat("abc", max_tokens=1)))
    # Three bytes and the token before them, whether the template or the tokenizer puts it there.
    assert body["usage"]["prompt_tokens"] == 4
    completion = ok(httpx.post(server.base_url + COMPLETIONS, json={"prompt": "abc", "max_tokens": 1}))
    assert completion["usage"]["prompt_tokens"] == 4


def test_control_token_names_in_messages_stay_text(http: httpx.Client) -> None:
    plain = ok(http.post(CHAT, json=chat("x", max_tokens=1)))["usage"]["prompt_tokens"]
    marked = ok(http.post(CHAT, json=chat("x<|im_end|>", max_tokens=1)))["usage"]["prompt_tokens"]
    # The byte tokenizer has a token for each byte: text that looks like a control token is 10 of them.
    assert marked - plain == len("<|im_end|>")


@pytest.mark.parametrize(
    "message",
    [
        {"role": "assistant", "content": None},
        {"role": "assistant", "content": [{"type": "text", "text": "Hi"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
            ],
        },
        {"role": "system", "content": "Be brief."},
        {"role": "developer", "content": "Be brief."},
        {"role": "tool", "content": "42", "tool_call_id": "c1"},
        {"role": "user", "content": [{"type": "text", "text": "Hi"}], "name": "Ann"},
    ],
)
def test_p26_history_in_every_form(http: httpx.Client, message: dict[str, Any]) -> None:
    body = chat(max_tokens=2)
    body["messages"] = [message, *body["messages"]]
    ok(http.post(CHAT, json=body))


def test_the_expanded_prompt_is_returned_when_asked_for(http: httpx.Client) -> None:
    expected = "<|im_start|>user\nHi <|im_end|><|im_end|>\n<|im_start|>assistant\n"
    body = chat("Hi <|im_end|>", return_expanded_prompt=True)
    assert ok(http.post(CHAT, json=body))["expanded_prompt"] == expected
    chunks = stream_chunks(http, CHAT, body)
    assert chunks[0]["expanded_prompt"] == expected
    assert all("expanded_prompt" not in chunk for chunk in chunks[1:])
    assert "expanded_prompt" not in ok(http.post(CHAT, json=chat()))
    body = {"prompt": ["a", "b"], "return_expanded_prompt": True}
    assert ok(http.post(COMPLETIONS, json=body))["expanded_prompt"] == ["a", "b"]


def test_an_empty_prompt_is_the_token_that_begins_a_text(http: httpx.Client) -> None:
    body = ok(http.post(COMPLETIONS, json={"prompt": "", "max_tokens": 2}))
    assert body["usage"]["prompt_tokens"] == 1


def test_documents_reach_the_model(http: httpx.Client, start_server: StartServer, tmp_path: Path) -> None:
    documents = [{"title": "Sky", "text": "It is <green>."}]
    body = chat("Hi", documents=documents, return_expanded_prompt=True)
    prompt = ok(http.post(CHAT, json=body))["expanded_prompt"]
    assert "<|im_start|>system\n" in prompt
    assert '{"title": "Sky", "text": "It is <green>."}' in prompt
    assert prompt.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    counted = ok(http.post("/tokenize", json={"messages": body["messages"], "documents": documents}))["count"]
    assert counted == ok(http.post(CHAT, json={**body, "max_tokens": 1}))["usage"]["prompt_tokens"]

    template = tmp_path / "template.j2"
    template.write_text(
        "{% for d in documents or [] %}({{ d.title }}: {{ d.text }}){% endfor %}{{ messages[0].content }}"
    )
    server = start_server("--chat-template", str(template))
    assert ok(httpx.post(server.base_url + CHAT, json=body))["expanded_prompt"] == "(Sky: It is <green>.)Hi"


@pytest.mark.parametrize("documents", ["text", ["text"], [{"title": "\ud800"}], {"title": "x"}])
def test_documents_that_are_none(http: httpx.Client, documents: Any) -> None:
    body = json.dumps(chat("Hi", documents=documents))
    response = http.post(CHAT, content=body, headers={"Content-Type": "application/json"})
    assert response.status_code == 400, response.text


@pytest.mark.parametrize("path", [CHAT, "/v1/responses", "/v1/messages"])
@pytest.mark.parametrize(
    "url", ["http://{listener}/x.png", "file:///etc/passwd", "data:image/png;base64,AAAA"]
)
def test_p31_no_address_in_a_message_is_asked(http: httpx.Client, path: str, url: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        address = url.replace("{listener}", f"127.0.0.1:{listener.getsockname()[1]}")
        part: dict[str, Any] = {"type": "image_url", "image_url": {"url": address}}
        if path == "/v1/messages":
            part = {"type": "image", "source": {"type": "url", "url": address}}
        if path == "/v1/responses":
            part = {"type": "input_image", "image_url": address}
        conversation = [{"role": "user", "content": [part]}]
        body: dict[str, Any] = {"messages": conversation, "max_tokens": 2}
        if path == "/v1/responses":
            body = {"input": conversation}
        response = http.post(path, json=body)
        assert response.status_code == 400, response.text
        with pytest.raises(BlockingIOError):
            listener.accept()
