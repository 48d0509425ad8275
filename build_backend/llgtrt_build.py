"""PEP 517 build backend: maturin, plus what llama.cpp's build needs and a plain machine lacks.

``llama-cpp-sys-2`` runs bindgen, which loads libclang, and CMake. Both exist as wheels, so this
backend asks for the ``libclang`` wheel (and for ``cmake`` where the system has none),
points the build at them and hands over to maturin. A user who sets ``LIBCLANG_PATH`` keeps it.

The Makefile and people who call cargo themselves use the same logic:

    eval "$(python build_backend/llgtrt_build.py --env)"
"""

from __future__ import annotations

import os
import platform
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

Settings = Mapping[str, Any] | None


def missing_tools() -> list[str]:
    """Wheels that stand in for build tools this machine lacks."""
    wheels = []
    if "LIBCLANG_PATH" not in os.environ:
        wheels.append("libclang>=18")
    if not shutil.which("cmake") and "CMAKE" not in os.environ:
        wheels.append("cmake>=3.20")
    return wheels


def build_environment() -> dict[str, str]:
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
    # Kernels of ARM machines have pages of up to 64 KB; jemalloc takes those of the machine that builds it.
    if platform.machine() == "aarch64" and "JEMALLOC_SYS_WITH_LG_PAGE" not in os.environ:
        env["JEMALLOC_SYS_WITH_LG_PAGE"] = "16"
    return env


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

    return [*maturin.get_requires_for_build_wheel(config_settings), *missing_tools()]


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

    os.environ.update(build_environment())
    return str(maturin.build_wheel(wheel_directory, config_settings, metadata_directory))


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Maturin's, with the build environment set."""
    import maturin

    os.environ.update(build_environment())
    return str(maturin.build_editable(wheel_directory, config_settings, metadata_directory))


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Maturin's, unchanged."""
    import maturin

    return str(maturin.build_sdist(sdist_directory, config_settings))


if __name__ == "__main__":
    if sys.argv[1:] != ["--env"]:
        sys.exit("usage: llgtrt_build.py --env   (prints shell exports for cargo)")
    for key, value in build_environment().items():
        print(f"export {key}={shlex.quote(value)}")
