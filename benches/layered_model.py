"""Writes a GGUF file of a llama with other layers than those of another one.

With layers that add nothing a model says what it said before, and takes as long as a larger one; without
some of its own it says something else now and then, as a smaller model of its family would. Runs in the
environment of the peers, which has ``gguf``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from gguf import GGUFReader, GGUFWriter
from random_model import copy_field, finish

OUTPUTS = ("attn_output.weight", "ffn_down.weight")
"""What a layer adds comes through these."""


def write(source: Path, target: Path, without: set[int], idle: int) -> None:
    """The layers of ``source`` but those in ``without``, and ``idle`` more that add nothing."""
    reader = GGUFReader(source)
    writer = GGUFWriter(target, "llama")
    tensors = {tensor.name: tensor for tensor in reader.tensors}
    layers = 1 + max(int(name.split(".")[1]) for name in tensors if name.startswith("blk."))
    kept = [layer for layer in range(layers) if layer not in without]
    for name, field in reader.fields.items():
        if name == "llama.block_count":
            writer.add_block_count(len(kept) + idle)
        elif not name.startswith("GGUF.") and name != "general.architecture":
            copy_field(writer, name, field)
    for name, tensor in tensors.items():
        if not name.startswith("blk."):
            writer.add_tensor(name, tensor.data, raw_dtype=tensor.tensor_type)
    for place in range(len(kept) + idle):
        layer = kept[place % len(kept)]
        for name in [name for name in tensors if name.startswith(f"blk.{layer}.")]:
            tensor = tensors[name]
            part = name.removeprefix(f"blk.{layer}.")
            nothing = place >= len(kept) and part in OUTPUTS
            data = np.zeros_like(tensor.data) if nothing else tensor.data
            writer.add_tensor(f"blk.{place}.{part}", data, raw_dtype=tensor.tensor_type)
    finish(writer)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="a GGUF file")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--without", type=int, nargs="*", default=[], help="layers to leave out")
    parser.add_argument("--idle", type=int, default=0, help="layers that add nothing")
    arguments = parser.parse_args()
    # A file that is there is a whole one.
    part = arguments.output.with_suffix(".part")
    write(arguments.source, part, set(arguments.without), arguments.idle)
    part.rename(arguments.output)


if __name__ == "__main__":
    main()
