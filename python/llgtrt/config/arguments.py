"""The command line as data: every flag once, for the parser and for the reference page."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from .engine import BackendChoice

Kind = Literal["text", "port", "path", "paths", "choice", "switch"]


@dataclass(frozen=True)
class Flag:
    """How one argument is written on the command line."""

    names: tuple[str, ...]
    kind: Kind
    help: str
    choices: tuple[str, ...] = ()
    default: str | None = None
    """As shown; what an absent flag means is decided where it is used."""


def _flag(
    *names: str, kind: Kind, help: str, choices: tuple[str, ...] = (), default: str | None = None
) -> dict[str, Flag]:
    return {"flag": Flag(names, kind, help, choices, default)}


@dataclass(frozen=True)
class Arguments:
    """What the command line and the environment say; ``None`` where they say nothing."""

    host: str | None = field(
        default=None,
        metadata=_flag("-H", "--host", kind="text", default="0.0.0.0", help="Address to listen on."),
    )
    port: int | None = field(
        default=None,
        metadata=_flag(
            "-p", "--port", kind="port", default="3000", help="Port to listen on; 0 picks a free one."
        ),
    )
    engine: Path | None = field(
        default=None,
        metadata=_flag(
            "-E",
            "--engine",
            kind="path",
            help="The model, as ENGINE: a GGUF file, a folder with one, or a TensorRT-LLM engine folder.",
        ),
    )
    tokenizer: Path | None = field(
        default=None,
        metadata=_flag(
            "-T",
            "--tokenizer",
            kind="path",
            help="Folder with tokenizer.json and tokenizer_config.json, instead of the engine folder.",
        ),
    )
    backend: BackendChoice | None = field(
        default=None,
        metadata=_flag(
            "--backend",
            kind="choice",
            choices=("auto", "llamacpp", "trtllm", "sim"),
            default="auto",
            help="The engine that runs the model; sim needs no model.",
        ),
    )
    served_model_name: str | None = field(
        default=None,
        metadata=_flag(
            "--served-model-name", kind="text", help="Name of the model in the API, instead of its file name."
        ),
    )
    api_key: str | None = field(
        default=None, metadata=_flag("--api-key", kind="text", help="Key that clients must send.")
    )
    config: tuple[Path, ...] = field(
        default=(),
        metadata=_flag(
            "-C",
            "--config",
            kind="paths",
            default="<engine>/llgtrt.json5",
            help="JSON5 configuration file; several are merged in order, later ones win.",
        ),
    )
    chat_template: Path | None = field(
        default=None,
        metadata=_flag(
            "--chat-template",
            kind="path",
            default="<engine>/chat_template.j2",
            help="Chat template file (Jinja2); wins over every other source.",
        ),
    )
    lora_root: Path | None = field(
        default=None,
        metadata=_flag(
            "--lora-root",
            kind="path",
            help="Folder of LoRA adapters, NAME.safetensors each, for TensorRT-LLM engines.",
        ),
    )
    print_config: bool = field(
        default=False,
        metadata=_flag(
            "--print-config", kind="switch", help="Print the configuration as commented JSON5 and exit."
        ),
    )
    print_complete_config: bool = field(
        default=False,
        metadata=_flag(
            "--print-complete-config",
            kind="switch",
            help="Like --print-config, with the tokenizer's configuration and the chat template.",
        ),
    )
    print_chat_template: bool = field(
        default=False,
        metadata=_flag("--print-chat-template", kind="switch", help="Print the chat template and exit."),
    )
    test_py: bool = field(
        default=False,
        metadata=_flag(
            "--test-py",
            kind="switch",
            help="Load the Python input processor, print what it makes of an example, and exit.",
        ),
    )
    debug: bool = field(default=False, metadata=_flag("-d", "--debug", kind="switch", help="Debug output."))
    debug_llg: bool = field(
        default=False, metadata=_flag("-D", "--debug-llg", kind="switch", help="Debug output of llguidance.")
    )
    quiet: bool = field(
        default=False, metadata=_flag("-q", "--quiet", kind="switch", help="Only warnings and errors.")
    )


def environment_variable(name: str) -> str:
    """The environment variable of an argument."""
    return f"LLGTRT_{name.upper()}"


FLAGS: Mapping[str, Flag] = {item.name: item.metadata["flag"] for item in fields(Arguments)}
"""Every argument's flag, in the order of ``--help``."""
