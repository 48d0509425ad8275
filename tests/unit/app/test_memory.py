"""Whether there is memory for one more model, where it goes."""

from __future__ import annotations

from pathlib import Path

import pytest

from llgtrt.api.services import ModelLoadError
from llgtrt.app import memory
from llgtrt.app.memory import check_memory
from llgtrt.config import Config, Settings
from support.gguf import write_gguf

NUMBERS: dict[str, int | list[int]] = {
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.context_length": 1000,
}


def settings(folder: Path, layers: int | None) -> Settings:
    file = write_gguf(folder / "model.gguf", NUMBERS)
    config = Config.model_validate({"llamacpp": {"gpu_layers": layers}})
    return Settings(config=config, backend="llamacpp", model_path=file)


@pytest.mark.parametrize(
    ("machine", "gpu", "layers", "refused"),
    [
        (10, None, None, "are available:"),
        (2**40, None, None, None),
        (10, 2**40, None, None),
        (2**40, 10, None, "are available on the GPU:"),
        (2**40, 10, 0, None),
        (10, 2**40, 0, "are available:"),
        # Divided: only llama.cpp knows what goes where.
        (10, 10, 1, None),
    ],
)
def test_a_model_is_held_against_the_memory_that_it_goes_to(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    machine: int,
    gpu: int | None,
    layers: int | None,
    refused: str | None,
) -> None:
    monkeypatch.setattr(memory, "available_memory", lambda: machine)
    monkeypatch.setattr(memory, "free_gpu_memory", lambda: gpu)
    if refused is None:
        check_memory(settings(tmp_path, layers))
    else:
        with pytest.raises(ModelLoadError, match=refused):
            check_memory(settings(tmp_path, layers))
