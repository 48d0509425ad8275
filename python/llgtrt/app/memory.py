"""Whether there is memory for a model, where it goes."""

from __future__ import annotations

from llgtrt.api.services import ModelLoadError
from llgtrt.config import Settings
from llgtrt.config.memory import available_memory, is_on_gpu, memory_need
from llgtrt.engine import free_gpu_memory

__all__ = ["check_memory", "free_gpu_memory"]


def check_memory(settings: Settings) -> None:
    """Whether there is memory for a model. Blocks.

    Raises:
        ModelLoadError: there is not.
        ConfigError: the model's file cannot be read.
    """
    need = memory_need(settings)
    if need is None:
        return
    gpu = free_gpu_memory()
    on_gpu = is_on_gpu(settings, need, gpu)
    if on_gpu is None:
        return
    free, place = (gpu, " on the GPU") if on_gpu else (available_memory(), "")
    if free is None or need.total <= free:
        return
    raise ModelLoadError(
        f"The model {settings.served_model_name} needs {_megabytes(need.total)} "
        f"({_megabytes(need.weights)} of weights, {_megabytes(need.cache)} of KV cache), "
        f"and {_megabytes(free)} are available{place}: unload another "
        "model, or lower its runtime.max_seq_len or runtime.max_batch_size (server.check_memory: false loads "
        "it all the same).",
        no_memory=True,
    )


def _megabytes(count: int) -> str:
    return f"{-(-count // 2**20)} MB"
