"""Reading one text from a GGUF file's metadata."""

import struct
from pathlib import Path

import pytest

from llgtrt.config import ConfigError
from llgtrt.config.gguf import read_text_value


def text(value: str) -> bytes:
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(*pairs: bytes) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", 3, 0, len(pairs)) + b"".join(pairs)


PAIRS = (
    text("a.count") + struct.pack("<IQ", 10, 5),
    text("a.flag") + struct.pack("<I?", 7, True),
    text("a.texts") + struct.pack("<IIQ", 9, 8, 2) + text("x") + text("yy"),
    text("a.numbers") + struct.pack("<IIQ3f", 9, 6, 3, 1, 2, 3),
    text("b.template") + struct.pack("<I", 8) + text("{{ héllo }}"),
)


def test_a_text_is_found_behind_values_of_every_kind(tmp_path: Path) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf(*PAIRS))
    assert read_text_value(file, "b.template") == "{{ héllo }}"
    assert read_text_value(file, "b.other") is None
    assert read_text_value(file, "a.count") is None


@pytest.mark.parametrize("length", [0, 3, 10, 30, 60, 100, 130])
def test_a_truncated_file_is_an_error(tmp_path: Path, length: int) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf(*PAIRS)[:length])
    with pytest.raises(ConfigError, match="not a complete GGUF file"):
        read_text_value(file, "b.template")


@pytest.mark.parametrize(
    "pair",
    [
        struct.pack("<Q", 2**63),
        text("a") + struct.pack("<I", 99),
        text("a") + struct.pack("<IIQ", 9, 9, 1),
        text("a") + struct.pack("<IIQ", 9, 8, 2**60),
    ],
)
def test_a_damaged_file_is_an_error(tmp_path: Path, pair: bytes) -> None:
    file = tmp_path / "m.gguf"
    file.write_bytes(gguf(pair, *PAIRS))
    with pytest.raises(ConfigError, match="not a complete GGUF file"):
        read_text_value(file, "b.template")
