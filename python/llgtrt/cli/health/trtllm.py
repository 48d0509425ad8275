"""What TensorRT-LLM engines need: driver, libraries, plugin, a GPU that fits, adapters."""

from __future__ import annotations

import json
import re
import shutil
import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from llgtrt.config import Settings
from llgtrt.config.trtllm import library_folders, plugin_file

from .finding import Finding, State, gigabytes
from .libraries import load
from .model import vocabulary_size

LEAST_DRIVER = 580
"""Of CUDA 13, which TensorRT-LLM 1.2 is built with."""

ARCHITECTURES = {"8.0", "8.6", "8.9", "9.0", "10.0", "12.0"}
"""Compute capabilities that the mask kernel is compiled for unless somebody says otherwise."""

LIBRARIES = (
    ("libcuda.so.1", "the NVIDIA driver", "install it; in a container: docker run --gpus all"),
    ("libcudart.so.13", "CUDA", "use TensorRT-LLM's container, or install CUDA 13"),
    ("libnvinfer.so.10", "TensorRT", "use TensorRT-LLM's container, or pip install tensorrt"),
    ("libtensorrt_llm.so", "TensorRT-LLM", "use its container 1.2.1, or install tensorrt-llm 1.2"),
)
QUERY = "name,memory.total,compute_cap,driver_version"


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as the driver describes it."""

    name: str
    memory: int
    capability: str
    driver: str


@dataclass(frozen=True, slots=True)
class Engine:
    """The parts of an engine folder's config.json that matter here."""

    version: str
    vocab_size: int
    world_size: int
    tensor_parallel: int
    max_batch_size: int
    max_seq_len: int
    lora: bool
    bytes_per_token: int
    """Of the KV cache, over all processes."""


def check_trtllm(settings: Settings) -> list[Finding]:
    """Everything from the driver to the adapters. On a machine without a GPU what needs one is skipped."""
    assert settings.model_path is not None
    try:
        engine = read_engine(settings.model_path)
    except (OSError, ValueError, KeyError, TypeError) as error:
        advice = "it has to be the output folder of trtllm-build 1.2"
        return [Finding("engine", "failure", f"{settings.model_path}/config.json: {error}", advice)]
    gpus = find_gpus()
    return [
        _ranks(settings.model_path, engine),
        _driver(gpus),
        *_libraries(bool(gpus)),
        _plugin(settings, engine),
        _architecture(gpus),
        *_gpu_count(engine, gpus),
        _gpu_memory(settings, engine, gpus),
        _vocabulary(settings, engine),
        *_adapters(settings, engine),
    ]


def process_count(folder: Path) -> int:
    """Processes that an engine folder was built for; 1 if it does not say."""
    try:
        return read_engine(folder).world_size
    except (OSError, ValueError, KeyError, TypeError):
        return 1


def read_engine(folder: Path) -> Engine:
    """What an engine folder says about itself.

    Raises:
        OSError: there is no config.json.
        ValueError, KeyError, TypeError: it is not what trtllm-build writes.
    """
    document: dict[str, Any] = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    model, build = document["pretrained_config"], document["build_config"]
    mapping = model.get("mapping", {})
    heads = model.get("num_key_value_heads") or model.get("num_attention_heads") or 0
    size = 4 if model.get("dtype") == "float32" else 2
    if (model.get("quantization") or {}).get("kv_cache_quant_algo"):
        size = 1
    return Engine(
        version=str(document.get("version", "")),
        vocab_size=int(model["vocab_size"]),
        world_size=int(mapping.get("world_size", 1)),
        tensor_parallel=int(mapping.get("tp_size", 1)),
        max_batch_size=int(build.get("max_batch_size") or 1),
        max_seq_len=int(build.get("max_seq_len") or 2048),
        lora=build.get("plugin_config", {}).get("lora_plugin") not in (None, False, "", "disable"),
        bytes_per_token=2
        * int(model.get("num_hidden_layers") or 0)
        * int(heads)
        * int(model.get("head_size") or 0)
        * size,
    )


def find_gpus() -> list[Gpu]:
    """The GPUs that the driver shows; none where there is no driver."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return []
    try:
        output = subprocess.run(
            [command, f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return []
    gpus = []
    for line in output.splitlines():
        fields = [field.strip() for field in line.split(",")]
        if len(fields) == 4 and fields[1].isdigit():
            gpus.append(Gpu(fields[0], int(fields[1]) * 2**20, fields[2], fields[3]))
    return gpus


def _ranks(folder: Path, engine: Engine) -> Finding:
    there = sum((folder / f"rank{rank}.engine").is_file() for rank in range(engine.world_size))
    found = (
        f"{there} of {engine.world_size} rank files, built by TensorRT-LLM {engine.version or '(unknown)'}"
    )
    if there < engine.world_size:
        return Finding("engine", "failure", found, "copy all of trtllm-build's output folder")
    if engine.world_size > 1 and shutil.which("mpirun") is None:
        return Finding("engine", "warning", f"{found}; there is no mpirun", "install Open MPI, or use srun")
    return Finding("engine", "ok", found)


def _driver(gpus: list[Gpu]) -> Finding:
    if not gpus:
        advice = "look at it where the engine is to run: it needs one"
        return Finding(
            "driver", "skipped", "there is no NVIDIA GPU here, or nvidia-smi does not find it", advice
        )
    driver = gpus[0].driver
    number = re.match(r"\d+", driver)
    found = f"driver {driver}, {len(gpus)} GPU(s): {gpus[0].name}"
    if number is None or int(number[0]) < LEAST_DRIVER:
        return Finding("driver", "failure", found, f"update it to {LEAST_DRIVER} or newer, for CUDA 13")
    return Finding("driver", "ok", found)


def _libraries(has_gpu: bool) -> list[Finding]:
    findings = []
    folders = library_folders()
    for name, what, advice in LIBRARIES:
        reason = load(name, folders).reason
        if reason is None:
            findings.append(Finding(what, "ok", f"{name} loads"))
        else:
            state: State = "failure" if has_gpu else "skipped"
            findings.append(Finding(what, state, reason, advice))
    return findings


def _plugin(settings: Settings, engine: Engine) -> Finding:
    plugin = plugin_file(settings.config.trtllm)
    if plugin is None or not plugin.is_file():
        found = "there is none" if plugin is None else f"{plugin} does not exist"
        return Finding("plugin", "failure", found, "build it with: llgtrt build-trtllm")
    loaded = load(str(plugin), library_folders(), "llgtrt_trtllm_version")
    if loaded.reason is not None:
        advice = "mend the libraries above, or: llgtrt build-trtllm"
        return Finding("plugin", "failure", loaded.reason, advice)
    if loaded.answer is None:
        return Finding("plugin", "failure", f"{plugin} is no plugin", "build it with: llgtrt build-trtllm")
    version = loaded.answer
    found = f"TensorRT-LLM {version}, and the engine was built by {engine.version or '(unknown)'}"
    if version.split("-")[0] != engine.version:
        return Finding("plugin", "failure", found, "build the engine again with the version that serves it")
    return Finding("plugin", "ok", found)


def _architecture(gpus: list[Gpu]) -> Finding:
    if not gpus:
        return Finding("GPU", "skipped", "none here")
    capabilities = sorted({gpu.capability for gpu in gpus})
    found = f"compute capability {', '.join(capabilities)}"
    if len(capabilities) > 1:
        return Finding("GPU", "warning", found, "an engine runs on the kind that it was built on")
    if capabilities[0] not in ARCHITECTURES:
        number = capabilities[0].replace(".", "")
        return Finding("GPU", "failure", found, f"llgtrt build-trtllm --architectures {number}")
    return Finding("GPU", "ok", found)


def _gpu_count(engine: Engine, gpus: list[Gpu]) -> list[Finding]:
    if not gpus or len(gpus) >= engine.world_size:
        return []
    found = f"{len(gpus)} here, and the engine has {engine.world_size} processes with one each"
    advice = "add machines (Slurm, or mpirun --host), or build it with a smaller --tp_size"
    return [Finding("GPUs", "warning", found, advice)]


def _gpu_memory(settings: Settings, engine: Engine, gpus: list[Gpu]) -> Finding:
    assert settings.model_path is not None
    runtime = settings.config.runtime
    sizes = [file.stat().st_size for file in settings.model_path.glob("rank*.engine")]
    weights = max(sizes, default=0)
    per_token = engine.bytes_per_token // max(engine.tensor_parallel, 1)
    batch = runtime.max_batch_size or engine.max_batch_size
    length = runtime.max_seq_len or engine.max_seq_len
    wanted = f"{batch} sequences of {length} tokens need {gigabytes(batch * length * per_token)} of KV cache"
    if not gpus:
        return Finding("GPU memory", "skipped", f"weights {gigabytes(weights)} a process; {wanted}")
    if per_token == 0:
        return Finding("GPU memory", "skipped", "config.json does not say how large the KV cache is")
    memory = min(gpu.memory for gpu in gpus)
    free = max(memory - weights, 0) * runtime.kv_cache_free_gpu_mem_fraction
    tokens = int(free // per_token)
    found = f"{gigabytes(memory)}, weights {gigabytes(weights)}: room for {tokens} tokens; {wanted}"
    if weights >= memory:
        return Finding("GPU memory", "failure", found, "quantize it, or build it for more GPUs (--tp_size)")
    if tokens < engine.max_seq_len:
        advice = f"TensorRT-LLM refuses to start: build with --max_seq_len {tokens // 1024 * 1024} or less"
        return Finding("GPU memory", "failure", found, advice)
    if tokens < batch * length:
        return Finding("GPU memory", "warning", found, "fewer long sequences run at once than max_batch_size")
    return Finding("GPU memory", "ok", found)


def _vocabulary(settings: Settings, engine: Engine) -> Finding:
    if settings.tokenizer_path is None:
        return Finding("vocabulary", "skipped", "there is no tokenizer")
    try:
        tokens = vocabulary_size(settings.tokenizer_path)
    except (OSError, ValueError, KeyError, TypeError):
        return Finding("vocabulary", "skipped", "the tokenizer cannot be read")
    found = f"{tokens} tokens of the tokenizer, {engine.vocab_size} of the engine"
    if tokens > engine.vocab_size:
        return Finding("vocabulary", "failure", found, "it is the tokenizer of another model")
    return Finding("vocabulary", "ok", found)


def _adapters(settings: Settings, engine: Engine) -> list[Finding]:
    root = settings.lora_root
    if root is None:
        return []
    if not engine.lora:
        advice = "build the engine with --lora_plugin auto --lora_target_modules ..."
        return [Finding("adapters", "failure", "the engine takes none", advice)]
    if not root.is_dir():
        return [Finding("adapters", "failure", f"{root}: no such folder", "name another with --lora-root")]
    files = sorted(root.glob("*.safetensors"))
    damaged = [file.name for file in files if not _is_adapter(file)]
    if damaged:
        found = f"not adapters for TensorRT-LLM: {', '.join(damaged)}"
        return [Finding("adapters", "failure", found, "convert PEFT's with scripts/lora_from_peft.py")]
    return [Finding("adapters", "ok" if files else "warning", f"{len(files)} in {root}")]


def _is_adapter(file: Path) -> bool:
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(min(length, 2**20)))
    except (OSError, ValueError, struct.error):
        return False
    return isinstance(header, dict) and {"weights", "config"} <= header.keys()
