"""Files with the head of a GGUF model and no tensors."""

from __future__ import annotations

import struct
from pathlib import Path

UINT32 = 4
ARRAY = 9


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
