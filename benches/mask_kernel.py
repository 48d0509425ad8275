"""The CUDA mask kernel of the TensorRT-LLM plugin on this machine's GPU: is it right, and as fast as a copy?

Builds the plugin's test programs for the GPU, compares the kernel and the logits post-processor, which calls
it, with the host implementation on random rows, and prints a table of each. Without an NVIDIA GPU it says so
and does nothing.
"""

from __future__ import annotations

import argparse
import ctypes
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from load import print_table

ROOT = Path(__file__).resolve().parent.parent
CHECK_CUDA = ROOT / "scripts" / "check_cuda.sh"
XGRAMMAR_BENCH = Path(__file__).with_name("xgrammar_mask.py")
XGRAMMAR_PACKAGES = ["torch==2.12.1", "xgrammar==0.2.8"]
GOAL = 0.8
NO_USABLE_GPU = 77
"""Exit status of the test program where CUDA finds no GPU, or a driver older than itself."""

SIZES = {"fp32": 4, "fp16": 2, "bf16": 2}
VOCABULARIES = [32000, 131072, 262144]
BATCHES = [1, 16, 256]
WORK = {"mask": 1, "mask, temperature, mass": 1 | 2 | 8, "all, with min_p": 1 | 2 | 4 | 8}
"""The bits of MaskFlags in mask_kernel.h."""


class SkippedError(Exception):
    """Why nothing can be measured here."""


@dataclass(frozen=True)
class Gpu:
    """The first GPU of this process."""

    name: str
    major: int
    minor: int

    @property
    def architecture(self) -> str:
        return f"{self.major}{self.minor}"


@dataclass(frozen=True)
class Case:
    """One line of the table."""

    dtype: str
    vocab: int
    batch: int
    work: str

    @property
    def line(self) -> str:
        """What the test program reads."""
        return f"{self.dtype} {self.vocab} {self.batch} {WORK[self.work]}"

    def gigabytes_per_s(self, microseconds: float) -> float:
        """Every logit read and written once, as a copy does."""
        return 2 * SIZES[self.dtype] * self.vocab * self.batch / microseconds / 1000


def find_gpu() -> Gpu:
    """The GPU, by the driver alone; raises SkippedError if there is none that the kernel is made for."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        raise SkippedError("no NVIDIA driver: libcuda.so.1 cannot be loaded") from None
    status = cuda.cuInit(0)
    if status != 0:
        raise SkippedError(f"no usable NVIDIA GPU: cuInit answers {status}")
    count = ctypes.c_int()
    if cuda.cuDeviceGetCount(ctypes.byref(count)) != 0 or count.value == 0:
        raise SkippedError("no NVIDIA GPU")
    device = ctypes.c_int()
    name = ctypes.create_string_buffer(256)
    version = [ctypes.c_int(), ctypes.c_int()]
    calls = [
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuDeviceGetName(name, len(name), device),
        # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
        cuda.cuDeviceGetAttribute(ctypes.byref(version[0]), 75, device),
        cuda.cuDeviceGetAttribute(ctypes.byref(version[1]), 76, device),
    ]
    if any(calls):
        raise SkippedError(f"the NVIDIA GPU does not say what it is: {calls}")
    gpu = Gpu(name.value.decode(errors="replace"), version[0].value, version[1].value)
    if gpu.major < 8:
        raise SkippedError(
            f"{gpu.name} is of compute capability {gpu.major}.{gpu.minor}; the kernel needs 8.0"
        )
    return gpu


def run(program: Path, command: str, cases: str = "") -> str:
    """What the test program prints; what it says of errors goes to standard error."""
    process = subprocess.run([program, command], input=cases, capture_output=True, text=True, check=False)
    if process.returncode == NO_USABLE_GPU:
        raise SkippedError(f"CUDA cannot use the GPU: {process.stderr.strip()}")
    sys.stderr.write(process.stderr)
    if process.returncode != 0:
        raise SystemExit(f"{process.stdout}the kernel's test program failed with {process.returncode}")
    return process.stdout


def time_cases(program: Path, cases: list[Case]) -> list[tuple[float, float]]:
    """Microseconds of the kernel and of the copy, by case."""
    lines = run(program, "time", "".join(f"{case.line}\n" for case in cases)).splitlines()
    pairs = [line.split() for line in lines]
    return [(float(kernel), float(copy)) for kernel, copy in pairs]


def install_xgrammar() -> Path:
    """The Python of an environment with xgrammar."""
    folder = ROOT / "target" / "xgrammar"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, *XGRAMMAR_PACKAGES], check=True)
    return python


def time_xgrammar(cases: list[Case], python: Path | None) -> dict[Case, float]:
    """Microseconds of xgrammar's kernel, which only masks; nothing if it cannot be installed or fails."""
    cases = [case for case in cases if case.work == "mask"]
    try:
        python = python or install_xgrammar()
        lines = subprocess.run(
            [python, XGRAMMAR_BENCH],
            input="".join(f"{case.dtype} {case.vocab} {case.batch}\n" for case in cases),
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        ).stdout.splitlines()
    except subprocess.CalledProcessError as error:
        print(f"without xgrammar: {error}", file=sys.stderr)
        return {}
    return dict(zip(cases, map(float, lines), strict=True))


def table(
    cases: list[Case], times: list[tuple[float, float]], xgrammar: dict[Case, float]
) -> Iterator[list[str]]:
    """The rows, in the order of the cases."""
    for case, (kernel, copy) in zip(cases, times, strict=True):
        peer = xgrammar.get(case)
        yield [
            f"{case.dtype} {case.vocab} x {case.batch}",
            case.work,
            f"{kernel:.1f}",
            f"{case.gigabytes_per_s(kernel):.0f}",
            f"{copy:.1f}",
            f"{case.gigabytes_per_s(copy):.0f}",
            f"{copy / kernel:.0%}" + ("" if copy / kernel >= GOAL else " *"),
            "-" if peer is None else f"{peer:.1f}",
        ]


def time_steps(program: Path) -> Iterator[list[str]]:
    """The rows of the post-processor's table."""
    shapes = [(dtype, vocab, batch) for dtype in SIZES for vocab in VOCABULARIES for batch in BATCHES]
    lines = run(program, "time", "".join(f"{dtype} {vocab} {batch}\n" for dtype, vocab, batch in shapes))
    for (dtype, vocab, batch), line in zip(shapes, lines.splitlines(), strict=True):
        yield [f"{dtype} {vocab} x {batch}", *line.split()]


def measure(with_xgrammar: bool, xgrammar_python: Path | None) -> None:
    """Builds, checks, times and prints."""
    gpu = find_gpu()
    folder = ROOT / "target" / f"gpu_tests-sm_{gpu.architecture}"
    subprocess.run([CHECK_CUDA, "--gpu-tests", folder, gpu.architecture], check=True)
    kernel, post_processor = folder / "mask_kernel_gpu", folder / "post_processor_gpu"
    print(f"{gpu.name}, sm_{gpu.architecture}")
    print("kernel against host implementation:", run(kernel, "check").strip())
    print("post-processor, far ahead of the device:", run(post_processor, "check").strip())
    print("post-processor whose device is lost:", run(post_processor, "lost").strip())
    print()
    cases = [
        Case(dtype, vocab, batch, work)
        for work in WORK
        for dtype in SIZES
        for vocab in VOCABULARIES
        for batch in BATCHES
    ]
    times = time_cases(kernel, cases)
    peer = time_xgrammar(cases, xgrammar_python) if with_xgrammar else {}
    header = ["logits", "work", "us", "GB/s", "copy us", "GB/s", "of copy", "xgrammar us"]
    print_table(header, list(table(cases, times, peer)))
    missed = sum(copy / kernel < GOAL for kernel, copy in times)
    print(f"* below the goal of {GOAL:.0%} of the copy's bandwidth: {missed} of {len(cases)}")
    print("\nA step whose masks are all new, its masks copied to the device as well:")
    print_table(["logits", "host us", "device us"], list(time_steps(post_processor)))


def main() -> int:
    """Exit status 0 also if there is nothing to measure on; 1 if the kernel is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--xgrammar",
        nargs="?",
        type=Path,
        const=None,
        default=False,
        metavar="PYTHON",
        help="also time xgrammar's kernel: with a Python that has torch and xgrammar, or installs them",
    )
    arguments = parser.parse_args()
    try:
        measure(arguments.xgrammar is not False, arguments.xgrammar or None)
    except SkippedError as reason:
        print(f"SKIPPED: {reason}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
