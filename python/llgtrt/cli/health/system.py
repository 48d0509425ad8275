"""The machine: memory, shared memory, the port."""

from __future__ import annotations

import os
import shutil
import socket
from collections.abc import Sequence
from pathlib import Path

from llgtrt.app.memory import free_gpu_memory
from llgtrt.config import ConfigError, Settings
from llgtrt.config.memory import MemoryNeed, available_memory, is_on_gpu, memory_need

from .finding import Finding, gigabytes

SHARED_MEMORY = Path("/dev/shm")
LEAST_SHARED_MEMORY = 2**30
"""Docker gives 64 MB unless told otherwise; NCCL and MPI want more for each pair of processes."""


def check_system(settings: Settings, models: Sequence[Settings], processes: int) -> list[Finding]:
    """Port and memory, for a server of some models that is run by a number of processes."""
    return [_port(settings), *_memory(models), _shared_memory(processes)]


def _port(settings: Settings) -> Finding:
    server = settings.config.server
    if server.uds is not None:
        folder = Path(server.uds).absolute().parent
        if os.access(folder, os.W_OK):
            return Finding("port", "ok", f"socket file {server.uds}")
        return Finding("port", "failure", f"{folder} cannot be written to", "choose another server.uds")
    where = f"{server.host}:{server.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            server.host or None, server.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        with socket.socket(family, kind, protocol) as listener:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(address)
    except OSError as error:
        reason = error.strerror or str(error)
        return Finding(
            "port", "failure", f"{where}: {reason}", "end who has it, or choose another with --port"
        )
    return Finding("port", "ok", f"{where} is free")


def _memory(models: Sequence[Settings]) -> list[Finding]:
    try:
        needs = [(settings, need) for settings in models if (need := memory_need(settings)) is not None]
    except ConfigError as error:
        return [Finding("memory", "skipped", str(error))]
    gpu = free_gpu_memory() if needs else None
    by_place: dict[bool | None, list[MemoryNeed]] = {}
    for settings, need in needs:
        by_place.setdefault(is_on_gpu(settings, need, gpu), []).append(need)
    findings = [_room("memory", available_memory(), by_place.get(False, []))]
    if True in by_place:
        findings.append(_room("GPU memory", gpu, by_place[True]))
    if None in by_place:
        findings.append(Finding("memory of both", "skipped", "a model is divided between GPU and CPU"))
    return findings


def _room(name: str, free: int | None, needs: Sequence[MemoryNeed]) -> Finding:
    if free is None:
        return Finding(name, "skipped", "this system does not say how much there is")
    if not needs:
        return Finding(name, "ok", f"{gigabytes(free)} available")
    weights, cache = sum(need.weights for need in needs), sum(need.cache for need in needs)
    found = f"{gigabytes(free)} available; {gigabytes(weights)} of weights, {gigabytes(cache)} of KV cache"
    less = "a smaller quantization, or lower runtime.max_seq_len or runtime.max_batch_size"
    if weights + cache > free:
        return Finding(name, "failure", found, f"{less}, or a machine with more memory")
    if (weights + cache) * 1.2 > free:
        return Finding(name, "warning", found, f"buffers come on top: {less}")
    return Finding(name, "ok", found)


def _shared_memory(processes: int) -> Finding:
    if processes < 2:
        return Finding("shared memory", "ok", "not needed by one process")
    if not SHARED_MEMORY.is_dir():
        return Finding("shared memory", "skipped", f"there is no {SHARED_MEMORY}")
    free = shutil.disk_usage(SHARED_MEMORY).free
    found = f"{gigabytes(free)} free in {SHARED_MEMORY} for {processes} processes"
    if free < LEAST_SHARED_MEMORY:
        advice = "docker run --ipc=host or --shm-size=8g; in Kubernetes an emptyDir of medium Memory there"
        return Finding("shared memory", "failure", found, advice)
    return Finding("shared memory", "ok", found)
