"""A Truss: a folder with a config.yaml and a model.py, and what its config.yaml means here."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from .arguments import Arguments
from .engine import Backend, demo_model, holds_model
from .errors import ConfigError
from .files import read_text
from .section import Section

logger = logging.getLogger("llgtrt")

CONFIG_FILE = "config.yaml"
DEFAULTS: dict[str, Any] = {
    "model_module_dir": "model",
    "model_class_filename": "model.py",
    "model_class_name": "Model",
    "bundled_packages_dir": "packages",
    "external_package_dirs": [],
    "environment_variables": {},
    "requirements": [],
    "runtime": {},
    "secrets": {},
}
"""Keys of config.yaml that are read here, as they are where the file does not say."""

_TYPES = {"runtime": dict, "secrets": dict, "environment_variables": dict, "external_package_dirs": list}
_TEXTS = ("model_module_dir", "model_class_filename", "model_class_name", "bundled_packages_dir")
_NOTED = ("requirements", "system_packages", "model_cache", "build_commands", "weights")
"""Keys of config.yaml outside of ``trt_llm`` that prepare an image: named if they ask for something."""


class Truss(Section):
    """A model.py and what it is given."""

    folder: Path = Field(description="The Truss, absolute; the working folder of its code.")
    file: Path = Field(description="The file with the class, absolute.")
    class_name: str = Field(default="Model", description="Name of the class.")
    config: dict[str, Any] = Field(default_factory=dict, description="config.yaml with its defaults.")

    @property
    def predict_concurrency(self) -> int:
        """Calls of ``predict`` at the same time."""
        return int(self.config["runtime"].get("predict_concurrency", 1))


def is_truss(path: Path | None) -> bool:
    """Whether this is the folder of a Truss."""
    return path is not None and (path / CONFIG_FILE).is_file()


def read_truss(path: Path) -> Truss:
    """The Truss at a path: its folder, a folder with model.py, or that file itself.

    Raises:
        ConfigError: there is none, or its config.yaml cannot be used.
    """
    if not path.exists():
        raise ConfigError(f"{path}: no such file or folder (--model-py)")
    path = path.absolute()
    if path.is_file():
        config = _with_defaults({"model_module_dir": ".", "model_class_filename": path.name})
        return Truss(folder=path.parent, file=path, config=config)
    if is_truss(path):
        config = _with_defaults(_read(path / CONFIG_FILE))
        _check(config, path / CONFIG_FILE)
    elif (path / "model.py").is_file():
        config = _with_defaults({"model_module_dir": "."})
    else:
        config = _with_defaults({})
    file = path / config["model_module_dir"] / config["model_class_filename"]
    if not file.is_file():
        raise ConfigError(f"{file}: no such file; {path} is no Truss")
    return Truss(folder=path, file=file, class_name=config["model_class_name"], config=config)


def find_engine(arguments: Arguments) -> Arguments:
    """The arguments with a model, where they name only a Truss: the one that lies in it, else the demo model.

    Raises:
        ConfigError: the Truss cannot be read, or there is no model.
    """
    if arguments.model_py is None or arguments.engine is not None or not arguments.model_py.is_dir():
        return arguments
    truss = read_truss(arguments.model_py)
    wanted = _checkpoint(truss.config)
    places = [truss.folder, truss.folder / "data"]
    if wanted is not None:
        places.insert(0, truss.folder / wanted)
    for place in places:
        if holds_model(place):
            return replace(arguments, engine=place)
    if arguments.backend != "sim" and wanted is not None:
        if demo_model() is None:
            raise ConfigError(
                f"{truss.folder / CONFIG_FILE}: the checkpoint {wanted} is not fetched here: "
                "name a model with --engine"
            )
        logger.warning(
            "the checkpoint %s of the Truss is not fetched here; serving the demo model (--engine names one)",
            wanted,
        )
    return arguments


def _checkpoint(config: dict[str, Any]) -> str | None:
    repository = _object(_object(config.get("trt_llm")).get("build")).get("checkpoint_repository")
    repo = _object(repository).get("repo")
    return repo if isinstance(repo, str) else None


def _read(file: Path) -> dict[str, Any]:
    try:
        import yaml
    except ImportError as error:
        raise ConfigError(f"{file} is YAML: pip install 'llgtrt[truss]'") from error
    try:
        content = yaml.safe_load(read_text(file))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        place = "" if mark is None else f":{mark.line + 1}:{mark.column + 1}"
        raise ConfigError(f"{file}{place}: {error.problem or error}") from error
    except yaml.YAMLError as error:
        raise ConfigError(f"{file}: {error}") from error
    if not isinstance(content, dict | None):
        raise ConfigError(f"{file}: expected an object")
    return content or {}


def _with_defaults(content: dict[str, Any]) -> dict[str, Any]:
    given = {name: value for name, value in content.items() if value is not None}
    return {**{name: _copy(value) for name, value in DEFAULTS.items()}, **given}


def _copy(value: Any) -> Any:
    return value.copy() if isinstance(value, dict | list) else value


def _check(config: dict[str, Any], file: Path) -> None:
    for name, kind in _TYPES.items():
        if not isinstance(config[name], kind):
            raise ConfigError(f"{file}: {name}: expected {'an object' if kind is dict else 'a list'}")
    for name in _TEXTS:
        if not isinstance(config[name], str):
            raise ConfigError(f"{file}: {name}: expected a text")
    concurrency = config["runtime"].get("predict_concurrency", 1)
    if isinstance(concurrency, bool) or not isinstance(concurrency, int) or concurrency < 1:
        raise ConfigError(f"{file}: runtime.predict_concurrency: should be an integer above 0")


Target = tuple[str, str]

_BUILD: dict[str, Target] = {
    "max_seq_len": ("runtime", "max_seq_len"),
    "max_batch_size": ("runtime", "max_batch_size"),
    "max_num_tokens": ("runtime", "max_num_tokens"),
    "max_beam_width": ("trtllm", "max_beam_width"),
}
_RUNTIME: dict[str, Target] = {
    "max_seq_len": ("runtime", "max_seq_len"),
    "max_batch_size": ("runtime", "max_batch_size"),
    "max_num_tokens": ("runtime", "max_num_tokens"),
    "kv_cache_free_gpu_mem_fraction": ("runtime", "kv_cache_free_gpu_mem_fraction"),
    "kv_cache_host_memory_bytes": ("runtime", "kv_cache_host_memory_megabytes"),
    "enable_chunked_context": ("runtime", "enable_chunked_context"),
    "enable_chunked_prefill": ("runtime", "enable_chunked_context"),
    "batch_scheduler_policy": ("runtime", "guaranteed_no_evict"),
    "request_default_max_tokens": ("server", "default_max_tokens"),
    "served_model_name": ("server", "served_model_name"),
}
_POLICIES = {"guaranteed_no_evict": True, "max_utilization": False}
_GPU_SIZES = ("max_batch_size", "max_num_tokens")
"""Sizes that were chosen for a GPU: the embedded engine reserves a context for each sequence of a batch."""
_LOOKAHEAD = ("lookahead_windows_size", "lookahead_ngram_size", "lookahead_verification_set_size")


def truss_options(truss: Truss, backend: Backend) -> tuple[dict[str, Any], list[str]]:
    """What the ``trt_llm`` section sets in our configuration, and the keys of config.yaml that set nothing.

    Raises:
        ConfigError: a value cannot be read.
    """
    where = f"{truss.folder / CONFIG_FILE}: trt_llm"
    section = truss.config.get("trt_llm")
    options: dict[str, Any] = {}
    unused = [name for name in _NOTED if truss.config.get(name)]
    if section is None:
        return options, unused
    if not isinstance(section, dict):
        raise ConfigError(f"{where}: expected an object")
    for name, value in section.items():
        known = {"build": _BUILD, "runtime": _RUNTIME}.get(name)
        if known is None:
            if value is not None and (name, value) != ("inference_stack", "v1"):
                unused.append(f"trt_llm.{name}")
            continue
        if not isinstance(value, dict | None):
            raise ConfigError(f"{where}.{name}: expected an object")
        for key, entry in (value or {}).items():
            path = f"{name}.{key}"
            if entry is None or _is_understood(name, key, entry):
                continue
            target = known.get(key)
            if target is not None and not (backend == "llamacpp" and key in _GPU_SIZES):
                options.setdefault(target[0], {})[target[1]] = _value(key, entry, f"{where}.{path}")
            elif (name, key) == ("build", "speculator") and (numbers := _lookahead(entry)) is not None:
                options.setdefault("trtllm", {}).update(decoding_mode="lookahead", lookahead=numbers)
            else:
                unused.append(f"trt_llm.{path}")
    return options, unused


def _is_understood(section: str, key: str, value: Any) -> bool:
    """Whether a value asks for what is so anyway."""
    return (section, key, value) == ("build", "base_model", "decoder") or (
        (section, key) == ("build", "checkpoint_repository")
    )


def _value(key: str, value: Any, where: str) -> Any:
    special: Callable[[Any], Any] | None = {
        "batch_scheduler_policy": _POLICIES.__getitem__,
        # Never less than what was asked for.
        "kv_cache_host_memory_bytes": lambda size: -(-int(size) // 2**20),
    }.get(key)
    if special is None:
        return value
    try:
        return special(value)
    except (KeyError, TypeError, ValueError):
        raise ConfigError(f"{where}: cannot read {str(value)[:80]!r}") from None


def _lookahead(speculator: Any) -> list[int] | None:
    one = _object(speculator)
    numbers = [one.get(name) for name in _LOOKAHEAD]
    if one.get("speculative_decoding_mode") != "LOOKAHEAD_DECODING" or None in numbers:
        return None
    return numbers  # type: ignore[return-value]  # checked with the rest of the configuration


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}
