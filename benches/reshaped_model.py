"""Writes a GGUF file of a llama that is wider than another one, or has fewer layers.

With weights of zero around its own a model says what it said before, and takes as long as one of its new
shape; without some of its layers it says something else now and then, as a smaller model of its family would.
Runs in the environment of the peers, which has ``gguf``.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGUFReader, GGUFWriter
from random_model import copy_field, finish

SIZES = ("embedding_length", "feed_forward_length", "attention.head_count", "attention.head_count_kv")
EPSILON = "attention.layer_norm_rms_epsilon"
VOCABULARY = ("token_embd.weight", "output.weight")
"""Their rows are tokens, whose number stays."""


def widened(name: str, data: np.ndarray, times: int) -> np.ndarray:
    """A tensor of the wider model: zeros, the bytes of which are zeros in every type, on its right and below.

    A mean of squares over ``times`` as many elements, all the others zero, is that much smaller, and so are
    the epsilon beside it and the square of a norm's weights.
    """
    if data.ndim == 1:
        return np.pad(data / np.float32(times**0.5), (0, (times - 1) * len(data)))
    rows, columns = data.shape
    more_rows = 0 if name in VOCABULARY else (times - 1) * rows
    return np.pad(data, ((0, more_rows), (0, (times - 1) * columns)))


def write(source: Path, target: Path, without: set[int], times: int) -> None:
    """``source`` without some layers, ``times`` as wide: its heads, embeddings and what is between them."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, "llama")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    layers = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blk."))
    kept = [layer for layer in range(layers) if layer not in without]
    for name, field in reader.fields.items():
        key = name.removeprefix("llama.")
        if key == "block_count":
            writer.add_block_count(len(kept))
        elif key in SIZES:
            writer.add_uint32(name, field.contents() * times)
        elif key == EPSILON:
            writer.add_layer_norm_rms_eps(field.contents() / times)
        elif not name.startswith("GGUF.") and name != "general.architecture":
            copy_field(writer, name, field)

    def add(name: str, tensor: Any) -> None:
        writer.add_tensor(name, widened(name, tensor.data, times), raw_dtype=tensor.tensor_type)

    for name, tensor in tensors.items():
        if not name.startswith("blk."):
            add(name, tensor)
    for place, layer in enumerate(kept):
        for name, tensor in tensors.items():
            if name.startswith(f"blk.{layer}."):
                add(name.replace(f"blk.{layer}.", f"blk.{place}."), tensor)
    finish(writer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--without", type=int, nargs="*", default=[], help="layers to leave out")
    parser.add_argument("--times", type=int, default=1, help="its width over that of the source")
    arguments = parser.parse_args()
    # A file that is there is a whole one.
    part = arguments.output.with_suffix(".part")
    write(arguments.source, part, set(arguments.without), arguments.times)
    part.rename(arguments.output)


if __name__ == "__main__":
    main()
