"""Several models in one process: which there are, and what each is configured with."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .arguments import Arguments
from .engine import gguf_models, holds_model, model_name
from .errors import ConfigError
from .files import read_config_file
from .models import OF_A_MODEL, ModelEntry
from .settings import Settings, load_config, load_settings, log_level, with_key_file

CONFIG_FILE = "llgtrt.json5"


@dataclass(frozen=True)
class Repository:
    """The models of a server of several.

    Attributes:
        shared: what holds for the whole server.
        arguments: what the command line and the environment say.
        entries: the models that the configuration lists.
        folder: the folder whose models are served.
    """

    shared: Settings
    arguments: Arguments
    entries: tuple[ModelEntry, ...]
    folder: Path | None

    def known(self) -> dict[str, ModelEntry]:
        """The models by their first names. Reads the folder, to which models may have come.

        Raises:
            ConfigError: the folder cannot be read, or two models have the same name.
        """
        known: dict[str, ModelEntry] = {}
        for entry in (*self.entries, *_models_in(self.folder)):
            if entry.first_name in known:
                raise ConfigError(f"two models are called {entry.first_name}")
            known[entry.first_name] = entry
        return known

    def at_start(self) -> list[ModelEntry]:
        """The models that are loaded at the start.

        Raises:
            ConfigError: --load-model names none of them; or as :meth:`known`.
        """
        known = self.known()
        for name in self.arguments.load_model:
            if name not in known:
                raise ConfigError(
                    f"--load-model: there is no model {name}, only {', '.join(known) or 'none'}"
                )
        if self.arguments.load_model:
            return [known[name] for name in dict.fromkeys(self.arguments.load_model)]
        return [entry for entry in known.values() if entry.load]

    def settings(self, entry: ModelEntry) -> Settings:
        """The settings of a model.

        Raises:
            ConfigError: something is missing or wrong.
        """
        common = self.arguments
        engine = None if entry.engine is None else Path(entry.engine)
        files = common.config
        if self.folder is not None:
            files = (*_config_files(self.folder), *files)
            if engine is not None and engine.is_dir():
                own_files = _config_files(engine)
                for file in own_files:
                    check_model_options(read_config_file(file), f"{file}: ")
                files = (*files, *own_files)
        arguments = replace(
            common,
            engine=engine,
            config=files,
            backend=entry.backend if entry.backend != "auto" else common.backend,
            tokenizer=common.tokenizer if entry.tokenizer_dir is None else Path(entry.tokenizer_dir),
            lora_root=common.lora_root if entry.lora_root is None else Path(entry.lora_root),
        )
        own = entry.own_options()
        own["server"] = {**own.get("server", {}), "served_model_name": entry.name}
        try:
            return load_settings(arguments, own)
        except ConfigError as error:
            raise ConfigError(f"model {entry.first_name}: {error}") from error


def find_repository(arguments: Arguments) -> Repository | None:
    """The models of a server of several; ``None`` for one of a single model.

    Raises:
        ConfigError: a file is wrong, or what is asked for does not go together.
    """
    folder = arguments.models_dir
    if folder is None and not arguments.config:
        _check_single(arguments)
        return None
    common = replace(arguments, engine=None)
    if folder is not None:
        if not folder.is_dir():
            raise ConfigError(f"{folder}: no such folder (--models-dir)")
        folder = folder.absolute()
        common = replace(common, config=(*_config_files(folder), *arguments.config))
    config, files = load_config(common, with_tokenizer=False)
    if folder is None and not config.models:
        _check_single(arguments)
        return None
    given = {"ENGINE": arguments.engine, "--model-py": arguments.model_py}
    for name, value in given.items():
        if value is not None:
            raise ConfigError(f"{name} {value} is for a server of one model, but several are configured")
    if config.server.served_model_name is not None:
        raise ConfigError(
            "server.served_model_name is for a server of one model: give each of `models` a name"
        )
    for index, entry in enumerate(config.models):
        check_model_options(entry.own_options(), f"models[{index}].")
    shared = Settings(
        config=with_key_file(config),
        config_files=files,
        log_level=log_level(arguments, config.server.log_level),
    )
    return Repository(shared, replace(arguments, engine=None), tuple(config.models), folder)


def check_model_options(content: dict[str, Any], where: str) -> None:
    """Whether one of several models may have these options of its own.

    Raises:
        ConfigError: one of them holds for the whole server; the message begins with ``where``.
    """
    others = [f"server.{name}" for name in content.get("server", {}) if name not in OF_A_MODEL]
    others += [name for name in ("metrics", "models") if name in content]
    if others:
        raise ConfigError(f"{where}{others[0]}: holds for the whole server, not for one of several models")


def _check_single(arguments: Arguments) -> None:
    if arguments.load_model:
        raise ConfigError("--load-model is for a server of several models (--models-dir, or `models`)")


def _config_files(folder: Path) -> tuple[Path, ...]:
    file = folder / CONFIG_FILE
    return (file,) if file.is_file() and file.stat().st_size else ()


def _models_in(folder: Path | None) -> Iterator[ModelEntry]:
    if folder is None:
        return
    try:
        files = gguf_models(folder)
        folders = sorted(path for path in folder.iterdir() if path.is_dir() and holds_model(path))
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror or error}") from error
    for path in (*files, *folders):
        yield ModelEntry(name=model_name(path) if path.is_file() else path.name, engine=str(path))
