"""The command line as data: every flag once, for the parser and for the reference page."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Literal

from .engine import BackendChoice

Kind = Literal["text", "texts", "port", "number", "path", "paths", "choice", "switch"]


@dataclass(frozen=True)
class Flag:
    """How one argument is written on the command line."""

    names: tuple[str, ...]
    kind: Kind
    help: str
    choices: tuple[str, ...] = ()
    default: str | None = None
    """As shown; what an absent flag means is decided where it is used."""

    option: str | None = None
    """The option of the configuration that the flag sets, as ``section.option``."""


def _flag(
    *names: str,
    kind: Kind,
    help: str,
    choices: tuple[str, ...] = (),
    default: str | None = None,
    option: str | None = None,
) -> dict[str, Flag]:
    return {"flag": Flag(names, kind, help, choices, default, option)}


@dataclass(frozen=True)
class Arguments:
    """What the command line and the environment say; ``None`` where they say nothing."""

    host: str | None = field(
        default=None,
        metadata=_flag(
            "-H", "--host", kind="text", default="0.0.0.0", option="server.host", help="Address to listen on."
        ),
    )
    port: int | None = field(
        default=None,
        metadata=_flag(
            "-p",
            "--port",
            kind="port",
            default="3000",
            option="server.port",
            help="Port to listen on; 0 picks a free one.",
        ),
    )
    engine: Path | None = field(
        default=None,
        metadata=_flag(
            "-E",
            "-m",
            "--model",
            "--engine",
            kind="path",
            help="The model, as ENGINE: a GGUF file, a folder with one, or a TensorRT-LLM engine folder. "
            "Where ENGINE is a Truss, its model.",
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
            choices=("auto", "llamacpp", "trtllm", "sim", "python"),
            default="auto",
            help="The engine that runs the model; sim needs no model, python is what --engine-class names.",
        ),
    )
    engine_class: str | None = field(
        default=None,
        metadata=_flag(
            "--engine-class",
            kind="text",
            option="py.engine",
            help="Engine in Python, which gets ENGINE: an entry point's name, module:Class or file.py:Class.",
        ),
    )
    served_model_name: tuple[str, ...] = field(
        default=(),
        metadata=_flag(
            "-a",
            "--alias",
            "--served-model-name",
            kind="texts",
            option="server.served_model_name",
            help="Name of the model in the API, instead of its file name; may be repeated.",
        ),
    )
    api_key: tuple[str, ...] = field(
        default=(),
        metadata=_flag(
            "--api-key",
            kind="texts",
            option="server.api_key",
            help="Key that clients must send; may be repeated.",
        ),
    )
    api_key_file: Path | None = field(
        default=None,
        metadata=_flag(
            "--api-key-file",
            kind="path",
            option="server.api_key_file",
            help="File with a key per line: KEY, or NAME KEY and limits.",
        ),
    )
    ssl_keyfile: Path | None = field(
        default=None,
        metadata=_flag(
            "--ssl-key-file",
            "--ssl-keyfile",
            kind="path",
            option="server.ssl_keyfile",
            help="Private key (PEM): serve HTTPS.",
        ),
    )
    ssl_certfile: Path | None = field(
        default=None,
        metadata=_flag(
            "--ssl-cert-file",
            "--ssl-certfile",
            kind="path",
            option="server.ssl_certfile",
            help="Certificate (PEM): serve HTTPS.",
        ),
    )
    ssl_ca_certs: Path | None = field(
        default=None,
        metadata=_flag(
            "--ssl-ca-certs",
            kind="path",
            option="server.ssl_ca_certs",
            help="Authorities (PEM) whose certificates clients must show.",
        ),
    )
    root_path: str | None = field(
        default=None,
        metadata=_flag(
            "--root-path",
            kind="text",
            option="server.root_path",
            help="Path prefix that a proxy in front of the server strips.",
        ),
    )
    max_seq_len: int | None = field(
        default=None,
        metadata=_flag(
            "-c",
            "--ctx-size",
            "--max-model-len",
            "--max-seq-len",
            kind="number",
            option="runtime.max_seq_len",
            help="Most tokens of one sequence, prompt and answer together.",
        ),
    )
    max_batch_size: int | None = field(
        default=None,
        metadata=_flag(
            "-np",
            "--parallel",
            "--max-num-seqs",
            "--max-batch-size",
            kind="number",
            option="runtime.max_batch_size",
            help="Most sequences that generate at the same time, each with the whole context.",
        ),
    )
    max_num_tokens: int | None = field(
        default=None,
        metadata=_flag(
            "-b",
            "--batch-size",
            "--max-num-batched-tokens",
            "--max-num-tokens",
            kind="number",
            option="runtime.max_num_tokens",
            help="Most tokens in one forward pass, prompts and answers together.",
        ),
    )
    embedding_model: Path | None = field(
        default=None,
        metadata=_flag(
            "--embedding-model",
            kind="path",
            option="embedding.model",
            help="A GGUF file for /v1/embeddings and /v1/rerank, instead of the served model.",
        ),
    )
    draft_model: Path | None = field(
        default=None,
        metadata=_flag(
            "-md",
            "--model-draft",
            "--draft-model",
            kind="path",
            option="llamacpp.draft_model",
            help="A GGUF file of a small model with the same vocabulary, which guesses at next tokens.",
        ),
    )
    gpu_layers: int | None = field(
        default=None,
        metadata=_flag(
            "-ngl",
            "--n-gpu-layers",
            "--gpu-layers",
            kind="number",
            option="llamacpp.gpu_layers",
            help="Layers to keep on the GPU; all, where the build has a GPU backend.",
        ),
    )
    threads: int | None = field(
        default=None,
        metadata=_flag(
            "-t",
            "--threads",
            kind="number",
            option="llamacpp.threads",
            help="Threads of a forward pass; one per physical core, at most 4 if all is on a GPU.",
        ),
    )
    batch_threads: int | None = field(
        default=None,
        metadata=_flag(
            "-tb",
            "--threads-batch",
            "--batch-threads",
            kind="number",
            option="llamacpp.batch_threads",
            help="Threads of a forward pass over prompts; as many as --threads.",
        ),
    )
    kv_events: str | None = field(
        default=None,
        metadata=_flag(
            "--kv-events",
            kind="text",
            option="kv_events.endpoint",
            help="Publish what the prefix cache holds, for routers: zmq://*:5557 listens, zmq://HOST:5557 "
            "connects.",
        ),
    )
    set: tuple[str, ...] = field(
        default=(),
        metadata=_flag(
            "--set",
            kind="texts",
            help="section.key=value: any option of the configuration, with its value in JSON5; may be "
            "repeated. Wins over other flags.",
        ),
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
    models_dir: Path | None = field(
        default=None,
        metadata=_flag(
            "--model-repository",
            "--models-dir",
            kind="path",
            help="Folder of models to serve together: each GGUF file and each folder with a model in it.",
        ),
    )
    load_model: tuple[str, ...] = field(
        default=(),
        metadata=_flag(
            "--load-model",
            kind="texts",
            help="Of several models the one to load at the start; may be repeated. The others wait for "
            "/v2/repository/models/NAME/load.",
        ),
    )
    model_py: Path | None = field(
        default=None,
        metadata=_flag(
            "--model-py",
            kind="path",
            help="Truss folder, or a folder or file with model.py, that answers requests around the engine.",
        ),
    )
    hooks: str | None = field(
        default=None,
        metadata=_flag(
            "--hooks",
            kind="text",
            option="py.hooks",
            help="Class around every generation: file.py:Class, module:Class, or an entry point's name.",
        ),
    )
    logits_processors: tuple[str, ...] = field(
        default=(),
        metadata=_flag(
            "--logits-processors",
            kind="texts",
            option="py.logits_processors",
            help="Logits processor that requests may name: file.py:Class, module:Class, or an entry point's "
            "name; may be repeated.",
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
