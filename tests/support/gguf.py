"""GGUF files: with the head of a model and no tensors, or small whole ones."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

ALIGNMENT = 32
UINT32, INT32, FLOAT32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9


def write_gguf(file: Path, numbers: dict[str, int | list[int]], size: int = 0) -> Path:
    """Writes metadata; ``size`` bytes follow."""
    content = b"GGUF" + struct.pack("<IQQ", 3, 0, len(numbers))
    for name, value in numbers.items():
        content += struct.pack("<Q", len(name)) + name.encode()
        if isinstance(value, list):
            content += struct.pack("<IIQ", ARRAY, UINT32, len(value)) + struct.pack(f"<{len(value)}I", *value)
        else:
            content += struct.pack("<II", UINT32, value)
    file.write_bytes(content + bytes(size))
    return file


def _string(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def _value(value: Any) -> bytes:
    if isinstance(value, bool):
        return struct.pack("<I?", BOOL, value)
    if isinstance(value, int):
        return struct.pack("<II", UINT32, value)
    if isinstance(value, float):
        return struct.pack("<If", FLOAT32, value)
    if isinstance(value, str):
        return struct.pack("<I", STRING) + _string(value)
    kind = {str: STRING, float: FLOAT32}.get(type(value[0]), INT32)
    pack = {STRING: _string, FLOAT32: struct.Struct("<f").pack, INT32: struct.Struct("<i").pack}[kind]
    items = b"".join(map(pack, value))
    return struct.pack("<IIQ", ARRAY, kind, len(value)) + items


def write_model(path: Path, metadata: dict[str, Any], tensors: dict[str, Array]) -> None:
    """A GGUF file of 32-bit floats."""
    head = [b"GGUF", struct.pack("<IQQ", 3, len(tensors), len(metadata))]
    head += [_string(key) + _value(value) for key, value in metadata.items()]
    offset = 0
    data = []
    for name, tensor in tensors.items():
        shape = tensor.shape[::-1]
        head.append(_string(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, 0, offset))
        raw = tensor.astype("<f4").tobytes()
        raw += bytes(-len(raw) % ALIGNMENT)
        data.append(raw)
        offset += len(raw)
    start = b"".join(head)
    path.write_bytes(start + bytes(-len(start) % ALIGNMENT) + b"".join(data))
