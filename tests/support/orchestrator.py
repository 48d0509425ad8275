"""A router that divides answers between two servers, as trtllm-serve's orchestrator does it.

It asks the context server first, hands what that says to the generation server, and passes its answer on.
Like trtllm-serve's it refuses members of answers that it does not know.
"""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx

RESPONSE = {"id", "object", "created", "model", "choices", "usage", "prompt_token_ids"}
CHOICE = {"index", "finish_reason", "stop_reason", "logprobs", "disaggregated_params"}
USAGE = {"prompt_tokens", "total_tokens", "completion_tokens"}
PARAMS = {"request_type", "first_gen_tokens", "ctx_request_id", "encoded_opaque_state", "draft_tokens"}
MESSAGE = {"role", "content", "reasoning_content", "tool_calls"}


def check_form(body: dict[str, Any]) -> None:
    """Fails on members that trtllm-serve's models do not have."""
    assert set(body) <= RESPONSE, set(body) - RESPONSE
    assert set(body["usage"]) <= USAGE, body["usage"]
    (choice,) = body["choices"]
    own = {"text", "message"} & set(choice)
    assert len(own) == 1, choice
    assert set(choice) - own <= CHOICE, choice
    assert set(choice.get("message", {})) <= MESSAGE, choice
    assert set(choice.get("disaggregated_params") or {}) <= PARAMS, choice


def context_request(body: dict[str, Any]) -> dict[str, Any]:
    """What the context server is asked for a client's request."""
    params = {"request_type": "context_only", "disagg_request_id": 1 << 60, "schedule_style": 0}
    return {**body, "disaggregated_params": params, "stream": False, "stream_options": None}


def generation_request(body: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
    """What the generation server is asked, with the context server's answer."""
    params = {
        **context["choices"][0]["disaggregated_params"],
        "request_type": "generation_only",
        "ctx_usage": context["usage"],
        "disagg_request_id": 1 << 60,
        "schedule_style": 0,
    }
    tokens = "prompt_token_ids" if "messages" in body else "prompt"
    return {**body, "disaggregated_params": params, tokens: context["prompt_token_ids"]}


class Orchestrator:
    """Listens on a port of its own; use it as a context manager.

    Attributes:
        base_url: where it listens.
        finished: the reasons with which context servers ended, in order.
    """

    def __init__(self, context_url: str, generation_url: str) -> None:
        self.finished: list[str] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                outer._serve(self, body, context_url, generation_url)

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self.base_url = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Orchestrator:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(
        self, client: BaseHTTPRequestHandler, body: dict[str, Any], context_url: str, generation_url: str
    ) -> None:
        answer = httpx.post(context_url + client.path, json=context_request(body), timeout=60)
        if answer.status_code != 200:
            _reply(client, answer)
            return
        context = answer.json()
        check_form(context)
        reason = context["choices"][0]["finish_reason"]
        self.finished.append(reason)
        assert context["choices"][0]["disaggregated_params"]["ctx_request_id"] is not None
        if reason not in ("length", "not_finished"):
            del context["choices"][0]["disaggregated_params"]
            _reply(client, httpx.Response(200, json=context))
            return
        asked = generation_request(body, context)
        if not body.get("stream"):
            answer = httpx.post(generation_url + client.path, json=asked, timeout=60)
            if answer.status_code == 200:
                check_form(answer.json())
            _reply(client, answer)
            return
        with httpx.stream("POST", generation_url + client.path, json=asked, timeout=60) as stream:
            client.send_response(stream.status_code)
            client.send_header("content-type", stream.headers["content-type"])
            client.end_headers()
            try:
                for piece in stream.iter_raw():
                    client.wfile.write(piece)
            except OSError:
                # The client left; leaving the stream tells the server.
                return


def _reply(client: BaseHTTPRequestHandler, answer: httpx.Response) -> None:
    client.send_response(answer.status_code)
    client.send_header("content-type", "application/json")
    client.send_header("content-length", str(len(answer.content)))
    client.end_headers()
    client.wfile.write(answer.content)
