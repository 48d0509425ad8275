"""Everything a server needs to know, from the command line, the environment and files."""

import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import Field

from llgtrt.logs import Levels

from .arguments import FLAGS, Arguments
from .assignments import assigned
from .engine import Backend, BackendChoice, ModelLocation, locate_model, model_folder
from .errors import ConfigError
from .files import read_config_file, read_text, read_tokenizer_config, validate
from .key_file import read_key_file
from .merge import merge
from .py import input_processor_file
from .root import Config
from .section import Section
from .truss import Truss, read_truss, truss_options

logger = logging.getLogger("llgtrt")

CODE_OPTIONS = ("input_processor", "hooks", "logits_processors", "engine")
"""Options of `py` that name code that is run."""


class Settings(Section):
    """The result of the command line, the environment and the files. Nothing here changes later."""

    config: Config = Field(default_factory=Config, description="The merged configuration.")
    backend: Backend = Field(default="sim", description="The engine to start.")
    model_path: Path | None = Field(default=None, description="GGUF file or engine folder; none for sim.")
    model_folder: Path | None = Field(
        default=None, description="Where the model's own configuration files are."
    )
    tokenizer_path: Path | None = Field(
        default=None, description="tokenizer.json to use instead of the model file's own tokenizer."
    )
    chat_template: str | None = Field(
        default=None, description="The chat template. None: the model file's, else a default."
    )
    chat_template_source: str | None = Field(default=None, description="Where the chat template was found.")
    config_files: tuple[Path, ...] = Field(default=(), description="The configuration files, in merge order.")
    input_processor: Path | None = Field(default=None, description="Python file of the input processor.")
    truss: Truss | None = Field(default=None, description="The model.py around the engine.")
    lora_root: Path | None = Field(default=None, description="Folder of LoRA weights.")
    log_level: str = Field(default="info", description="What goes to standard error, as server.log_level.")

    @property
    def embedding_model_name(self) -> str | None:
        """Name in the API of the model that is there for embeddings alone, if there is one."""
        path = self.config.embedding.model
        if path is None:
            return None
        return Path(path).stem if path.endswith(".gguf") else Path(path).resolve().name

    @property
    def served_model_name(self) -> str:
        """Name of the model in the API."""
        if names := self.config.server.model_names:
            return names[0]
        if self.model_path is None:
            return self.backend
        return self.model_path.stem if self.model_path.is_file() else self.model_path.resolve().name


def load_settings(arguments: Arguments, own: dict[str, Any] | None = None) -> Settings:
    """Finds the model, and reads and merges everything that configures it.

    Args:
        arguments: what the command line and the environment say.
        own: of one of several models, the options that it has of its own; see :func:`load_config`.

    Raises:
        ConfigError: something is missing or wrong; one line that says what and where.
    """
    location = locate_model(arguments.engine, backend_choice(arguments))
    for file in unread_files(arguments.engine):
        logger.warning("%s lies beside the model and is not read: name it, or the folder as ENGINE", file)
    truss = None if arguments.model_py is None else read_truss(arguments.model_py)
    options: dict[str, Any] = {}
    if truss is not None:
        options, unused = truss_options(truss, location.backend)
        if unused:
            logger.warning("not used of %s: %s", truss.folder / "config.yaml", ", ".join(unused))
        validate(Config, options, f"{truss.folder / 'config.yaml'}: trt_llm sets")
    config, files = load_config(arguments, base=options, own=own)
    if config.models:
        raise ConfigError("the configuration has `models`: this needs a single model")
    if location.backend == "llamacpp":
        _warn_of_tokenizer_options(config)
    template, source = chat_template(arguments, config)
    if template is None:
        template, source = tokenizer_template(arguments)
    return Settings(
        config=with_key_file(config),
        backend=location.backend,
        model_path=location.model_path,
        model_folder=location.folder,
        tokenizer_path=_tokenizer_file(arguments, location),
        chat_template=template,
        chat_template_source=source,
        config_files=files,
        input_processor=input_processor_file(config.py, _named_folder(arguments.engine)),
        truss=truss,
        # A Truss changes the working folder.
        lora_root=None if arguments.lora_root is None else arguments.lora_root.absolute(),
        log_level=log_level(arguments, config.server.log_level),
    )


def backend_choice(arguments: Arguments) -> BackendChoice:
    """The backend that the command line asks for."""
    if arguments.engine_class is not None and arguments.backend in (None, "auto"):
        return "python"
    return arguments.backend or "auto"


def log_level(arguments: Arguments, configured: str) -> str:
    """What goes to standard error: the configured levels, with what -d or -q say."""
    base = "debug" if arguments.debug else "warning" if arguments.quiet else None
    levels = Levels.parse(configured)
    return str(levels if base is None else replace(levels, base=base))


def _warn_of_tokenizer_options(config: Config) -> None:
    """A GGUF file has its tokenizer and control tokens in it."""
    for option in ("eos_token", "n_vocab_override", "add_bos_token"):
        if getattr(config.tokenizer, option) is not None:
            logger.warning("tokenizer.%s has no effect on a GGUF model, which brings its own", option)


def truss_base(arguments: Arguments) -> dict[str, Any]:
    """What the Truss sets in the configuration, if there is one, for printing it.

    Raises:
        ConfigError: it cannot be read.
    """
    if arguments.model_py is None:
        return {}
    try:
        backend = locate_model(arguments.engine, backend_choice(arguments)).backend
    except ConfigError:
        # Printing needs no model that can run.
        backend = "sim"
    return truss_options(read_truss(arguments.model_py), backend)[0]


def load_config(
    arguments: Arguments,
    *,
    with_tokenizer: bool = True,
    base: dict[str, Any] | None = None,
    own: dict[str, Any] | None = None,
) -> tuple[Config, tuple[Path, ...]]:
    """The merged configuration and the files it came from.

    Args:
        arguments: what the command line and the environment say.
        base: checked options that everything else wins over.
        own: checked options of one of several models, which win over the files; the option ``models`` is
            none of it.
        with_tokenizer: take the defaults of the ``tokenizer`` section from tokenizer_config.json. The chat
            template is not a part of them: its sources have an order of their own (:func:`chat_template`).

    Raises:
        ConfigError: a file is missing or wrong.
    """
    merged: dict[str, Any] = dict(base or {})
    if with_tokenizer and (path := _tokenizer_config_path(arguments)) is not None:
        section = read_tokenizer_config(path)
        section.pop("chat_template", None)
        merged = merge(merged, {"tokenizer": section})
    files = tuple(_config_files(arguments))
    for file in files:
        content = read_config_file(file)
        code = next((name for name in CODE_OPTIONS if content.get("py", {}).get(name)), None)
        if code is not None and not _is_trusted(arguments):
            raise ConfigError(
                f"{file}: py.{code}: what it names would be run, but nobody named this file: "
                "name it with -C, or its folder as ENGINE"
            )
        merged = merge(merged, content)
    if own is not None:
        merged = {**merge(merged, own), "models": []}
    merged = merge(merged, _overrides(arguments))
    # Each file was checked by itself, so what is left to find is a bad flag.
    return validate(Config, merged, "command line"), files


def chat_template(arguments: Arguments, config: Config) -> tuple[str | None, str | None]:
    """The operator's chat template and its source: --chat-template, a configuration file, the folder of one
    that was named, the engine folder. A file that nobody named counts only if there is something in it.

    Raises:
        ConfigError: the file that was named is missing or empty.
    """
    if arguments.chat_template is not None:
        text = read_text(arguments.chat_template)
        if not text.strip():
            raise ConfigError(f"{arguments.chat_template}: the chat template is empty")
        return text, str(arguments.chat_template)
    if config.tokenizer.chat_template is not None:
        return config.tokenizer.chat_template, "tokenizer.chat_template of the configuration"
    folders = [file.parent for file in reversed(arguments.config)]
    if (engine := _named_folder(arguments.engine)) is not None:
        folders.append(engine)
    for folder in folders:
        text_or_none = _found(folder / "chat_template.j2")
        if text_or_none is not None:
            return text_or_none, str(folder / "chat_template.j2")
    return None, None


def tokenizer_template(arguments: Arguments) -> tuple[str | None, str | None]:
    """The chat template of the tokenizer folder and the file it comes from."""
    folder = _tokenizer_folder(arguments)
    if folder is not None:
        path = folder / "chat_template.jinja"
        text = _found(path)
        if text is not None:
            return text, str(path)
    if (path_or_none := _tokenizer_config_path(arguments)) is not None:
        template = read_tokenizer_config(path_or_none).get("chat_template")
        if template is not None:
            return template, str(path_or_none)
    return None, None


def _overrides(arguments: Arguments) -> dict[str, Any]:
    """What the command line says about options that files may set too."""
    given: dict[str, Any] = {}
    for name, flag in FLAGS.items():
        value = getattr(arguments, name)
        if flag.option is not None and value is not None and value != ():
            section, option = flag.option.split(".")
            given.setdefault(section, {})[option] = _raw(value)
    if arguments.debug_llg:
        given["llguidance"] = {"log_level": 2}
    merged: dict[str, Any] = merge(given, assigned(arguments.set))
    return merged


def _raw(value: Any) -> Any:
    """A flag's value as JSON has it; a path counts from the current folder."""
    if isinstance(value, Path):
        return str(value.absolute())
    if isinstance(value, tuple):
        return value[0] if len(value) == 1 else list(value)
    return value


def with_key_file(config: Config) -> Config:
    """The configuration with the keys of ``server.api_key_file`` among the others.

    Raises:
        ConfigError: the file is wrong, or a key has two entries, whose limits might differ.
    """
    server = config.server
    keys = list(server.api_keys)
    if server.api_key_file is not None:
        keys += read_key_file(Path(server.api_key_file))
    if len({key.key for key in keys}) < len(keys):
        raise ConfigError("the same key is in server.api_keys or server.api_key_file twice")
    server = server.model_copy(update={"api_keys": keys})
    return config.model_copy(update={"server": server})


def _config_files(arguments: Arguments) -> Iterator[Path]:
    if arguments.config:
        yield from arguments.config
        return
    folder = model_folder(arguments.engine)
    # A shell makes the file before --print-config fills it.
    if folder is not None and _found(path := folder / "llgtrt.json5") is not None:
        yield path


def _is_trusted(arguments: Arguments) -> bool:
    """Whether the configuration may name code: its files, or their folder, were named on the command line."""
    return bool(arguments.config) or _named_folder(arguments.engine) is not None


def _named_folder(engine: Path | None) -> Path | None:
    """The folder that ENGINE is. What lies beside a file was not meant: a download folder holds anything."""
    folder = model_folder(engine)
    return folder if folder is not None and folder == engine else None


def _found(path: Path) -> str | None:
    """The text of a file that nobody named, ``None`` if it is not there or empty."""
    if not path.is_file():
        return None
    text = read_text(path)
    if not text.strip():
        logger.warning("%s is empty: it counts as absent", path)
        return None
    return text


def unread_files(engine: Path | None) -> list[Path]:
    """Files beside a model file that would be read if they, or their folder, were named."""
    if engine is None or engine.is_dir():
        return []
    names = ("chat_template.j2", "chat_template.jinja", "tokenizer_config.json", "input_processor.py")
    return [path for name in names if (path := engine.parent / name).is_file()]


def _tokenizer_folder(arguments: Arguments) -> Path | None:
    if arguments.tokenizer is not None:
        return model_folder(arguments.tokenizer)
    return _named_folder(arguments.engine)


def _tokenizer_config_path(arguments: Arguments) -> Path | None:
    folder = _tokenizer_folder(arguments)
    if folder is None:
        return None
    path = folder / "tokenizer_config.json"
    return path if path.is_file() else None


def _tokenizer_file(arguments: Arguments, location: ModelLocation) -> Path | None:
    """The tokenizer.json to load. A GGUF file has a tokenizer of its own, so there only -T counts."""
    if arguments.tokenizer is not None:
        folder = model_folder(arguments.tokenizer)
        assert folder is not None
        file = arguments.tokenizer if arguments.tokenizer.is_file() else folder / "tokenizer.json"
        if not file.is_file():
            raise ConfigError(f"{arguments.tokenizer} holds no tokenizer.json")
        return file
    if location.backend == "llamacpp" or location.folder is None:
        return None
    file = location.folder / "tokenizer.json"
    return file if file.is_file() else None
