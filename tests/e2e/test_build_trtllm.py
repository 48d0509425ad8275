"""`llgtrt build-trtllm`: what it asks for, and what it calls and keeps."""

from __future__ import annotations

import os
from pathlib import Path

from llgtrt.config.trtllm import PLUGIN_NAME
from support.server import run_llgtrt


def test_build_trtllm_says_what_is_missing(tmp_path: Path) -> None:
    nothing = run_llgtrt("build-trtllm", "--trtllm-root", str(tmp_path))
    assert nothing.returncode == 1
    assert "was not found" in nothing.stderr
    (tmp_path / "libs").mkdir()
    (tmp_path / "libs/libtensorrt_llm.so").write_bytes(b"")
    newer = run_llgtrt("build-trtllm", "--trtllm-root", str(tmp_path))
    assert newer.returncode == 1
    assert "without its C++ executor" in newer.stderr


def test_build_trtllm_calls_cmake_and_keeps_the_plugin(tmp_path: Path) -> None:
    root = tmp_path / "a root with blanks"
    header = root / "include/tensorrt_llm/executor/executor.h"
    header.parent.mkdir(parents=True)
    header.write_text("")
    (root / "lib").mkdir()
    (root / "lib/libtensorrt_llm.so").write_bytes(b"")
    log = tmp_path / "log"
    cmake = tmp_path / "cmake"
    cmake.write_text(
        f'#!/bin/sh\nprintf "%s\\n" "$@" >>"{log}"\n'
        f'if [ "$1" = --build ]; then : >"$2/{PLUGIN_NAME}"; else mkdir -p "$4"; fi\n'
    )
    cmake.chmod(0o755)
    output = tmp_path / "out"
    result = run_llgtrt(
        "build-trtllm",
        "--trtllm-root",
        str(root),
        "--output",
        str(output),
        "--architectures",
        "90",
        env={"CMAKE": str(cmake)},
    )
    assert result.returncode == 0, result.stderr
    assert (output / PLUGIN_NAME).is_file()
    assert (output / "source/src/mask_kernel.cu").is_file()
    arguments = log.read_text().splitlines()
    assert f"-DTRTLLM_INCLUDE_DIR={root}/include" in arguments
    assert f"-DTRTLLM_LIB_DIR={root}/lib" in arguments
    assert "-DCMAKE_CUDA_ARCHITECTURES=90" in arguments
    assert os.access(output / PLUGIN_NAME, os.R_OK)
