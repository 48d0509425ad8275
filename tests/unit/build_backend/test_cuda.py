"""``build_backend``: NVIDIA's wheels where a CUDA build is asked for and the machine has no toolkit."""

from __future__ import annotations

import ctypes
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "build_backend"))
import llgtrt_build
import llgtrt_cuda

CUBLAS = "nvidia-cublas==13.1.0.3"


@pytest.fixture(autouse=True)
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Linux on x86 with a C compiler, and nothing of CUDA."""
    for name in (*llgtrt_cuda.VARIABLES, "MATURIN_PEP517_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(platform, "machine", lambda: "x86_64")
    monkeypatch.setattr(llgtrt_cuda, "USUAL_NVCC", tmp_path / "usual" / "nvcc")
    monkeypatch.setattr(llgtrt_cuda, "TOOLKIT", tmp_path / "toolkit")
    which = shutil.which

    def which_without_cuda(name: str, path: str | None = None) -> str | None:
        found = which(name, path=path)
        return found if name != "nvcc" or str(found).startswith(str(tmp_path)) else None

    monkeypatch.setattr(shutil, "which", which_without_cuda)


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What the wheels unpack, as far as their names matter; importable."""
    site = tmp_path / "site-packages"
    folder = site / "nvidia" / "cu13"
    files = {
        "bin/nvcc": "",
        "bin/crt/link.stub": "",
        "include/cuda.h": "CUresult CUDAAPI cuInit(unsigned int flags);\n#define cuMemAlloc cuMemAlloc_v2\n",
        "lib/libcublas.so.13": "",
        "lib/libcublasLt.so.13": "",
        "lib/libcudart.so.13": "",
        "lib/libcudart_static.a": "",
        "nvvm/bin/cicc": "",
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    monkeypatch.syspath_prepend(site)
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    return folder


def environment(features: set[str]) -> dict[str, str]:
    """What of the build's environment has to do with CUDA."""
    names = ("CUDA_PATH", "CUDA_LIBRARY_PATH", "CUDAToolkit_ROOT", "CUDACXX", "LLGTRT_CUBLAS")
    return {name: value for name, value in llgtrt_build.build_environment(features).items() if name in names}


@pytest.mark.parametrize(
    "build_args",
    [
        "--features cuda",
        "--features=vulkan,cuda",
        "--features 'vulkan cuda' --strip",
        "-F cuda",
        "-Fcuda",
        "--features vulkan --features llgtrt-py/cuda",
        ["--features", "cuda"],
        ["--strip", "--features=cuda"],
    ],
)
@pytest.mark.parametrize("of", ["wheel", "editable"])
def test_a_cuda_build_asks_for_the_wheels(build_args: str | list[str], of: str) -> None:
    requirements = getattr(llgtrt_build, f"get_requires_for_build_{of}")({"build-args": build_args})
    assert CUBLAS in requirements
    assert sum(requirement.startswith("nvidia-") for requirement in requirements) == 6


@pytest.mark.parametrize(
    "settings", [None, {}, {"build-args": "--features vulkan"}, {"build-args": "--profile cuda"}]
)
def test_other_builds_do_not(settings: dict[str, str] | None) -> None:
    requirements = llgtrt_build.get_requires_for_build_wheel(settings)
    assert not [requirement for requirement in requirements if "nvidia" in requirement]


def test_every_requirement_is_pinned_as_the_lock_file_has_it() -> None:
    locked = llgtrt_cuda.REQUIREMENTS.with_suffix(".txt").read_text()
    for requirement in llgtrt_cuda.wheels():
        assert f"{requirement} \\\n    --hash=" in locked


@pytest.mark.parametrize("variable", llgtrt_cuda.VARIABLES)
def test_a_toolkit_that_a_variable_names_is_left_alone(
    variable: str, installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, "/opt/cuda")
    assert CUBLAS not in llgtrt_build.missing_tools({"cuda"})
    assert environment({"cuda"}) == {}


@pytest.mark.parametrize("place", ["usual", "on_path"])
def test_an_nvcc_that_is_found_is_left_alone(
    place: str, installed: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nvcc = tmp_path / place / "nvcc"
    nvcc.parent.mkdir()
    nvcc.touch(mode=0o755)
    if place == "on_path":
        monkeypatch.setenv("PATH", str(nvcc.parent), prepend=os.pathsep)
    assert CUBLAS not in llgtrt_build.missing_tools({"cuda"})
    assert environment({"cuda"}) == {}
    assert not llgtrt_cuda.TOOLKIT.exists()


@pytest.mark.parametrize(
    ("system", "machine", "wanted"),
    [
        ("linux", "aarch64", True),
        ("linux", "ppc64le", False),
        ("darwin", "arm64", False),
        ("win32", "AMD64", False),
    ],
)
def test_only_machines_that_the_wheels_are_for(
    system: str, machine: str, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", system)
    monkeypatch.setattr(platform, "machine", lambda: machine)
    assert (CUBLAS in llgtrt_build.missing_tools({"cuda"})) is wanted


def test_cargo_is_led_to_the_wheels(installed: Path) -> None:
    toolkit = llgtrt_cuda.TOOLKIT
    assert environment({"cuda"}) == {
        "CUDA_PATH": str(toolkit),
        "CUDA_LIBRARY_PATH": str(toolkit),
        "CUDAToolkit_ROOT": str(toolkit),
        "CUDACXX": str(toolkit / "bin" / "nvcc"),
        "LLGTRT_CUBLAS": str(toolkit / "lib"),
    }
    path = llgtrt_build.build_environment({"cuda"})["PATH"]
    assert path.startswith(os.pathsep.join([str(toolkit / "bin"), os.environ["PATH"]]))


def test_a_build_without_cuda_is_not(installed: Path) -> None:
    assert environment({"vulkan"}) == {}
    assert not llgtrt_cuda.TOOLKIT.exists()


def test_wheels_without_the_compiler_are_there_for_something_else(installed: Path) -> None:
    (installed / "bin" / "nvcc").unlink()
    assert environment({"cuda"}) == {}


def test_the_toolkit_has_what_cmake_and_the_linker_look_for(installed: Path) -> None:
    llgtrt_cuda.make_toolkit(installed)
    toolkit = llgtrt_cuda.TOOLKIT
    for name in (
        "bin/nvcc",
        "bin/crt/link.stub",
        "include/cuda.h",
        "nvvm/bin/cicc",
        "lib/libcudart_static.a",
    ):
        assert (toolkit / name).resolve() == installed / name
    for name in ("libcublas", "libcublasLt", "libcudart"):
        assert (toolkit / "lib64" / f"{name}.so").resolve() == installed / "lib" / f"{name}.so.13"
    for name in ("libcublas_static.a", "libcublasLt_static.a", "libculibos.a"):
        assert (toolkit / "lib" / name).read_bytes() == b"!<arch>\n"
    # nvcc asks for its parts at bin/.., the parent of the real folder.
    assert (toolkit / "bin" / ".." / "lib64").resolve() == toolkit / "lib"


def test_the_wheels_stay_as_they_are(installed: Path) -> None:
    before = sorted(installed.rglob("*"))
    llgtrt_cuda.make_toolkit(installed)
    assert sorted(installed.rglob("*")) == before


def test_what_wheels_bring_is_used(installed: Path) -> None:
    brought = ("libcublas.so", "libcublas_static.a", "stubs/libcuda.so")
    (installed / "lib" / "stubs").mkdir()
    for name in brought:
        (installed / "lib" / name).write_text("the wheel's")
    llgtrt_cuda.make_toolkit(installed)
    for name in brought:
        assert (llgtrt_cuda.TOOLKIT / "lib" / name).read_text() == "the wheel's"


def test_another_build_replaces_the_toolkit(installed: Path) -> None:
    llgtrt_cuda.make_toolkit(installed)
    moved = installed.rename(installed.with_name("elsewhere"))
    (moved / "lib" / "libcublas.so.13").unlink()
    llgtrt_cuda.make_toolkit(moved)
    lib = llgtrt_cuda.TOOLKIT / "lib"
    assert not os.path.lexists(lib / "libcublas.so")
    assert (lib / "libcudart.so").resolve() == moved / "lib" / "libcudart.so.13"


def test_what_calls_the_driver_is_linked_to_it(installed: Path, tmp_path: Path) -> None:
    """The linker's --as-needed leaves a library out that has none of the names."""
    llgtrt_cuda.make_toolkit(installed)
    stubs = llgtrt_cuda.TOOLKIT / "lib" / "stubs"
    stub = ctypes.CDLL(str(stubs / "libcuda.so"))
    assert hasattr(stub, "cuInit")
    assert hasattr(stub, "cuMemAlloc_v2")
    caller = tmp_path / "caller.so"
    subprocess.run(
        ["cc", "-shared", "-o", str(caller), "-x", "c", "-", f"-L{stubs}", "-Wl,--as-needed", "-lcuda"],
        input="void cuInit(void);\nvoid call(void) { cuInit(); }\n",
        text=True,
        check=True,
    )
    assert b"libcuda.so.1\0" in caller.read_bytes()


def run_main(
    arguments: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> str:
    monkeypatch.setattr(sys, "argv", ["llgtrt_build.py", *arguments])
    llgtrt_build.main()
    return capsys.readouterr().out


def test_the_environment_is_printed_for_a_shell(
    installed: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    line = f"export CUDACXX={llgtrt_cuda.TOOLKIT / 'bin' / 'nvcc'}\n"
    assert line in run_main(["--env", "--features", "vulkan,cuda"], monkeypatch, capsys)
    assert "CUDA" not in run_main(["--env"], monkeypatch, capsys)


def test_missing_wheels_are_printed_for_the_makefile(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert CUBLAS in run_main(["--missing", "--features", "cuda"], monkeypatch, capsys).splitlines()
    assert "nvidia" not in run_main(["--missing"], monkeypatch, capsys)
