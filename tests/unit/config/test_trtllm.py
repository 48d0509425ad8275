"""Where the TensorRT-LLM engine looks for shared libraries."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from llgtrt.config.trtllm import library_folders


def test_libraries_of_packages_are_found_without_importing_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = ["tensorrt_llm/libs", "torch/lib", "tensorrt_libs", "nvidia/cublas/lib", "nvidia/nccl/lib"]
    for folder in [*expected, "nvidia/empty"]:
        (tmp_path / folder).mkdir(parents=True)
    for package in ("tensorrt_llm", "torch", "tensorrt_libs"):
        (tmp_path / package / "__init__.py").write_text("raise RuntimeError('imported')")
    monkeypatch.setattr(sys, "path", [str(tmp_path)])
    for package in ("tensorrt_llm", "torch", "tensorrt_libs", "nvidia"):
        monkeypatch.delitem(sys.modules, package, raising=False)
    found = [folder.resolve() for folder in library_folders()]
    assert found[: len(expected)] == [tmp_path / folder for folder in expected]
