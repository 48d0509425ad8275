"""Loads ``llgtrt._native``, and cuBLAS before it where the loader does not find that by itself.

A core that was built with CUDA from NVIDIA's wheels is linked to the cuBLAS of such a wheel, which lies in a
folder that the loader does not know. Whoever imports ``llgtrt._native`` imports this module first.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

_LIBRARIES = ("libcublasLt.so.13", "libcublas.so.13")
"""The second needs the first."""


def load() -> None:
    """Imports the native module.

    Raises:
        ImportError: it cannot be loaded; the message says if that is for want of cuBLAS.
    """
    try:
        import_module("llgtrt._native")
    except ImportError as error:
        if "libcublas" not in str(error):
            raise
        folder = _cublas_folder()
        if folder is None:
            raise ImportError(
                f"llgtrt was built with CUDA and needs {_LIBRARIES[-1]}, which is not installed: "
                "pip install 'nvidia-cublas>=13,<14'"
            ) from error
        import ctypes  # seldom needed, and takes milliseconds

        for library in _LIBRARIES:
            ctypes.CDLL(str(folder / library), mode=ctypes.RTLD_GLOBAL)
        import_module("llgtrt._native")


def _cublas_folder() -> Path | None:
    """The folder with the libraries of the package ``nvidia-cublas``."""
    spec = find_spec("nvidia")
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location, "cu13", "lib")
        if all((folder / library).is_file() for library in _LIBRARIES):
            return folder
    return None


load()
