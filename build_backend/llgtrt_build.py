"""PEP 517 build backend: maturin, plus what llama.cpp's build needs and a plain machine lacks.

``llama-cpp-sys-2`` runs bindgen, which loads libclang, and CMake. Both exist as wheels, so this
backend asks for the ``libclang`` wheel (and for ``cmake`` where the system has none),
points the build at them and hands over to maturin. A user who sets ``LIBCLANG_PATH`` keeps it.
With the feature ``cuda`` and no CUDA toolkit it asks for NVIDIA's wheels as well: :mod:`llgtrt_cuda`.

The Makefile and people who call cargo themselves use the same logic:

    eval "$(python build_backend/llgtrt_build.py --env)"
    eval "$(python build_backend/llgtrt_build.py --env --features cuda)"
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Collection, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import llgtrt_cuda

ROOT = Path(__file__).resolve().parent.parent

Settings = Mapping[str, Any] | None


def missing_tools(features: Collection[str] = ()) -> list[str]:
    """Wheels that stand in for build tools this machine lacks."""
    wheels = []
    if "LIBCLANG_PATH" not in os.environ:
        wheels.append("libclang>=18")
    if not shutil.which("cmake") and "CMAKE" not in os.environ:
        wheels.append("cmake>=3.20")
    if "cuda" in features and llgtrt_cuda.is_wanted():
        wheels += llgtrt_cuda.wheels()
    return wheels


def build_environment(features: Collection[str] = ()) -> dict[str, str]:
    """Environment variables to set for cargo; empty where the machine and the user provide everything."""
    env: dict[str, str] = {}
    if "LIBCLANG_PATH" not in os.environ and (native := _package_folder("clang", "native")):
        env["LIBCLANG_PATH"] = str(_stable_link(native))
        # The wheel brings the library without clang's own headers (stddef.h): use the C compiler's.
        if "BINDGEN_EXTRA_CLANG_ARGS" not in os.environ and (include := _compiler_include()):
            env["BINDGEN_EXTRA_CLANG_ARGS"] = f"-I{include}"
    # pip has the scripts of build requirements on PATH; a virtual environment that is not active has not.
    scripts = sysconfig.get_path("scripts")
    if not shutil.which("cmake") and shutil.which("cmake", path=scripts):
        env["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), scripts])
    if "cuda" in features:
        # llama-cpp-sys-2 tells the compilers of C and C++ that this becomes a shared library, but not nvcc.
        env["CMAKE_POSITION_INDEPENDENT_CODE"] = "ON"
    if (
        "cuda" in features
        and llgtrt_cuda.is_wanted()
        and (installed := _package_folder("nvidia", "cu13"))
        # Without the compiler they are there for something else, such as PyTorch.
        and (installed / "bin" / "nvcc").is_file()
    ):
        env |= llgtrt_cuda.make_toolkit(installed)
        path = env.get("PATH", os.environ.get("PATH", os.defpath))
        env["PATH"] = os.pathsep.join([str(llgtrt_cuda.TOOLKIT / "bin"), path])
    # Kernels of ARM machines have pages of up to 64 KB; jemalloc takes those of the machine that builds it.
    if platform.machine() == "aarch64" and "JEMALLOC_SYS_WITH_LG_PAGE" not in os.environ:
        env["JEMALLOC_SYS_WITH_LG_PAGE"] = "16"
    return env


def _features(arguments: list[str]) -> set[str]:
    """The features that arguments of cargo or maturin ask for."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("-F", "--features", action="append", default=[])
    known, _ = parser.parse_known_args(arguments)
    names = re.split(r"[\s,]+", ",".join(known.features))
    return {name.removeprefix("llgtrt-py/") for name in names if name}


def _asked_features(config_settings: Settings) -> set[str]:
    """The features that pip's ``--config-settings build-args=...`` asks for."""
    import maturin

    return _features(maturin.get_maturin_pep517_args(config_settings))


def _package_folder(package: str, *parts: str) -> Path | None:
    """A folder inside an installed package, without importing it."""
    spec = find_spec(package)
    for location in (spec.submodule_search_locations or []) if spec else []:
        folder = Path(location, *parts)
        if folder.is_dir():
            return folder
    return None


def _stable_link(folder: Path) -> Path:
    """A link to ``folder`` at a path that stays the same from build to build.

    pip puts build requirements into a new temporary folder every time; cargo would take the changed
    path for a reason to compile llama.cpp again.
    """
    link = ROOT / "target" / "libclang"
    try:
        if link.is_symlink() and link.readlink() == folder:
            return link
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(folder, target_is_directory=True)
    except OSError:
        return folder
    return link


def _compiler_include() -> str | None:
    """The folder with the C compiler's own headers."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    try:
        answer = subprocess.run(
            [*compiler, "-print-file-name=include"], capture_output=True, text=True, check=True
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None
    return answer if Path(answer).is_absolute() else None


# --- PEP 517 and PEP 660 hooks --------------------------------------------------------------------


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What maturin asks for, and the missing tools."""
    import maturin

    tools = missing_tools(_asked_features(config_settings))
    return [*maturin.get_requires_for_build_wheel(config_settings), *tools]


get_requires_for_build_editable = get_requires_for_build_wheel


def get_requires_for_build_sdist(config_settings: Settings = None) -> list[str]:
    """What maturin asks for: an sdist compiles nothing."""
    import maturin

    return list(maturin.get_requires_for_build_sdist(config_settings))


def prepare_metadata_for_build_wheel(metadata_directory: str, config_settings: Settings = None) -> str:
    """Maturin's, unchanged."""
    import maturin

    return str(maturin.prepare_metadata_for_build_wheel(metadata_directory, config_settings))


prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Maturin's, with the build environment set."""
    import maturin

    os.environ.update(build_environment(_asked_features(config_settings)))
    return str(maturin.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Maturin's, with the build environment set."""
    import maturin

    os.environ.update(build_environment(_asked_features(config_settings)))
    return str(maturin.build_editable(wheel_directory, config_settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Maturin's, unchanged."""
    import maturin

    return str(maturin.build_sdist(sdist_directory, config_settings))


def main() -> None:
    """Prints what the Makefile and people who call cargo themselves need."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--env", action="store_true", help="print shell exports for cargo")
    action.add_argument("--missing", action="store_true", help="print the wheels to install for the build")
    parser.add_argument("--features", default="", help="of cargo, such as cuda")
    options = parser.parse_args()
    features = _features(["--features", options.features])
    if options.missing:
        print(*missing_tools(features), sep="\n")
        return
    for key, value in build_environment(features).items():
        print(f"export {key}={shlex.quote(value)}")


if __name__ == "__main__":
    main()
