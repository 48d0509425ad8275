"""The server as a process: start, signals, configuration round trip, start-up failures."""

from __future__ import annotations

import json
import shutil
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from support.server import ServerProcess, run_llgtrt, wait_until

LONG: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Tell a long story."}],
    "max_tokens": 120,
    "ignore_eos": True,
    "stream": True,
}


def stream_lines(base_url: str, body: dict[str, Any]) -> list[str]:
    with httpx.stream("POST", f"{base_url}/v1/chat/completions", json=body, timeout=60) as response:
        assert response.status_code == 200
        return [line for line in response.iter_lines() if line]


def test_plain_llgtrt_serves_the_demo_model(model_file: Path) -> None:
    with ServerProcess() as server:
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
        answer = httpx.post(f"{server.base_url}/v1/chat/completions", json=body, timeout=60)
        assert answer.status_code == 200
        assert answer.json()["choices"][0]["message"]["content"]
        (loaded,) = [line for line in server.output.splitlines() if " loaded " in line]
        for name in (
            "version",
            "model",
            "device",
            "threads",
            "context_tokens",
            "slots",
            "kv_cache_mb",
            "memory_mb",
        ):
            assert f" {name}=" in loaded
        server.terminate()
        assert server.wait_exit() == 0


def test_sigterm_lets_running_requests_finish(model_file: Path, one_thread: Path) -> None:
    with ServerProcess(str(model_file), "-C", str(one_thread)) as server, ThreadPoolExecutor(3) as pool:
        streams = [pool.submit(stream_lines, server.base_url, LONG) for _ in range(3)]
        wait_until(lambda: server.metric("llgtrt_num_requests_running") == 3, "three requests run")
        server.terminate()
        for stream in streams:
            lines = stream.result()
            assert lines[-1] == "data: [DONE]"
            finish = [
                json.loads(line[6:])["choices"][0]["finish_reason"]
                for line in lines[:-1]
                if '"choices":[{' in line
            ]
            assert finish[-1] == "length"
        assert server.wait_exit() == 0


def test_second_sigterm_forces(model_file: Path, one_thread: Path) -> None:
    with ServerProcess(str(model_file), "-C", str(one_thread)) as server, ThreadPoolExecutor(1) as pool:
        stream = pool.submit(stream_lines, server.base_url, {**LONG, "max_tokens": 1800})
        wait_until(lambda: server.metric("llgtrt_num_requests_running") == 1, "the request runs")
        server.terminate()
        wait_until(lambda: refuses(server), "the server drains")
        assert server.process.poll() is None
        server.process.send_signal(signal.SIGTERM)
        server.wait_exit(10)
        stream.exception(10)


def test_layers_for_a_gpu_that_is_not_there_are_told(model_file: Path) -> None:
    with ServerProcess(str(model_file), "--gpu-layers", "9") as server:
        of_no_use = "llamacpp.gpu_layers has no effect" in server.output
        assert of_no_use == ("device=cpu" in server.output)


def refuses(server: ServerProcess) -> bool:
    """Whether readiness is off, or nobody listens any more."""
    try:
        return server.get("/v1/health/ready").status_code == 503
    except httpx.TransportError:
        return True


@pytest.mark.parametrize("way", ["renamed", "overwritten"])
def test_the_model_file_may_be_replaced(model_file: Path, one_thread: Path, tmp_path: Path, way: str) -> None:
    model = Path(shutil.copy(model_file, tmp_path / "model.gguf"))
    # A mapped file that becomes shorter ends the process: it is read instead, or stays without a name.
    options = ["--set", "llamacpp.mmap=false"] if way == "overwritten" else []
    with ServerProcess(str(model), "-C", str(one_thread), *options) as server:

        def answers() -> list[str]:
            bodies = [
                {"messages": [{"role": "user", "content": text}], "max_tokens": 8, "temperature": 0}
                for text in ("Name a river.", "Count to ten.")
            ]
            url = f"{server.base_url}/v1/chat/completions"
            replies = [httpx.post(url, json=body, timeout=60).json() for body in bodies]
            return [reply["choices"][0]["message"]["content"] for reply in replies]

        before = answers()
        if way == "overwritten":
            model.write_bytes(b"shorter")
        else:
            (tmp_path / "new.gguf").write_bytes(b"shorter")
            (tmp_path / "new.gguf").replace(model)
        assert answers() == before
        server.terminate()
        assert server.wait_exit() == 0


def test_print_config_round_trip(model_file: Path, tmp_path: Path) -> None:
    first = tmp_path / "first.json5"
    printed = run_llgtrt(str(model_file), "--print-config")
    assert printed.returncode == 0, printed.stderr
    first.write_text(printed.stdout, encoding="utf-8")
    plain = run_llgtrt(str(model_file), "--print-complete-config")
    again = run_llgtrt(str(model_file), "-C", str(first), "--print-complete-config")
    assert again.returncode == 0, again.stderr
    assert again.stdout == plain.stdout
    second = run_llgtrt(str(model_file), "-C", str(first), "--print-config")
    assert second.stdout == printed.stdout


def start_failure(*arguments: str) -> str:
    """Runs a start that must fail; the last line of standard error."""
    result = run_llgtrt(*arguments)
    assert result.returncode not in (0, None)
    assert result.returncode > 0, f"killed by signal {-result.returncode}"
    assert "Traceback" not in result.stderr
    lines = result.stderr.strip().splitlines()
    assert lines
    return lines[-1]


def test_missing_model(tmp_path: Path) -> None:
    missing = tmp_path / "nothing.gguf"
    assert "nothing.gguf" in start_failure(str(missing))


@pytest.mark.parametrize("damage", ["empty", "text", "truncated", "bit_flips"])
def test_corrupt_model(model_file: Path, tmp_path: Path, damage: str) -> None:
    broken = tmp_path / "broken.gguf"
    if damage == "empty":
        broken.write_bytes(b"")
    elif damage == "text":
        broken.write_text("this is not a model\n" * 100)
    elif damage == "truncated":
        broken.write_bytes(model_file.read_bytes()[:1_000_000])
    else:
        content = bytearray(model_file.read_bytes())
        for position in range(8, 4096, 7):
            content[position] ^= 0x41
        broken.write_bytes(content)
    assert "broken.gguf" in start_failure(str(broken))


def test_busy_port(model_file: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert str(port) in start_failure(str(model_file), "--host", "127.0.0.1", "--port", str(port))


def test_unknown_option_in_the_configuration(model_file: Path, tmp_path: Path) -> None:
    config = tmp_path / "llgtrt.json5"
    config.write_text("{runtime: {max_batch_sise: 4}}")
    result = run_llgtrt(str(model_file), "-C", str(config), "--print-config")
    assert result.returncode > 0
    assert "max_batch_sise" in result.stderr
    assert "max_batch_size" in result.stderr
    assert str(config) in result.stderr
