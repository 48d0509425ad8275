"""``llgtrt doctor``: a finding for what is wrong, with what to do, and 1 for its exit code."""

from __future__ import annotations

import json
import os
import socket
import struct
import subprocess
from pathlib import Path
from typing import Any

import pytest

from llgtrt.cli.command import run
from llgtrt.cli.health import system, trtllm
from llgtrt.cli.health.trtllm import Gpu
from llgtrt.config.trtllm import PLUGIN_VARIABLE

BUILT = Path(__file__).parents[3] / "rust/llgtrt-engine-trtllm/tests/engines"
H100 = Gpu("NVIDIA H100", 80 * 2**30, "9.0", "580.95.05")

Findings = dict[str, dict[str, str]]


@pytest.fixture(autouse=True)
def a_machine_without_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the machine has that runs the tests."""
    monkeypatch.setattr(trtllm, "find_gpus", list)
    monkeypatch.delenv(PLUGIN_VARIABLE, raising=False)


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "config.json").write_text((BUILT / "lora_128.json").read_text())
    (folder / "rank0.engine").write_bytes(bytes(1000))
    tokenizer = {"model": {"vocab": {"a": 0, "b": 1}}, "added_tokens": [{"id": 128_255, "content": "</s>"}]}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text('{"chat_template": "{{ messages }}"}')
    return folder


def change(engine: Path, section: str, **values: Any) -> None:
    config = json.loads((engine / "config.json").read_text())
    config[section].update(values)
    (engine / "config.json").write_text(json.dumps(config))


def doctor(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, Findings]:
    code = run(["doctor", *arguments, "--port", "0", "--json"])
    return code, {finding["check"]: finding for finding in json.loads(capsys.readouterr().out)}


def test_without_a_gpu_the_rest_is_looked_at(capsys: pytest.CaptureFixture[str], engine: Path) -> None:
    code, found = doctor(capsys, str(engine))
    assert code == 1, "there is no plugin"
    assert found["driver"]["state"] == found["GPU"]["state"] == found["GPU memory"]["state"] == "skipped"
    assert "no NVIDIA GPU" in found["driver"]["found"]
    assert found["plugin"] == {
        "check": "plugin",
        "state": "failure",
        "found": "there is none",
        "advice": "build it with: llgtrt build-trtllm",
    }
    for check in ("configuration", "engine", "tokenizer", "vocabulary", "chat template", "port"):
        assert found[check]["state"] == "ok", found[check]


def test_a_gpu_that_fits(
    capsys: pytest.CaptureFixture[str], engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trtllm, "find_gpus", lambda: [H100])
    change(engine, "build_config", max_batch_size=8)
    _, found = doctor(capsys, str(engine))
    assert found["driver"]["state"] == found["GPU"]["state"] == found["GPU memory"]["state"] == "ok"
    # 2 * 32 layers * 8 heads * 128 * 2 bytes = 128 KiB a token; 8 sequences of 8192.
    assert "need 8.0 GiB" in found["GPU memory"]["found"]


def test_more_processes_than_gpus(
    capsys: pytest.CaptureFixture[str], engine: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    change(engine, "pretrained_config", mapping={"world_size": 2, "tp_size": 2})
    monkeypatch.setattr(trtllm, "find_gpus", lambda: [H100])
    _, found = doctor(capsys, str(engine))
    assert found["GPUs"]["state"] == "warning"
    assert "--tp_size" in found["GPUs"]["advice"]
    monkeypatch.setattr(trtllm, "find_gpus", lambda: [H100, H100])
    _, found = doctor(capsys, str(engine))
    assert "GPUs" not in found


@pytest.mark.parametrize(
    ("gpu", "check", "advice"),
    [
        (Gpu("old", 80 * 2**30, "9.0", "550.54"), "driver", "update it to 580"),
        (Gpu("V100", 80 * 2**30, "7.0", "580.95"), "GPU", "--architectures 70"),
        (Gpu("small", 2**29, "9.0", "580.95"), "GPU memory", "--max_seq_len 3072"),
        (Gpu("tiny", 500, "9.0", "580.95"), "GPU memory", "quantize"),
    ],
)
def test_a_gpu_that_does_not_fit(
    capsys: pytest.CaptureFixture[str],
    engine: Path,
    monkeypatch: pytest.MonkeyPatch,
    gpu: Gpu,
    check: str,
    advice: str,
) -> None:
    monkeypatch.setattr(trtllm, "find_gpus", lambda: [gpu])
    _, found = doctor(capsys, str(engine))
    assert found[check]["state"] == "failure"
    assert advice in found[check]["advice"]


def test_a_folder_that_is_not_complete(capsys: pytest.CaptureFixture[str], engine: Path) -> None:
    change(engine, "pretrained_config", mapping={"world_size": 2, "tp_size": 2}, vocab_size=1000)
    _, found = doctor(capsys, str(engine))
    assert found["engine"]["state"] == "failure"
    assert "1 of 2 rank files" in found["engine"]["found"]
    assert found["vocabulary"]["state"] == "failure"
    (engine / "tokenizer.json").unlink()
    _, found = doctor(capsys, str(engine))
    assert "copy tokenizer.json" in found["tokenizer"]["advice"]
    (engine / "config.json").write_text("{")
    _, found = doctor(capsys, str(engine))
    assert found["engine"]["state"] == "failure"


def compile_library(file: Path, source: str) -> Path:
    """A shared library of C++."""
    command = ["c++", "-shared", "-fPIC", "-x", "c++", "-", "-o", str(file)]
    subprocess.run(command, input=source, text=True, check=True)
    return file


@pytest.mark.parametrize(
    ("source", "state", "found"),
    [
        ('extern "C" const char* llgtrt_trtllm_version() { return "1.2.1"; }', "ok", "1.2.1"),
        ('extern "C" const char* llgtrt_trtllm_version() { return "1.1.0"; }', "failure", "1.1.0"),
        ('extern "C" void other() {}', "failure", "is no plugin"),
        ("#include <cstdlib>\nstatic bool const dies = (std::abort(), true);", "failure", "SIGABRT"),
    ],
)
def test_a_plugin_is_loaded_where_it_harms_nobody(
    capsys: pytest.CaptureFixture[str],
    engine: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    source: str,
    state: str,
    found: str,
) -> None:
    plugin = compile_library(tmp_path / "plugin.so", source)
    monkeypatch.setenv(PLUGIN_VARIABLE, str(plugin))
    _, findings = doctor(capsys, str(engine))
    assert findings["plugin"]["state"] == state
    assert found in findings["plugin"]["found"]
    assert findings["vocabulary"]["state"] == "ok", "the rest was looked at"


def test_adapters(capsys: pytest.CaptureFixture[str], engine: Path, tmp_path: Path) -> None:
    root = tmp_path / "lora"
    root.mkdir()
    header = json.dumps({"weights": {}, "config": {}}).encode()
    (root / "good.safetensors").write_bytes(struct.pack("<Q", len(header)) + header)
    _, found = doctor(capsys, str(engine), "--lora-root", str(root))
    assert found["adapters"]["state"] == "ok"
    peft = json.dumps({"base_model.model.q.lora_A.weight": {}}).encode()
    (root / "peft.safetensors").write_bytes(struct.pack("<Q", len(peft)) + peft)
    _, found = doctor(capsys, str(engine), "--lora-root", str(root))
    assert "peft.safetensors" in found["adapters"]["found"]
    assert "lora_from_peft" in found["adapters"]["advice"]
    plugins = json.loads((engine / "config.json").read_text())["build_config"]["plugin_config"]
    change(engine, "build_config", plugin_config={**plugins, "lora_plugin": None})
    _, found = doctor(capsys, str(engine), "--lora-root", str(root))
    assert "--lora_plugin" in found["adapters"]["advice"]


def gguf(architecture: str) -> bytes:
    """The head of a GGUF file."""
    pairs = {"general.architecture": architecture, "general.name": "a model"}
    body = b""
    for key, value in pairs.items():
        body += (
            struct.pack("<Q", len(key)) + key.encode() + struct.pack("<IQ", 8, len(value)) + value.encode()
        )
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + body


def test_a_gguf_model(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "m-00001-of-00002.gguf"
    model.write_bytes(gguf("llama"))
    code, found = doctor(capsys, str(model))
    assert code == 1
    assert "1 of 2 parts" in found["model"]["found"]
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(gguf("llama"))
    code, found = doctor(capsys, str(model))
    assert code == 0
    assert "a model, llama, 2 file(s)" in found["model"]["found"]
    assert "driver" not in found
    monkeypatch.setattr(system, "available_memory", lambda: 10)
    code, found = doctor(capsys, str(model))
    assert (code, found["memory"]["state"]) == (1, "failure")


def test_several_models(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.gguf").write_bytes(gguf("llama"))
        os.truncate(tmp_path / f"{name}.gguf", 3 * 2**29)
    code, found = doctor(capsys, "--models-dir", str(tmp_path))
    assert code == 0
    assert found["configuration"]["found"].startswith("2 models")
    assert found["a: model"]["state"] == found["b: model"]["state"] == "ok"
    assert "3.0 GiB of weights" in found["memory"]["found"]
    monkeypatch.setattr(system, "available_memory", lambda: 2**31)
    assert doctor(capsys, "--models-dir", str(tmp_path))[1]["memory"]["state"] == "failure"
    code, found = doctor(capsys, "--models-dir", str(tmp_path), "--load-model", "b")
    assert (code, "a: model" in found, found["memory"]["state"]) == (0, False, "ok")
    code, found = doctor(capsys, "--models-dir", str(tmp_path), "--load-model", "c")
    assert (code, found["configuration"]["state"]) == (1, "failure")


def test_models_on_a_gpu_are_held_against_its_memory(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(gguf("llama"))
    os.truncate(model, 3 * 2**29)
    monkeypatch.setattr(system, "available_memory", lambda: 2**30)
    assert doctor(capsys, str(model))[1]["memory"]["state"] == "failure"
    monkeypatch.setattr(system, "free_gpu_memory", lambda: 2**33)
    code, found = doctor(capsys, str(model))
    assert (code, found["memory"]["state"], found["GPU memory"]["state"]) == (0, "ok", "ok")
    assert found["GPU memory"]["found"].startswith("8.0 GiB available; 1.5 GiB of weights")
    code, found = doctor(capsys, str(model), "-ngl", "0")
    assert (code, found["memory"]["state"], "GPU memory" in found) == (1, "failure", False)
    monkeypatch.setattr(system, "free_gpu_memory", lambda: 2**29)
    assert doctor(capsys, str(model))[1]["GPU memory"]["state"] == "failure"


def test_a_port_that_is_taken(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    model = tmp_path / "m.gguf"
    model.write_bytes(gguf("llama"))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        code = run(["doctor", str(model), "--host", "127.0.0.1", "--port", port])
    text = capsys.readouterr().out
    assert code == 1
    assert "FAILURE" in text
    assert "another with --port" in text


def test_what_is_no_model(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code, found = doctor(capsys, str(tmp_path / "nowhere"))
    assert (code, found["configuration"]["state"]) == (1, "failure")
