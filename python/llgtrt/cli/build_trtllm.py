"""``llgtrt build-trtllm``: builds the plugin against the TensorRT-LLM that is installed here."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

import click

from llgtrt.config import ConfigError
from llgtrt.config.trtllm import PLUGIN_NAME, cache_folder

NAME = "build-trtllm"

EXECUTOR_HEADER = Path("tensorrt_llm/executor/executor.h")
CONTAINER_ROOT = Path("/app/tensorrt_llm")
ADVICE = (
    "Use the container nvcr.io/nvidia/tensorrt-llm/release:1.2.1, or install TensorRT-LLM 1.2 and name its "
    "folder with --trtllm-root"
)

_HELP = """Build the plugin for TensorRT-LLM engines, once per machine.

Needs TensorRT-LLM 1.2 with its headers, CUDA's compiler (nvcc), a C++ compiler and CMake. The plugin is
put where `llgtrt serve` finds it.
"""


@dataclass(frozen=True, slots=True)
class Installation:
    """An installed TensorRT-LLM.

    Attributes:
        include: the folder that holds ``tensorrt_llm/executor/executor.h``.
        libraries: the folder that holds ``libtensorrt_llm.so``.
    """

    include: Path
    libraries: Path


def command() -> click.Command:
    """The command with its options."""
    path = click.Path(path_type=Path)
    return click.Command(
        NAME,
        callback=_run,
        params=[
            click.Option(
                ["--trtllm-root"],
                type=path,
                metavar="DIR",
                help="Folder of TensorRT-LLM.  [default: /app/tensorrt_llm, the Python package]",
            ),
            click.Option(
                ["--output"],
                type=path,
                metavar="DIR",
                help="Folder for the plugin.  [default: a cache folder]",
            ),
            click.Option(
                ["--architectures"],
                metavar="LIST",
                help="GPUs to compile for, such as 90;100.  [default: 80;86;89;90;100;120]",
            ),
        ],
        help=_HELP,
    )


def find_installation(root: Path | None) -> Installation:
    """TensorRT-LLM under ``root``, or where it usually is.

    Raises:
        ConfigError: there is none, or one without the C++ executor.
    """
    roots = [root] if root is not None else _usual_roots()
    libraries = next((found for one in roots if (found := _libraries(one))), None)
    include = next((found for one in roots if (found := _include(one))), None)
    if include is not None and libraries is not None:
        return Installation(include, libraries)
    where = ", ".join(map(str, roots)) or "the usual places"
    if libraries is None:
        raise ConfigError(f"TensorRT-LLM was not found in {where}. {ADVICE}")
    raise ConfigError(
        f"the TensorRT-LLM in {libraries} comes without its C++ executor ({EXECUTOR_HEADER}): versions from "
        f"1.3 on do not have it, and the Python package alone lacks the headers. {ADVICE}"
    )


def build(installation: Installation, output: Path, architectures: str | None) -> Path:
    """Builds the plugin and gives its path. Says what it runs.

    Raises:
        ConfigError: CMake is missing or fails.
    """
    from llgtrt.app.process import trtllm_plugin_sources

    cmake = _cmake()
    sources, objects = output / "source", output / "build"
    shutil.rmtree(sources, ignore_errors=True)
    for name, text in trtllm_plugin_sources():
        file = sources / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text, encoding="utf-8")
    configure = [
        cmake,
        "-S",
        str(sources),
        "-B",
        str(objects),
        "-DCMAKE_BUILD_TYPE=Release",
        f"-DTRTLLM_INCLUDE_DIR={installation.include}",
        f"-DTRTLLM_LIB_DIR={installation.libraries}",
    ]
    if architectures is not None:
        configure.append(f"-DCMAKE_CUDA_ARCHITECTURES={architectures}")
    _call(configure)
    _call([cmake, "--build", str(objects), "--parallel", str(os.cpu_count() or 1)])
    built = objects / PLUGIN_NAME
    if not built.is_file():
        raise ConfigError(f"the build ended without {built}")
    plugin = output / PLUGIN_NAME
    # In one step: a server that is starting finds the old plugin or the new one.
    staged = output / f".{PLUGIN_NAME}"
    shutil.copy2(built, staged)
    staged.replace(plugin)
    return plugin


def _run(trtllm_root: Path | None, output: Path | None, architectures: str | None) -> int:
    installation = find_installation(trtllm_root)
    _say(f"TensorRT-LLM's headers: {installation.include}")
    _say(f"TensorRT-LLM's libraries: {installation.libraries}")
    folder = (output or cache_folder()).absolute()
    plugin = build(installation, folder, architectures)
    _say(f"The plugin is ready: {plugin}")
    if output is not None:
        _say(f'Use it with LLGTRT_TRTLLM_PLUGIN={plugin}, or with trtllm: {{plugin_path: "{plugin}"}}')
    return 0


def _usual_roots() -> list[Path]:
    roots = [Path(os.environ["TRTLLM_ROOT"])] if os.environ.get("TRTLLM_ROOT") else []
    roots.append(CONTAINER_ROOT)
    # Found without being imported: importing it takes a GPU.
    spec = importlib.util.find_spec("tensorrt_llm")
    roots += [Path(folder) for folder in (spec.submodule_search_locations or () if spec else ())]
    return [root for root in roots if root.is_dir()]


def _include(root: Path) -> Path | None:
    folders = (root / "include", root / "cpp" / "include", root)
    return next((folder for folder in folders if (folder / EXECUTOR_HEADER).is_file()), None)


def _libraries(root: Path) -> Path | None:
    folders = (root / "lib", root / "libs", root)
    return next((folder for folder in folders if (folder / "libtensorrt_llm.so").exists()), None)


def _cmake() -> str:
    if named := os.environ.get("CMAKE"):
        return named
    scripts = sysconfig.get_path("scripts")
    found = shutil.which("cmake") or shutil.which("cmake", path=scripts)
    if found is None:
        raise ConfigError(
            "CMake is missing: install it with your distribution's packages or `pip install cmake`"
        )
    return found


def _call(arguments: list[str]) -> None:
    _say("+ " + " ".join(arguments))
    try:
        subprocess.run(arguments, check=True, stdout=sys.stderr)
    except OSError as error:
        raise ConfigError(f"{arguments[0]}: {error.strerror or error}") from error
    except subprocess.CalledProcessError as error:
        raise ConfigError(f"the build failed (exit code {error.returncode}); the reason is above") from error


def _say(text: str) -> None:
    click.echo(text, err=True)
