"""What a model takes of the memory, from its file's head."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from llgtrt.config import Config, ConfigError, Settings
from llgtrt.config.engine import demo_model
from llgtrt.config.memory import available_memory, free_of_group, is_on_gpu, memory_need
from support.gguf import write_gguf

NUMBERS: dict[str, int | list[int]] = {
    "llama.block_count": 2,
    "llama.embedding_length": 64,
    "llama.attention.head_count": 4,
    "llama.attention.head_count_kv": 2,
    "llama.context_length": 1000,
}


def settings(file: Path, **sections: dict[str, Any]) -> Settings:
    return Settings(config=Config.model_validate(sections), backend="llamacpp", model_path=file)


def test_the_cache_holds_keys_and_values_of_every_slot(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "model.gguf", NUMBERS, size=500)
    need = memory_need(settings(file))
    assert need is not None
    assert need.weights == file.stat().st_size
    # 8 slots of 1000 tokens, rounded up to 1024; 2 layers of 2 heads; keys and values of 16 numbers in f16.
    assert need.cache == 8 * 1024 * 2 * 2 * (16 + 16) * 2
    assert need.total == need.weights + need.cache
    sections: dict[str, Any] = {
        "runtime": {"max_seq_len": 256, "max_batch_size": 1},
        "llamacpp": {"kv_cache_type": "q8_0"},
    }
    less = memory_need(settings(file, **sections))
    assert less is not None
    assert less.cache == 256 * 2 * 2 * 32 * 34 // 32


def test_heads_may_differ_by_layer_and_have_sizes_of_their_own(tmp_path: Path) -> None:
    numbers = {
        **NUMBERS,
        "llama.attention.head_count_kv": [2, 0],
        "llama.attention.key_length": 8,
        "llama.attention.value_length": 4,
    }
    need = memory_need(settings(write_gguf(tmp_path / "model.gguf", numbers)))
    assert need is not None
    assert need.cache == 8 * 1024 * 2 * (8 + 4) * 2


def test_a_draft_model_counts(tmp_path: Path) -> None:
    file = write_gguf(tmp_path / "model.gguf", NUMBERS, size=500)
    numbers = {**NUMBERS, "llama.block_count": 1, "llama.context_length": 9000}
    draft = write_gguf(tmp_path / "draft.gguf", numbers, size=300)
    alone = memory_need(settings(file))
    both = memory_need(settings(file, llamacpp={"draft_model": str(draft), "kv_cache_type": "f32"}))
    assert alone is not None
    assert both is not None
    assert both.weights == file.stat().st_size + draft.stat().st_size
    assert both.cache == 2 * alone.cache + 8 * 1024 * 2 * (16 + 16) * 2


def test_all_parts_of_a_model_count(tmp_path: Path) -> None:
    for part in (1, 2):
        write_gguf(tmp_path / f"model-0000{part}-of-00002.gguf", NUMBERS, size=100 * part)
    need = memory_need(settings(tmp_path / "model-00001-of-00002.gguf"))
    assert need is not None
    assert need.weights == sum(file.stat().st_size for file in tmp_path.iterdir())


def test_the_demo_model() -> None:
    file = demo_model()
    if file is None:
        pytest.skip("the demo model is not installed")
    need = memory_need(settings(file))
    assert need is not None
    assert need.weights == file.stat().st_size
    # SmolLM2-135M: 30 layers, 3 heads for keys and values, of 64 numbers each.
    assert need.cache == 8 * 4096 * 30 * 3 * (64 + 64) * 2


@pytest.mark.parametrize(
    ("layers", "place"), [(None, True), (99, True), (3, True), (2, None), (1, None), (0, False)]
)
def test_layers_say_where_a_model_goes(tmp_path: Path, layers: int | None, place: bool | None) -> None:
    of = settings(write_gguf(tmp_path / "model.gguf", NUMBERS), llamacpp={"gpu_layers": layers})
    need = memory_need(of)
    assert need is not None
    assert is_on_gpu(of, need, 0) is place
    assert is_on_gpu(of, need, None) is False


def test_what_is_not_known(tmp_path: Path) -> None:
    assert memory_need(Settings(backend="sim")) is None
    assert memory_need(Settings(backend="trtllm", model_path=tmp_path)) is None
    with pytest.raises(ConfigError, match="complete GGUF"):
        memory_need(settings(_cut(write_gguf(tmp_path / "a.gguf", NUMBERS))))


def _cut(file: Path) -> Path:
    file.write_bytes(file.read_bytes()[:40])
    return file


def test_a_control_group_limits_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "memory.max").write_text("1000\n")
    (tmp_path / "memory.current").write_text("700\n")
    (tmp_path / "memory.stat").write_text("anon 500\nactive_file 20\ninactive_file 30\n")
    assert free_of_group(tmp_path) == 1000 - 700 + 50
    (tmp_path / "memory.max").write_text("max\n")
    assert free_of_group(tmp_path) is None
    assert free_of_group(tmp_path / "nowhere") is None
    assert (available_memory() or 1) > 0
