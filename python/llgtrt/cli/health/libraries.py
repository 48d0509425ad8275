"""Loads shared libraries in a process of its own, because one that does not fit the machine may end it."""

from __future__ import annotations

import ctypes
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

TIMEOUT_S = 120
"""TensorRT-LLM's libraries have gigabytes; a disk of the network may be slow."""


@dataclass(frozen=True, slots=True)
class Loaded:
    """What came of it.

    Attributes:
        reason: why the library does not load; ``None`` if it does.
        answer: what the function that was asked for returned; ``None`` if there is no such function.
    """

    reason: str | None
    answer: str | None = None


def load(name: str, folders: Sequence[Path], function: str = "") -> Loaded:
    """Loads a library, and before it what it needs and only these folders have.

    Args:
        name: as the dynamic linker takes it, or a path.
        folders: of shared libraries that the linker does not look into.
        function: takes nothing and returns a text; called if it is there.
    """
    # This file as a program: the package would bring the whole server with it.
    command = [sys.executable, "-I", __file__, name, function, *map(str, folders)]
    try:
        process = subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)
    except subprocess.TimeoutExpired:
        return Loaded(f"{name} does not load within {TIMEOUT_S} s")
    if process.returncode != 0:
        how = f"exit code {process.returncode}"
        if process.returncode < 0:
            how = signal.Signals(-process.returncode).name
        return Loaded(f"{name} ends its process when it is loaded ({how})")
    # The library may have printed something before.
    return Loaded(**json.loads(process.stdout.splitlines()[-1]))


def _load_here(name: str, folders: Sequence[Path]) -> str | None:
    tried: set[Path] = set()
    wanted = [name]
    while wanted:
        try:
            ctypes.CDLL(wanted[-1])
        except OSError as error:
            reason = str(error)
        else:
            wanted.pop()
            continue
        # glibc's linker has no other way to say what it misses.
        missing = re.match(r"(?:.*: )?([^/: ]+): cannot open shared object file", reason)
        files = [folder / missing[1] for folder in folders] if missing else []
        file = next((file for file in files if file.is_file() and file not in tried), None)
        if file is None:
            return reason
        tried.add(file)
        wanted.append(str(file))
    return None


def _main(name: str, function: str, *folders: str) -> None:
    reason = _load_here(name, [Path(folder) for folder in folders])
    answer = None
    if reason is None and function:
        found = getattr(ctypes.CDLL(name), function, None)
        if found is not None:
            found.restype = ctypes.c_char_p
            answer = (found() or b"").decode(errors="replace")
    print(json.dumps({"reason": reason, "answer": answer}), flush=True)
    # Without the libraries' own farewells, of which some fail without a GPU.
    os._exit(0)


if __name__ == "__main__":
    _main(*sys.argv[1:])
