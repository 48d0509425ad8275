"""``llgtrt.load_native``: cuBLAS of a wheel for a core that needs it, with libraries that only pretend."""

from __future__ import annotations

import ctypes
import sys
from pathlib import Path

import pytest

from llgtrt import load_native

MISSING = "libcublas.so.13: cannot open shared object file: No such file or directory"


class Importer:
    """Imports the native module once cuBLAS is loaded."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, error: str) -> None:
        self.error = error
        self.loaded: list[Path] = []
        self.imported = False
        monkeypatch.setattr(load_native, "import_module", self.import_module)
        monkeypatch.setattr(ctypes, "CDLL", self.load_library)

    def import_module(self, name: str) -> None:
        if not any(library.name == "libcublas.so.13" for library in self.loaded):
            raise ImportError(self.error, name=name)
        self.imported = True

    def load_library(self, path: str, mode: int) -> None:
        assert mode == ctypes.RTLD_GLOBAL
        self.loaded.append(Path(path))


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with packages, of which none is NVIDIA's yet."""
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    return tmp_path


def install_cublas(site: Path) -> Path:
    lib = site / "nvidia" / "cu13" / "lib"
    lib.mkdir(parents=True)
    for name in ("libcublas.so.13", "libcublasLt.so.13"):
        (lib / name).touch()
    return lib


def test_cublas_of_a_wheel_is_loaded_where_the_loader_does_not_find_it(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lib = install_cublas(site)
    importer = Importer(monkeypatch, MISSING)
    load_native.load()
    assert importer.imported
    # The second needs the first.
    assert importer.loaded == [lib / "libcublasLt.so.13", lib / "libcublas.so.13"]


def test_without_it_the_error_says_what_to_install(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (site / "nvidia" / "cu13").mkdir(parents=True)  # another of NVIDIA's packages
    importer = Importer(monkeypatch, MISSING)
    with pytest.raises(ImportError, match=r"needs libcublas\.so\.13.*pip install 'nvidia-cublas>=13,<14'"):
        load_native.load()
    assert not importer.loaded


def test_other_errors_stay_as_they_are(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_cublas(site)
    importer = Importer(monkeypatch, "libcuda.so.1: cannot open shared object file")
    with pytest.raises(ImportError, match=r"^libcuda\.so\.1"):
        load_native.load()
    assert not importer.loaded
