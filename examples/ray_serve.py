"""llgtrt under Ray Serve: replicas that Ray starts, watches, and adds by the requests that they work on.
A replica is `llgtrt serve` as a process of its own; it gets requests as they are. `slots`: its `--parallel`.

    serve run examples.ray_serve:build arguments="model.gguf --parallel 8" slots=8 max_replicas=4
"""

import contextlib
import shlex
import socket
import time
from collections.abc import Mapping
from subprocess import Popen

import httpx
from fastapi import FastAPI, Request, responses
from ray import serve

api = FastAPI()


def kept(headers: Mapping[str, str], *but: str) -> dict[str, str]:
    but = ("connection", "content-length", "date", "host", "server", "transfer-encoding", *but)
    return {name: value for name, value in headers.items() if name not in but}


@serve.deployment(graceful_shutdown_timeout_s=120, health_check_period_s=3)
@serve.ingress(api)
class Llgtrt:
    def __init__(self, arguments: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{port}"
        self.server = Popen(shlex.split(f"llgtrt serve {arguments} --host 127.0.0.1 --port {port}"))
        self.client = httpx.AsyncClient(base_url=self.url, timeout=None, limits=httpx.Limits())
        while self.server.poll() is None:
            with contextlib.suppress(httpx.TransportError):
                return self.check_health()
            time.sleep(0.1)
        raise RuntimeError("llgtrt did not start: see the replica's log")

    def check_health(self) -> None:
        httpx.get(self.url + "/v1/health/live").raise_for_status()

    @api.api_route("/{path:path}", methods=["GET", "POST", "DELETE"])
    async def forward(self, request: Request, path: str) -> responses.StreamingResponse:
        url, body = f"/{path}?{request.url.query}", await request.body()
        asked = self.client.build_request(request.method, url, headers=kept(request.headers), content=body)
        answer = await self.client.send(asked, stream=True)
        headers = kept(answer.headers, "x-request-id")  # Ray adds this one itself
        return responses.StreamingResponse(answer.aiter_raw(), answer.status_code, headers)

    def __del__(self) -> None:
        self.server.terminate()  # Ray has waited for its requests


def build(given: dict[str, str]) -> serve.Application:
    slots, most = int(given["slots"]), int(given["max_replicas"])
    scaling = {"min_replicas": 1, "max_replicas": most, "target_ongoing_requests": slots}
    return Llgtrt.options(autoscaling_config=scaling, max_ongoing_requests=2 * slots).bind(given["arguments"])
