"""Reading of configuration files, with errors that name the file and the place in it."""

import difflib
import json
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import json5
from pydantic import BaseModel, ValidationError

from .errors import ConfigError
from .py import absolute_hook
from .root import Config
from .tokenizer import TokenizerConfig

PATH_OPTIONS = {
    "py": ("input_processor", "hf_model_dir", "visual_engine_dir"),
    "server": ("uds", "api_key_file", "ssl_keyfile", "ssl_certfile", "ssl_ca_certs"),
    "trtllm": ("plugin_path", "encoder_dir"),
    "embedding": ("model",),
}
"""Options that hold a path, by section; a relative one counts from the folder of the file that names it."""

PATHS_OF_MODEL = ("engine", "tokenizer_dir", "lora_root")
"""Options with a path of an entry of ``models``, beside those of its sections."""

_SYNTAX_ERROR = re.compile(r"<string>:(\d+) (.*?)(?: at column (\d+))?", re.DOTALL)

Model = TypeVar("Model", bound=BaseModel)


def read_config_file(path: Path) -> dict[str, Any]:
    """The checked content of one JSON5 file, its relative paths made absolute.

    Raises:
        ConfigError: the file cannot be read, or something in it is wrong.
    """
    content = _parse(path)
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: a configuration file holds one object")
    validate(Config, content, str(path))
    resolve_paths(content, path.parent.absolute())
    return content


def resolve_paths(content: dict[str, Any], folder: Path) -> None:
    """Makes the relative paths in checked content absolute, in place."""
    for entry in content.get("models", ()):
        resolve_paths(entry, folder)
        for option in PATHS_OF_MODEL:
            if isinstance(entry.get(option), str):
                entry[option] = os.path.normpath(folder / entry[option])
    for section, options in PATH_OPTIONS.items():
        values = content.get(section, {})
        for option in options:
            if isinstance(values.get(option), str):
                values[option] = os.path.normpath(folder / values[option])
    for option in ("hooks", "engine"):
        reference = content.get("py", {}).get(option)
        if isinstance(reference, str):
            content["py"][option] = absolute_hook(reference, folder)
    processors = content.get("py", {}).get("logits_processors")
    if processors:
        names = [processors] if isinstance(processors, str) else processors
        content["py"]["logits_processors"] = [absolute_hook(name, folder) for name in names]


def read_tokenizer_config(path: Path) -> dict[str, Any]:
    """The options of a Hugging Face tokenizer_config.json that we know, as a raw ``tokenizer`` section.

    Raises:
        ConfigError: the file cannot be read, or an option in it has the wrong type.
    """
    try:
        content = json.loads(read_text(path))
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}:{error.lineno}:{error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise ConfigError(f"{path}: nested too deeply") from error
    if not isinstance(content, dict):
        raise ConfigError(f"{path}: expected an object")
    known = {key: value for key, value in content.items() if key in TokenizerConfig.model_fields}
    if isinstance(known.get("chat_template"), list):
        known["chat_template"] = named_template(known["chat_template"], str(path))
    section = validate(TokenizerConfig, known, str(path))
    return section.model_dump(include=set(known))


def named_template(templates: Sequence[Any], where: str) -> str:
    """The default one of several chat templates, each ``{name, template}``."""
    by_name: dict[str, str] = {
        item["name"]: item["template"]
        for item in templates
        if isinstance(item, dict)
        and isinstance(item.get("name"), str)
        and isinstance(item.get("template"), str)
    }
    if not by_name:
        raise ConfigError(f"{where}: chat_template: expected a text or a list of {{name, template}}")
    return by_name["default"] if "default" in by_name else next(iter(by_name.values()))


def read_text(path: Path) -> str:
    """A file's text.

    Raises:
        ConfigError: it cannot be read or is not UTF-8.
    """
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})") from error
    except OSError as error:
        raise ConfigError(f"{path}: {error.strerror or error}") from error


def validate(model: type[Model], content: dict[str, Any], where: str) -> Model:
    """Builds a section from raw values.

    Raises:
        ConfigError: an option is unknown or has a wrong value; the message starts with ``where``.
    """
    try:
        return model.model_validate(content)
    except ValidationError as error:
        # An unknown key first: it often explains the others.
        details = sorted(error.errors(), key=lambda detail: detail["type"] != "extra_forbidden")
        detail = details[0]
        location = detail["loc"]
        if detail["type"] == "extra_forbidden":
            message = f"unknown option{_suggestion(model, location)}"
        else:
            message = detail["msg"].removeprefix("Value error, ").replace("Input should be", "should be")
        more = f" (and {len(details) - 1} more)" if len(details) > 1 else ""
        raise ConfigError(f"{where}: {path_text(location)}: {message}{more}") from None


def path_text(location: Sequence[str | int]) -> str:
    """A JSON path such as ``sim.faults[0].step``."""
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def option_paths(model: type[BaseModel], prefix: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The paths of all sections and options."""
    for name, field in model.model_fields.items():
        path = (*prefix, name)
        yield path
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from option_paths(field.annotation, path)


def _suggestion(model: type[BaseModel], location: Sequence[str | int]) -> str:
    """ ", did you mean ...?" for an unknown option, or nothing."""
    names = [part for part in location if isinstance(part, str)]
    paths = list(option_paths(model))
    # A name of the same section that reads alike, else the same name in another section.
    siblings = {path[-1]: path for path in paths if list(path[:-1]) == names[:-1]}
    close = difflib.get_close_matches(names[-1].lower().replace("-", "_"), siblings, n=1)
    if close:
        return f", did you mean '{path_text(siblings[close[0]])}'?"
    elsewhere = {path[-1]: path for path in reversed(paths)}
    close = difflib.get_close_matches(names[-1].lower().replace("-", "_"), elsewhere, n=1, cutoff=0.8)
    return f", did you mean '{path_text(elsewhere[close[0]])}'?" if close else ""


def _parse(path: Path) -> Any:
    text = read_text(path)
    if not text.strip():
        raise ConfigError(f"{path}: the file is empty")
    return parse_json5(text, str(path))


def parse_json5(text: str, where: str) -> Any:
    """The value of a JSON5 text.

    Raises:
        ConfigError: it is not JSON5; the message starts with ``where`` and tells the place.
    """
    try:
        return _joined(json5.loads(text, allow_duplicate_keys=False))
    except RecursionError as error:
        raise ConfigError(f"{where}: nested too deeply") from error
    except UnicodeError as error:
        raise ConfigError(f"{where}: a \\u escape is half of a surrogate pair") from error
    except ValueError as error:
        match = _SYNTAX_ERROR.fullmatch(str(error))
        if match is None:
            raise ConfigError(f"{where}: {error}") from error
        line, message, column = match.groups()
        place = f"{where}:{line}" + (f":{column}" if column else "")
        raise ConfigError(f"{place}: {message[:1].lower()}{message[1:]}") from error


def _joined(value: Any) -> Any:
    """The value with surrogate pairs in its texts joined, which the parser leaves as two halves.

    Raises:
        UnicodeError: a text holds half of a pair.
    """
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16")
    if isinstance(value, list):
        return [_joined(item) for item in value]
    if isinstance(value, dict):
        return {_joined(key): _joined(item) for key, item in value.items()}
    return value
