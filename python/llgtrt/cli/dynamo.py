"""``llgtrt dynamo``: serves an engine as a worker of NVIDIA Dynamo."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from llgtrt.config import FLAGS, Arguments, load_settings

from .actions import set_up_logging
from .options import option

NAME = "dynamo"

_HELP = """Serve ENGINE as a worker of NVIDIA Dynamo: its frontend sends tokens, constraints and all.

ENGINE and the options of the engine are those of `llgtrt serve`; host, port, keys and TLS are the frontend's
business. Dynamo's own variables (DYN_FILE_KV, DYN_SYSTEM_PORT, ...) are read by its runtime. Needs
`pip install llgtrt[dynamo]`; see docs/dynamo.md.

The exit code is 0 after a signal, 1 for a failed start, 3 if the engine failed.
"""

_OPTIONS = tuple(
    name
    for name, flag in FLAGS.items()
    if name == "served_model_name"
    or not (
        (flag.option or "").startswith(("server.", "py.", "kv_events."))
        or name in ("engine", "model_py", "test_py", "print_config", "print_complete_config")
        or name == "print_chat_template"
    )
)
"""Flags of the server that mean something here."""


def command() -> click.Command:
    """The command with its options."""
    return click.Command(
        NAME,
        callback=_run,
        help=_HELP,
        params=[
            click.Argument(["engine"], metavar="[ENGINE]", required=False, type=click.Path(path_type=Path)),
            *(option(name, FLAGS[name]) for name in _OPTIONS),
            *_own_options(),
        ],
    )


def _own_options() -> list[click.Parameter]:
    shown: dict[str, Any] = {"show_default": True}
    return [
        click.Option(
            ["--namespace"],
            envvar="DYN_NAMESPACE",
            default="dynamo",
            help="Namespace of the endpoint.",
            **shown,
        ),
        click.Option(["--component"], default="llgtrt", help="Component of the endpoint.", **shown),
        click.Option(["--endpoint"], default="generate", help="Name of the endpoint.", **shown),
        click.Option(
            ["--discovery-backend", "discovery"],
            envvar="DYN_DISCOVERY_BACKEND",
            type=click.Choice(["etcd", "kubernetes", "file", "mem"]),
            default="etcd",
            help="How frontends find workers.",
            **shown,
        ),
        click.Option(
            ["--request-plane"],
            envvar="DYN_REQUEST_PLANE",
            type=click.Choice(["tcp", "nats"]),
            default="tcp",
            help="How requests come.",
            **shown,
        ),
        click.Option(
            ["--event-plane"],
            envvar="DYN_EVENT_PLANE",
            type=click.Choice(["zmq", "nats"]),
            help="How events go. Default: as Dynamo has it.",
        ),
        click.Option(
            ["--model-folder"],
            type=click.Path(path_type=Path, exists=True, file_okay=False),
            help="Folder with config.json, tokenizer.json and tokenizer_config.json of the model. Default: "
            "they are written from the model.",
        ),
        click.Option(
            ["--tool-call-parser"],
            envvar="DYN_TOOL_CALL_PARSER",
            help="The frontend's parser of the model's calls, such as hermes.",
        ),
        click.Option(
            ["--reasoning-parser"],
            envvar="DYN_REASONING_PARSER",
            help="The frontend's parser of the model's thinking, such as qwen3.",
        ),
        click.Option(
            ["--kv-cache-block-size", "block_size"],
            type=click.IntRange(1, 4096),
            default=16,
            help="Tokens of a block, by which the frontend's router compares prompts.",
            **shown,
        ),
        click.Option(
            ["--publish-kv-events/--no-publish-kv-events", "kv_events"],
            default=True,
            help="Tell the frontend's router what the prefix cache holds, where the engine has one.",
            **shown,
        ),
        click.Option(
            ["--grace-period", "grace_s"],
            envvar="DYN_GRACEFUL_SHUTDOWN_GRACE_PERIOD_SECS",
            type=click.FloatRange(0, 3600),
            default=5.0,
            help="After SIGTERM: seconds for which requests that are on their way are accepted.",
            **shown,
        ),
    ]


def _run(engine: Path | None, **values: Any) -> int:
    arguments = Arguments(engine=engine, **{name: values.pop(name) for name in _OPTIONS})
    set_up_logging(arguments)
    settings = load_settings(arguments)
    # Dynamo and the core are loaded only now, so that everything before answers at once.
    from llgtrt.dynamo.options import DynamoOptions
    from llgtrt.dynamo.serve import run

    return run(settings, DynamoOptions(**values))
