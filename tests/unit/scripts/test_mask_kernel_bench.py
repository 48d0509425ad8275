"""benches/mask_kernel.py where there is no GPU, and with a driver and a compiler that only pretend."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]

DRIVER = """
#include <string.h>
int cuInit(unsigned flags) { return INIT; }
int cuDeviceGetCount(int* count) { *count = 1; return 0; }
int cuDeviceGet(int* device, int index) { *device = 7 + index; return 0; }
int cuDeviceGetName(char* name, int size, int device) {
  strncpy(name, "Pretended", size);
  return device != 7;
}
int cuDeviceGetAttribute(int* value, int attribute, int device) {
  *value = attribute == 75 ? MAJOR : 6;
  return device != 7;
}
"""
# Writes down its arguments, and a program that answers as `test_program` says.
COMPILER = """#!/bin/sh
for output; do :; done
printf '%s\\n' "$@" > "$(dirname "$0")/arguments-$(basename "$output")"
cp "$(dirname "$0")/program" "$output"
"""


class Bench:
    """The bench in a copy of what it needs, so that nothing is built in the checkout."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "a checkout"
        for name in (
            "benches/mask_kernel.py",
            "benches/load.py",
            "scripts/check_cuda.sh",
            "requirements/cuda.in",
        ):
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, target)
        self.bin = folder / "bin"
        self.bin.mkdir()
        self.compiler = self.bin / "nvcc"
        self.compiler.write_text(COMPILER)
        self.compiler.chmod(0o755)

    def pretend_driver(self, init: int = 0, major: int = 8) -> None:
        source = self.bin / "cuda.c"
        source.write_text(DRIVER.replace("INIT", str(init)).replace("MAJOR", str(major)))
        library = self.bin / "libcuda.so.1"
        subprocess.run(["cc", "-shared", "-fPIC", source, "-o", library], check=True)

    def pretend_program(self, script: str) -> None:
        program = self.bin / "program"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)

    def run(self) -> subprocess.CompletedProcess[str]:
        environment = {
            **os.environ,
            "NVCC": str(self.compiler),
            "LD_LIBRARY_PATH": str(self.bin),
            "CUDA_VISIBLE_DEVICES": "",
        }
        return subprocess.run(
            [sys.executable, self.root / "benches" / "mask_kernel.py"],
            capture_output=True,
            text=True,
            env=environment,
            check=False,
        )

    @property
    def built(self) -> bool:
        return (self.root / "target").exists()


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


def test_without_a_gpu_it_says_so_and_builds_nothing(bench: Bench) -> None:
    process = bench.run()  # a real driver hides its GPUs: CUDA_VISIBLE_DEVICES
    assert process.returncode == 0, process.stderr
    assert process.stdout.startswith("SKIPPED: no ")
    assert process.stdout.count("\n") == 1
    assert not bench.built


@pytest.mark.parametrize(
    ("init", "major", "reason"),
    [
        (100, 9, "no usable NVIDIA GPU: cuInit answers 100"),
        (0, 7, "Pretended is of compute capability 7.6; the kernel needs 8.0"),
    ],
)
def test_a_gpu_of_no_use_is_a_reason(bench: Bench, init: int, major: int, reason: str) -> None:
    bench.pretend_driver(init, major)
    process = bench.run()
    assert (process.returncode, process.stdout) == (0, f"SKIPPED: {reason}\n")
    assert not bench.built


def test_a_driver_older_than_the_compiler_is_a_reason(bench: Bench) -> None:
    bench.pretend_driver()
    bench.pretend_program("echo 'CUDA driver version is insufficient' >&2; exit 77")
    process = bench.run()
    assert process.returncode == 0
    assert process.stdout.endswith("SKIPPED: CUDA cannot use the GPU: CUDA driver version is insufficient\n")


def test_the_table(bench: Bench) -> None:
    bench.pretend_driver()
    bench.pretend_program(
        'if [ "$1" = check ]; then echo "5 cases, 0 wrong"; exit; fi\n'
        'if [ "$1" = lost ]; then echo reported; exit; fi\n'
        "while read -r type vocab batch flags; do\n"
        '  if [ "$type $vocab $batch $flags" = "fp16 131072 16 1" ]; then echo "10.000 7.000"\n'
        '  else echo "2.000 2.000"; fi\n'
        "done"
    )
    process = bench.run()
    assert process.returncode == 0, process.stderr
    lines = process.stdout.splitlines()
    assert lines[:5] == [
        "Pretended, sm_86",
        "kernel against host implementation: 5 cases, 0 wrong",
        "post-processor, far ahead of the device: 5 cases, 0 wrong",
        "post-processor whose device is lost: reported",
        "",
    ]
    kernel, steps = lines[5:].index(""), 2 + 3 * 3 * 3
    assert kernel == 2 + 3 * 3 * 3 * 3 + 1
    assert len(lines) == 5 + kernel + 2 + steps
    assert lines[-1].split() == ["bf16", "262144", "x", "256", "2.000", "2.000"]
    # 16 rows of 131072 logits of 2 bytes, read and written: 8.4 MB in 10 us.
    row = next(line for line in lines if line.startswith("fp16 131072 x 16 ") and " mask " in line)
    assert row.split()[4:] == ["mask", "10.0", "839", "7.0", "1198", "70%", "*", "-"]
    assert lines[5 + kernel - 1] == "* below the goal of 80% of the copy's bandwidth: 1 of 81"
    for program in ("mask_kernel_gpu", "post_processor_gpu"):
        arguments = (bench.bin / f"arguments-{program}").read_text().splitlines()
        assert "arch=compute_86,code=sm_86" in arguments
        assert arguments[-1] == str(bench.root / "target" / "gpu_tests-sm_86" / program)


def test_a_wrong_kernel_fails(bench: Bench) -> None:
    bench.pretend_driver()
    bench.pretend_program("echo 'wrong: fp16' >&2; echo '5 cases, 1 wrong'; exit 1")
    process = bench.run()
    assert process.returncode == 1
    assert "wrong: fp16" in process.stderr
    assert "5 cases, 1 wrong" in process.stderr
    assert "copy" not in process.stdout
