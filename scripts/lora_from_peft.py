#!/usr/bin/env python3
"""Turns a LoRA adapter of PEFT into the file that TensorRT-LLM engines take through llgtrt.

    lora_from_peft.py -i ADAPTER_DIR -o LORA_DIR [-t bfloat16] [--engine ENGINE_DIR]

ADAPTER_DIR holds adapter_config.json and adapter_model.safetensors. LORA_DIR is the folder that `--lora-root`
names; the adapter is called there as its folder is, or name a file, LORA_DIR/NAME.safetensors.

The file has two tensors: `weights` [rows, widest row], for each adapted matrix a row with A [rank, in], then
B [out, rank] times the adapter's scale, then zeros; `config` [rows, 3], 32-bit integers: module id, layer,
rank. Needs numpy and safetensors, nothing of PEFT, torch or TensorRT-LLM.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import os
import re
import struct
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray

MODULES = {
    "attn_qkv": 0,
    "attn_q": 1,
    "attn_k": 2,
    "attn_v": 3,
    "attn_dense": 4,
    "mlp_h_to_4h": 5,
    "mlp_4h_to_h": 6,
    "mlp_gate": 7,
    "moe_router": 16,
}
"""TensorRT-LLM's names and ids of what an adapter can change."""

NAMES = {
    "q_proj": "attn_q",
    "k_proj": "attn_k",
    "v_proj": "attn_v",
    "o_proj": "attn_dense",
    "out_proj": "attn_dense",
    "dense": "attn_dense",
    "qkv_proj": "attn_qkv",
    "query_key_value": "attn_qkv",
    "c_attn": "attn_qkv",
    "attn.c_proj": "attn_dense",
    "gate_proj": "mlp_h_to_4h",
    "up_proj": "mlp_gate",
    "down_proj": "mlp_4h_to_h",
    "gate_up_proj": "mlp_h_to_4h",
    "c_fc": "mlp_h_to_4h",
    "mlp.c_proj": "mlp_4h_to_h",
    "fc1": "mlp_h_to_4h",
    "fc2": "mlp_4h_to_h",
    "dense_h_to_4h": "mlp_h_to_4h",
    "dense_4h_to_h": "mlp_4h_to_h",
    "block_sparse_moe.gate": "moe_router",
}
"""Names of matrices in models of Hugging Face, with the part before where the last alone is not clear."""

TENSOR = re.compile(
    r"(?:base_model\.model\.)?(?P<module>(?:.*\.)?(?:layers|h|blocks)\.(?P<layer>\d+)\.(?P<name>.+))"
    r"\.lora_(?P<side>[AB])(?:\.[^.]+)?\.weight"
)
DTYPES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16"}
"""Names of -t and those in the files."""

FLOATS: dict[str, np.dtype[Any]] = {"F32": np.dtype("<f4"), "F16": np.dtype("<f2")}

ADAPTER_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]{0,127}")

DORA = "DoRA scales the columns of the weights, which a LoRA adapter cannot: merge it into the model"

Array = NDArray[np.float32]


class AdapterError(Exception):
    """The adapter cannot be turned into what TensorRT-LLM takes. One line that says why."""


@dataclass(frozen=True)
class Row:
    """An adapted matrix: its change is ``b @ a``."""

    module: int
    layer: int
    a: Array
    b: Array

    @property
    def rank(self) -> int:
        return int(self.a.shape[0])


def main() -> int:
    """Runs the command."""
    parser = argparse.ArgumentParser(
        description="Turns a LoRA adapter of PEFT into NAME.safetensors for llgtrt's --lora-root."
    )
    parser.add_argument(
        "-i", "--in-file", type=Path, required=True, metavar="ADAPTER_DIR", help="folder of the adapter"
    )
    parser.add_argument(
        "-o",
        "--out-file",
        type=Path,
        required=True,
        metavar="LORA_DIR",
        help="folder of --lora-root, or the file in it: NAME.safetensors",
    )
    parser.add_argument(
        "-t",
        "--dtype",
        choices=DTYPES,
        help="type of the weights, that of the engine  [default: the adapter's]",
    )
    parser.add_argument(
        "--engine", type=Path, metavar="ENGINE_DIR", help="check that this engine can take it"
    )
    arguments = parser.parse_args()
    try:
        file = output_file(arguments.in_file, arguments.out_file)
        rows, dtype = read_adapter(arguments.in_file)
        if arguments.engine is not None:
            check_engine(rows, arguments.engine)
        dtype = DTYPES.get(arguments.dtype, dtype)
        write(file, rows, dtype)
    except (AdapterError, OSError, safetensors.SafetensorError) as error:
        print(f"{parser.prog}: error: {error}", file=sys.stderr)
        return 1
    print(f"{file}: {len(rows)} matrices, rank {max(row.rank for row in rows)} at most, {dtype}")
    return 0


def output_file(adapter: Path, output: Path) -> Path:
    """The file to write; its name is the adapter's in requests."""
    file = output / f"{adapter.resolve().name}.safetensors" if output.is_dir() else output
    if file.suffix != ".safetensors" or not ADAPTER_NAME.fullmatch(file.stem):
        raise AdapterError(
            f"{file}: an adapter's file is NAME.safetensors, of ASCII letters, digits, _, - and ."
        )
    return file


def read_adapter(folder: Path) -> tuple[list[Row], str]:
    """Its rows by layer and module, the scale a part of B; and the type of its weights.

    Raises:
        AdapterError: it is no plain LoRA adapter.
    """
    try:
        config = json.loads((folder / "adapter_config.json").read_text(encoding="utf-8"))
    except ValueError as error:
        raise AdapterError(f"{folder}/adapter_config.json: {error}") from error
    check_config(config)
    file = folder / "adapter_model.safetensors"
    if not file.exists() and file.with_suffix(".bin").exists():
        raise AdapterError(f"{file.with_suffix('.bin')}: save it as safetensors with PEFT first")
    sides: dict[str, dict[str, tuple[re.Match[str], Array]]] = {}
    dtypes = set()
    for name, tensor in safetensors.deserialize(file.read_bytes()):  # type: ignore[no-untyped-call]
        match = TENSOR.fullmatch(name)
        if match is None:
            raise AdapterError(f"{name}: {unknown_tensor(name)}")
        dtypes.add(tensor["dtype"])
        sides.setdefault(match["module"], {})[match["side"]] = (match, decode(name, tensor))
    if not sides:
        raise AdapterError(f"{file}: no weights")
    if len(dtypes) > 1:
        raise AdapterError(f"{file}: weights of several types: {', '.join(sorted(dtypes))}")
    rows = [row(module, pair, config) for module, pair in sides.items()]
    rows.sort(key=lambda one: (one.layer, one.module))
    for one, other in itertools.pairwise(rows):
        if (one.module, one.layer) == (other.module, other.layer):
            raise AdapterError(f"layer {one.layer} has two adapters for module {one.module}")
    return rows, dtypes.pop()


def check_config(config: Mapping[str, Any]) -> None:
    """Refuses what is not the sum of a weight and a scaled product of two matrices."""
    if config.get("peft_type") != "LORA":
        raise AdapterError(f"an adapter of type {config.get('peft_type')}: only LORA can be used")
    refused = {
        "use_dora": DORA,
        "modules_to_save": "it replaces whole modules: merge it into the model",
        "trainable_token_indices": "it trains embeddings: merge it into the model",
        "layer_replication": "it repeats layers of the model",
        "lora_bias": "it trains biases: merge it into the model",
        "use_qalora": "QALoRA pools the inputs, which a LoRA adapter cannot",
        "alora_invocation_tokens": "an activated LoRA acts on a part of the tokens only",
    }
    for option, reason in refused.items():
        if config.get(option):
            raise AdapterError(f"{option}: {reason}")
    if config.get("bias", "none") != "none":
        raise AdapterError("bias: it trains biases: merge it into the model")
    start = str(config.get("init_lora_weights", True)).lower()
    if start.startswith(("pissa", "olora", "corda", "loftq")):
        raise AdapterError(
            f"init_lora_weights: {start} changes the model's own weights: save the adapter again with PEFT's "
            "path_initial_model_for_weight_conversion"
        )


def unknown_tensor(name: str) -> str:
    """Why a tensor has no place."""
    if "magnitude" in name:
        return DORA
    if "embedding" in name or "embed_tokens" in name or "lm_head" in name:
        return "embeddings and the output layer cannot be adapted"
    return "not the A or B matrix of a layer"


def decode(name: str, tensor: Mapping[str, Any]) -> Array:
    """A tensor as single precision, which holds both 16-bit types exactly."""
    dtype, shape = tensor["dtype"], tensor["shape"]
    data = bytes(tensor["data"])
    if dtype == "BF16":
        values: Array = (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    elif dtype in ("F32", "F16"):
        values = np.frombuffer(data, FLOATS[dtype]).astype("<f4")
    else:
        raise AdapterError(f"{name}: weights of type {dtype} cannot be used")
    if len(shape) != 2:
        raise AdapterError(f"{name}: {len(shape)} dimensions, not 2")
    matrix: Array = values.reshape(shape)
    return matrix


def row(module: str, sides: Mapping[str, tuple[re.Match[str], Array]], config: Mapping[str, Any]) -> Row:
    """One adapted matrix."""
    if len(sides) != 2:
        raise AdapterError(f"{module}: lora_A and lora_B must both be there")
    (match, a), (_, b) = sides["A"], sides["B"]
    rank = a.shape[0]
    if b.shape[1] != rank:
        raise AdapterError(f"{module}: lora_A is {list(a.shape)}, lora_B {list(b.shape)}: their ranks differ")
    name = match["name"]
    last = name.rsplit(".", 1)[-1]
    known = NAMES.get(".".join(name.split(".")[-2:])) or NAMES.get(last)
    if known is None or ".experts." in f".{name}.":
        raise AdapterError(f"{module}: this matrix cannot be adapted; known are {', '.join(NAMES)}")
    if last == "gate_up_proj":
        # TensorRT-LLM has the two halves of this matrix the other way round.
        if b.shape[0] % 2:
            raise AdapterError(f"{module}: lora_B has an odd number of rows")
        b = np.roll(b, b.shape[0] // 2, axis=0)
    scale = alpha(module, config) / (math.sqrt(rank) if config.get("use_rslora") else rank)
    return Row(MODULES[known], int(match["layer"]), a, (b.astype(np.float64) * scale).astype(np.float32))


def alpha(module: str, config: Mapping[str, Any]) -> float:
    """The adapter's alpha for a module, which a pattern may change, matched as PEFT does."""
    for pattern, value in (config.get("alpha_pattern") or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return float(value)
    return float(8 if config.get("lora_alpha") is None else config["lora_alpha"])


def check_engine(rows: list[Row], folder: Path) -> None:
    """Refuses an adapter that an engine was not built for."""
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    build = config["build_config"]
    lora = build.get("lora_config") or {}
    if not (build.get("plugin_config") or {}).get("lora_plugin"):
        raise AdapterError(f"{folder}: built without --lora_plugin")
    names = {number: name for name, number in MODULES.items()}
    targets = lora.get("lora_target_modules") or []
    missing = sorted({names[row.module] for row in rows} - set(targets))
    if missing:
        raise AdapterError(f"{folder}: built without --lora_target_modules {' '.join(missing)}")
    most, rank = lora.get("max_lora_rank"), max(row.rank for row in rows)
    if most is not None and rank > most:
        raise AdapterError(f"{folder}: built with --max_lora_rank {most}, this adapter needs {rank}")


def encode(values: Array, dtype: str) -> bytes:
    """Single precision in another type, rounded to the nearest even."""
    if dtype == "BF16":
        bits = values.view("<u4").astype("<u8")
        rounded: NDArray[np.uint16] = ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")
        return rounded.tobytes()
    with np.errstate(over="ignore"):
        converted: NDArray[Any] = values.astype(FLOATS[dtype])
    return converted.tobytes()


def write(file: Path, rows: list[Row], dtype: str) -> None:
    """Writes the file at once: a server that reads it meanwhile sees the old one or the new one."""
    width = max(row.a.size + row.b.size for row in rows)
    weights = np.zeros((len(rows), width), np.float32)
    for line, one in zip(weights, rows, strict=True):
        line[: one.a.size] = one.a.reshape(-1)
        line[one.a.size : one.a.size + one.b.size] = one.b.reshape(-1)
    if not np.isfinite(weights).all():
        raise AdapterError("there are weights that are not finite")
    data = encode(weights, dtype)
    if dtype == "F16" and not np.isfinite(np.frombuffer(data, "<f2")).all():
        raise AdapterError("there are weights that are too large for float16")
    config = np.array([(one.module, one.layer, one.rank) for one in rows], "<i4")
    tensors = {"weights": (dtype, weights.shape, data), "config": ("I32", config.shape, config.tobytes())}
    temporary = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        temporary.write_bytes(serialize(tensors))
        temporary.replace(file)
    finally:
        temporary.unlink(missing_ok=True)


def serialize(tensors: Mapping[str, tuple[str, tuple[int, ...], bytes]]) -> bytes:
    """A safetensors file. The library writes bfloat16 only from torch's tensors, and the arguments of its own
    plain function differ between versions."""
    header: dict[str, Any] = {}
    offset = 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(data for _, _, data in tensors.values())


if __name__ == "__main__":
    sys.exit(main())
