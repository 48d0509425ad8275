"""LoRA adapters of PEFT, made on the spot, and what engines are given of them."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from numpy.typing import NDArray

SCRIPT = Path(__file__).parents[3] / "scripts" / "lora_from_peft.py"
HIDDEN, KEYS, MIDDLE = 24, 8, 40
SHAPES = {  # out, in
    "self_attn.q_proj": (HIDDEN, HIDDEN),
    "self_attn.k_proj": (KEYS, HIDDEN),
    "self_attn.v_proj": (KEYS, HIDDEN),
    "self_attn.o_proj": (HIDDEN, HIDDEN),
    "mlp.gate_proj": (MIDDLE, HIDDEN),
    "mlp.up_proj": (MIDDLE, HIDDEN),
    "mlp.down_proj": (HIDDEN, MIDDLE),
}
IDS = {
    "self_attn.q_proj": 1,
    "self_attn.k_proj": 2,
    "self_attn.v_proj": 3,
    "self_attn.o_proj": 4,
    "mlp.gate_proj": 5,
    "mlp.down_proj": 6,
    "mlp.up_proj": 7,
}
Array = NDArray[Any]
Tensors = dict[str, Array]


def key(layer: int, module: str, side: str, prefix: str = "base_model.model.model.layers") -> str:
    return f"{prefix}.{layer}.{module}.lora_{side}.weight"


def make_tensors(rank: int = 4, layers: int = 2, dtype: Any = np.float32) -> Tensors:
    """Random matrices of small whole numbers over 8: every product below is exact in any of the types."""
    random = np.random.default_rng(7)
    tensors = {}
    for layer in range(layers):
        for module, (rows, columns) in SHAPES.items():
            for side, shape in (("A", (rank, columns)), ("B", (rows, rank))):
                tensors[key(layer, module, side)] = (random.integers(-8, 9, shape) / 8).astype(dtype)
    return tensors


def save(folder: Path, tensors: Tensors, **config: Any) -> Path:
    folder.mkdir(exist_ok=True)
    content = {"peft_type": "LORA", "r": 4, "lora_alpha": 8, **config}
    (folder / "adapter_config.json").write_text(json.dumps(content))
    safetensors.numpy.save_file(tensors, folder / "adapter_model.safetensors")
    return folder


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(SCRIPT), *map(str, arguments)], capture_output=True, text=True, check=False
    )


def convert(adapter: Path, output: Path, *flags: object) -> tuple[Array, Array]:
    process = run("-i", adapter, "-o", output, *flags)
    assert process.returncode == 0, process.stderr
    file = output / f"{adapter.name}.safetensors" if output.is_dir() else output
    assert [other for other in file.parent.iterdir() if other.name.startswith(".")] == []
    tensors = safetensors.numpy.load_file(file)
    assert set(tensors) == {"weights", "config"}
    assert tensors["config"].dtype == np.int32
    return tensors["weights"], tensors["config"]


def delta(row: Array, rank: int, shape: tuple[int, int]) -> Array:
    """What an engine makes of a row: ``B @ A``. The rest of the row has to be zeros."""
    rows, columns = shape
    a = row[: rank * columns].reshape(rank, columns)
    b = row[rank * columns : rank * (columns + rows)].reshape(rows, rank)
    assert not row[rank * (columns + rows) :].any()
    return b.astype(np.float64) @ a.astype(np.float64)


def expected(tensors: Tensors, layer: int, module: str, scale: float) -> Array:
    a, b = (tensors[key(layer, module, side)].astype(np.float64) for side in "AB")
    product: Array = scale * b @ a
    return product


def find(config: Array, layer: int, module: str) -> int:
    found = np.flatnonzero((config[:, 0] == IDS[module]) & (config[:, 1] == layer))
    assert len(found) == 1
    return int(found[0])


@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_every_change_of_the_weights_is_reproduced(tmp_path: Path, dtype: Any) -> None:
    tensors = make_tensors(dtype=dtype)
    weights, config = convert(save(tmp_path / "mine", tensors), tmp_path)
    assert weights.dtype == dtype
    assert weights.shape == (2 * len(SHAPES), 4 * (HIDDEN + MIDDLE))
    for layer in range(2):
        for module, shape in SHAPES.items():
            index = find(config, layer, module)
            assert config[index, 2] == 4
            np.testing.assert_array_equal(
                delta(weights[index], 4, shape), expected(tensors, layer, module, scale=2.0)
            )


def test_ranks_and_alphas_of_single_modules(tmp_path: Path) -> None:
    tensors = make_tensors()
    tensors.update({name: value for name, value in make_tensors(rank=8).items() if "0.mlp.up_proj" in name})
    patterns = {"q_proj": 16, r"model\.layers\.1\.mlp\.up_proj": 32, "layers.0.mlp.up_proj": 4, "proj": 1}
    adapter = save(tmp_path / "mine", tensors, alpha_pattern=patterns)
    weights, config = convert(adapter, tmp_path)
    scales = {(0, "self_attn.q_proj"): 4.0, (1, "self_attn.q_proj"): 4.0, (1, "mlp.up_proj"): 8.0}
    scales[0, "mlp.up_proj"] = 0.5
    for (layer, module), scale in scales.items():
        index = find(config, layer, module)
        rank = 8 if (layer, module) == (0, "mlp.up_proj") else 4
        assert config[index, 2] == rank
        np.testing.assert_array_equal(
            delta(weights[index], rank, SHAPES[module]), expected(tensors, layer, module, scale)
        )
    # "proj" is a whole last part of no name.
    index = find(config, 0, "mlp.gate_proj")
    np.testing.assert_array_equal(
        delta(weights[index], 4, SHAPES["mlp.gate_proj"]), expected(tensors, 0, "mlp.gate_proj", 2.0)
    )


def test_rank_stabilised_scaling(tmp_path: Path) -> None:
    tensors = make_tensors(rank=2)
    weights, config = convert(save(tmp_path / "mine", tensors, lora_alpha=3, use_rslora=True), tmp_path)
    module = "self_attn.k_proj"
    got = delta(weights[find(config, 1, module)], 2, SHAPES[module])
    np.testing.assert_allclose(got, expected(tensors, 1, module, 3 / math.sqrt(2)), rtol=1e-6, atol=1e-6)


def bf16(values: Array) -> Array:
    """The bits of values that bfloat16 holds exactly."""
    bits = values.astype("<f4").view("<u4")
    assert not (bits & 0xFFFF).any()
    return (bits >> 16).astype("<u2")


def load_bf16(file: Path) -> Array:
    tensors = dict(safetensors.deserialize(file.read_bytes()))  # type: ignore[no-untyped-call]
    entry = tensors["weights"]
    assert entry["dtype"] == "BF16"
    bits = np.frombuffer(bytes(entry["data"]), "<u2").astype("<u4") << 16
    values: Array = bits.view("<f4").reshape(entry["shape"])
    return values


def test_bfloat16_in_and_out(tmp_path: Path) -> None:
    tensors = make_tensors(layers=1)
    adapter = save(tmp_path / "mine", tensors)
    exact, config = convert(adapter, tmp_path / "exact.safetensors")

    # numpy has no bfloat16: the file of 16-bit integers gets another name of their type.
    file = adapter / "adapter_model.safetensors"
    safetensors.numpy.save_file({name: bf16(value) for name, value in tensors.items()}, file)
    file.write_bytes(file.read_bytes().replace(b'"dtype":"U16"', b'"dtype":"BF16"', -1))
    size = int.from_bytes(file.read_bytes()[:8], "little") + len(tensors)
    file.write_bytes(size.to_bytes(8, "little") + file.read_bytes()[8:])

    assert run("-i", adapter, "-o", tmp_path).returncode == 0
    np.testing.assert_array_equal(load_bf16(tmp_path / "mine.safetensors"), exact)
    single, _ = convert(adapter, tmp_path / "single.safetensors", "-t", "float32")
    np.testing.assert_array_equal(single, exact)
    np.testing.assert_array_equal(config[:, 1], 0)


def test_bfloat16_is_rounded_to_the_nearest(tmp_path: Path) -> None:
    # Halfway values go to the even neighbour: 1 + 2^-8 down, 1 + 3 * 2^-8 up.
    values = np.array([[1 + 2**-8, 1 + 3 * 2**-8, 1 + 2**-8 + 2**-20, -3.1415927]], np.float32)
    tensors = {
        key(0, "self_attn.q_proj", "A"): values,
        key(0, "self_attn.q_proj", "B"): np.ones((1, 1), "f4"),
    }
    adapter = save(tmp_path / "mine", tensors, lora_alpha=1)
    assert run("-i", adapter, "-o", tmp_path, "-t", "bfloat16").returncode == 0
    got = load_bf16(tmp_path / "mine.safetensors")[0, :4]
    np.testing.assert_array_equal(got, np.array([1, 1 + 2**-6, 1 + 2**-7, -3.140625], np.float32))


@pytest.mark.parametrize(
    ("prefix", "module", "number"),
    [
        ("base_model.model.model.layers", "self_attn.qkv_proj", 0),
        ("base_model.model.transformer.h", "attn.c_attn", 0),
        ("base_model.model.transformer.h", "attn.c_proj", 4),
        ("base_model.model.transformer.h", "mlp.c_proj", 6),
        ("transformer.h", "mlp.c_fc", 5),
        ("base_model.model.model.layers", "mlp.fc2", 6),
        ("base_model.model.gpt_neox.layers", "attention.dense", 4),
        ("base_model.model.gpt_neox.layers", "mlp.dense_4h_to_h", 6),
        ("base_model.model.model.layers", "block_sparse_moe.gate", 16),
    ],
)
def test_names_of_other_models(tmp_path: Path, prefix: str, module: str, number: int) -> None:
    tensors = {
        key(11, module, "A", prefix).replace(".weight", ".default.weight"): np.ones((2, 6), np.float32),
        key(11, module, "B", prefix).replace(".weight", ".default.weight"): np.ones((5, 2), np.float32),
    }
    _, config = convert(save(tmp_path / "mine", tensors), tmp_path)
    assert config.tolist() == [[number, 11, 2]]


def test_the_halves_of_a_fused_gate_change_places(tmp_path: Path) -> None:
    a, b = np.ones((1, 3), np.float32), np.array([[1], [2], [3], [4]], np.float32)
    tensors = {key(0, "mlp.gate_up_proj", "A"): a, key(0, "mlp.gate_up_proj", "B"): b}
    weights, config = convert(save(tmp_path / "mine", tensors, lora_alpha=1), tmp_path)
    assert config.tolist() == [[5, 0, 1]]
    np.testing.assert_array_equal(delta(weights[0], 1, (4, 3))[:, 0], [3, 4, 1, 2])


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"use_dora": True}, "use_dora: DoRA scales the columns"),
        ({"peft_type": "IA3"}, "type IA3: only LORA"),
        ({"bias": "all"}, "it trains biases"),
        ({"modules_to_save": ["lm_head"]}, "modules_to_save: it replaces whole modules"),
        ({"layer_replication": [[0, 2]]}, "layer_replication: it repeats layers"),
        ({"init_lora_weights": "pissa_niter_16"}, "changes the model's own weights"),
    ],
)
def test_what_no_lora_adapter_can_hold(tmp_path: Path, config: dict[str, Any], message: str) -> None:
    process = run("-i", save(tmp_path / "mine", make_tensors(), **config), "-o", tmp_path)
    assert process.returncode == 1
    assert process.stderr.startswith("lora_from_peft.py: error: ")
    assert message in process.stderr
    assert process.stderr.count("\n") == 1
    assert not (tmp_path / "mine.safetensors").exists()


ONE = np.ones((2, 4), np.float32)
EXPERT = "block_sparse_moe.experts.3.w1"


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        (
            {"base_model.model.model.layers.0.self_attn.q_proj.lora_magnitude_vector": np.ones(4, "f4")},
            "DoRA scales the columns",
        ),
        ({"base_model.model.model.embed_tokens.lora_embedding_A": ONE}, "embeddings and the output layer"),
        ({"base_model.model.lm_head.lora_A.weight": ONE}, "embeddings and the output layer"),
        ({key(0, "self_attn.q_proj", "A"): ONE}, "lora_A and lora_B must both be there"),
        (
            {key(0, "self_attn.q_proj", "A"): ONE, key(0, "self_attn.q_proj", "B"): ONE},
            "their ranks differ",
        ),
        (
            {key(0, "mamba.in_proj", "A"): ONE, key(0, "mamba.in_proj", "B"): ONE.T},
            "cannot be adapted; known",
        ),
        ({key(0, EXPERT, "A"): ONE, key(0, EXPERT, "B"): ONE.T}, "cannot be adapted; known"),
        (
            {
                key(0, module, side): value
                for module in ("mlp.fc1", "mlp.c_fc")
                for side, value in (("A", ONE), ("B", ONE.T))
            },
            "two adapters for module 5",
        ),
        (
            {key(0, "mlp.fc1", "A"): ONE, key(0, "mlp.fc1", "B"): ONE.T.astype(np.float16)},
            "weights of several types",
        ),
        (
            {key(0, "mlp.fc1", "A"): ONE.astype(np.int32), key(0, "mlp.fc1", "B"): ONE.T.astype(np.int32)},
            "weights of type I32 cannot be used",
        ),
        (
            {key(0, "mlp.fc1", "A"): ONE * np.float32(np.inf), key(0, "mlp.fc1", "B"): np.ones((4, 2), "f4")},
            "not finite",
        ),
        ({}, "no weights"),
    ],
)
def test_weights_without_a_place(tmp_path: Path, tensors: Tensors, message: str) -> None:
    tensors = {name: np.ascontiguousarray(value) for name, value in tensors.items()}
    process = run("-i", save(tmp_path / "mine", tensors), "-o", tmp_path)
    assert process.returncode == 1
    assert message in process.stderr
    assert "Traceback" not in process.stderr


def test_too_large_for_float16(tmp_path: Path) -> None:
    tensors = {key(0, "mlp.fc1", "A"): ONE, key(0, "mlp.fc1", "B"): np.full((4, 2), 7e4, np.float32)}
    process = run("-i", save(tmp_path / "mine", tensors), "-o", tmp_path, "-t", "float16")
    assert process.returncode == 1
    assert "too large for float16" in process.stderr


def test_files(tmp_path: Path) -> None:
    adapter = save(tmp_path / "mine", make_tensors())
    assert "NAME.safetensors" in run("-i", adapter, "-o", tmp_path / "mine.bin").stderr
    assert "NAME.safetensors" in run("-i", adapter, "-o", tmp_path / "my own.safetensors").stderr
    assert "No such file" in run("-i", tmp_path / "nothing", "-o", tmp_path).stderr
    (adapter / "adapter_model.safetensors").write_bytes(b"not a file of tensors")
    broken = run("-i", adapter, "-o", tmp_path)
    assert broken.returncode == 1
    assert "Traceback" not in broken.stderr
    (adapter / "adapter_model.safetensors").rename(adapter / "adapter_model.bin")
    assert "save it as safetensors" in run("-i", adapter, "-o", tmp_path).stderr


@pytest.mark.parametrize(
    ("plugin", "lora", "message"),
    [
        (None, {}, "built without --lora_plugin"),
        (
            "auto",
            {"lora_target_modules": ["attn_q"], "max_lora_rank": 64},
            "--lora_target_modules attn_dense",
        ),
        ("auto", {"lora_target_modules": [], "max_lora_rank": 64}, "built without --lora_target_modules"),
        ("auto", {"max_lora_rank": 2}, "built with --max_lora_rank 2, this adapter needs 4"),
        ("auto", {}, None),
    ],
)
def test_the_engine_can_be_asked(
    tmp_path: Path, plugin: str | None, lora: dict[str, Any], message: str | None
) -> None:
    engine = tmp_path / "engine"
    engine.mkdir()
    names = ["attn_q", "attn_k", "attn_v", "attn_dense", "mlp_h_to_4h", "mlp_4h_to_h", "mlp_gate"]
    build = {
        "plugin_config": {"lora_plugin": plugin},
        "lora_config": {"lora_target_modules": names, **lora},
    }
    (engine / "config.json").write_text(json.dumps({"build_config": build}))
    process = run("-i", save(tmp_path / "mine", make_tensors()), "-o", tmp_path, "--engine", engine)
    assert process.returncode == (0 if message is None else 1)
    assert message is None or message in process.stderr
