"""NVIDIA's wheels in place of a CUDA toolkit, for llama.cpp's CUDA backend on a machine that has none.

The wheels hold the compiler, the headers and the libraries, but not in the form that CMake and
``llama-cpp-sys-2`` look for. This module makes a folder that has it, out of links to the wheels' files.
"""

from __future__ import annotations

import os
import platform
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

TOOLKIT = ROOT / "target" / "cuda-toolkit"
"""The same from build to build, wherever the wheels are: cargo would take a changed path for a reason to
compile llama.cpp again."""

REQUIREMENTS = ROOT / "requirements" / "cuda.in"

VARIABLES = ("CUDACXX", "CUDA_PATH", "CUDA_HOME", "CUDAToolkit_ROOT")
"""Any of them says that the user has a toolkit."""

USUAL_NVCC = Path("/usr/local/cuda/bin/nvcc")

# `llama-cpp-sys-2` insists on linking these, which no wheel has. cuBLAS is linked as a shared library
# (rust/llgtrt-py/build.rs), and nothing needs culibos without the static cuBLAS.
EMPTY_ARCHIVES = ("libcublas_static.a", "libcublasLt_static.a", "libculibos.a")


def is_wanted() -> bool:
    """Whether this machine has no CUDA toolkit, and the wheels exist for it."""
    if sys.platform != "linux" or platform.machine() not in ("x86_64", "aarch64"):
        return False
    has_toolkit = any(name in os.environ for name in VARIABLES) or shutil.which("nvcc") or USUAL_NVCC.exists()
    return not has_toolkit


def wheels() -> list[str]:
    """The pinned requirements."""
    lines = REQUIREMENTS.read_text().splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def make_toolkit(installed: Path) -> dict[str, str]:
    """Makes the folder out of what the wheels unpacked into ``installed``.

    Returns:
        The environment variables that lead cargo to it, without ``PATH``.
    """
    shutil.rmtree(TOOLKIT, ignore_errors=True)
    # Folders of their own: nvcc looks for its parts at bin/.., which through a link would be elsewhere.
    for name in ("bin", "lib"):
        folder = TOOLKIT / name
        folder.mkdir(parents=True)
        for entry in (installed / name).iterdir():
            (folder / entry.name).symlink_to(entry)
    for name in ("include", "nvvm"):
        (TOOLKIT / name).symlink_to(installed / name)
    (TOOLKIT / "lib64").symlink_to("lib")

    # What the wheels lack of the following today, others may bring: that stays as it is.
    lib = TOOLKIT / "lib"
    # Names for the linker: there are only those for the loader, such as libcublas.so.13.
    for library in list(lib.glob("lib*.so.*")):
        link = lib / f"{library.name.split('.')[0]}.so"
        if not link.exists():
            link.symlink_to(library.name)
    for name in EMPTY_ARCHIVES:
        if not (lib / name).exists():
            (lib / name).write_bytes(b"!<arch>\n")
    if not (lib / "stubs").exists():
        _make_driver_stub(lib / "stubs" / "libcuda.so")
    return {
        "CUDA_PATH": str(TOOLKIT),
        "CUDA_LIBRARY_PATH": str(TOOLKIT),
        "CUDAToolkit_ROOT": str(TOOLKIT),
        "CUDACXX": str(TOOLKIT / "bin" / "nvcc"),
        "LLGTRT_CUBLAS": str(lib),
    }


def _make_driver_stub(stub: Path) -> None:
    """A library to link with; at run time the driver's, which need not be on this machine, takes its place.

    It has all the driver's names: the linker notes only libraries that have a name which is needed.
    """
    names = set(re.findall(r"\bcu[A-Z]\w*", (TOOLKIT / "include" / "cuda.h").read_text()))
    source = "".join(f"void {name}(void) {{}}\n" for name in sorted(names))
    stub.parent.mkdir()
    compiler = shlex.split(os.environ.get("CC", "cc"))
    # -w: the compiler has no business with what it may know under these names.
    options = ["-shared", "-fPIC", "-w", "-Wl,-soname,libcuda.so.1", "-o", str(stub), "-x", "c", "-"]
    subprocess.run([*compiler, *options], input=source, text=True, check=True)
