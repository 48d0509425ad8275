"""Parsing of the command line. The flags are declared in :mod:`llgtrt.config.arguments`."""

import importlib
import sys
from pathlib import Path
from typing import Any

import click

from llgtrt.config import FLAGS, Arguments, ConfigError, is_truss
from llgtrt.config.engine import HOW_TO_GET_A_MODEL

from .actions import perform
from .options import option

PROGRAM = "llgtrt"

_HELP = """Serve a model with an OpenAI-compatible API whose constrained answers are always valid.

ENGINE is a GGUF file, a folder with one, or a TensorRT-LLM engine folder; without it, the demo model
is served if it is installed. A Truss (a folder with config.yaml) is served with its model.py around the
engine that --engine names.

Every option can be set by an environment variable too: --served-model-name is LLGTRT_SERVED_MODEL_NAME.
What the command line says wins over the environment, which wins over configuration files.

`llgtrt check-schema FILE...` checks JSON schemas without serving, `llgtrt doctor ENGINE` looks for what would
keep a server from working here, `llgtrt bench URL` measures a server from outside, `llgtrt dynamo ENGINE`
serves as a worker of NVIDIA Dynamo, and `llgtrt build-trtllm` builds what TensorRT-LLM engines need: see
their --help.
"""

_OTHERS = ("bench", "build-trtllm", "check-schema", "doctor", "dynamo")
"""Commands beside serving, each a module of this package."""

_CONTEXT = {"help_option_names": ["--help"], "max_content_width": 110}


def main() -> None:
    """Runs the command and exits: 0 when all went well, 1 for a failed start, 2 for wrong usage."""
    sys.exit(run(sys.argv[1:]))


def run(argv: list[str]) -> int:
    """Runs the command and gives its exit code. A problem is one line on standard error, no traceback."""
    try:
        if argv and argv[0] in _OTHERS:
            # Loaded only now: a server has no use for them, and each takes time.
            other = importlib.import_module(f".{argv[0].replace('-', '_')}", __package__).command()
            result = other.main(args=argv[1:], prog_name=f"{PROGRAM} {argv[0]}", standalone_mode=False)
        else:
            result = command().main(args=argv, prog_name=PROGRAM, standalone_mode=False)
    except click.ClickException as error:
        _complain(error.format_message())
        return error.exit_code
    except ConfigError as error:
        _complain(str(error))
        return 1
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        # The reader of --print-config or --help has gone; nothing is left to say to it.
        sys.stderr.close()
        return 1
    except OSError as error:
        _complain(f"{error.filename or 'standard output'}: {error.strerror or error}")
        return 1
    return result if isinstance(result, int) else 0


def command() -> click.Command:
    """The command with all its options."""
    return click.Command(
        name=PROGRAM,
        callback=_callback,
        params=[
            click.Argument(
                ["engines"], metavar="[serve] [ENGINE]", nargs=-1, type=click.Path(path_type=Path)
            ),
            *(option(name, flag) for name, flag in FLAGS.items()),
            click.Option(
                ["-hf", "-hfr", "--hf-repo"],
                hidden=True,
                is_eager=True,
                expose_value=False,
                callback=_say_how_to_get_a_model,
            ),
            click.Option(
                ["--version"],
                is_flag=True,
                is_eager=True,
                expose_value=False,
                callback=_print_version,
                help="Show the version and exit.",
            ),
        ],
        help=_HELP,
        context_settings=_CONTEXT,
    )


def _callback(engines: tuple[Path, ...], engine: Path | None, model_py: Path | None, **values: Any) -> int:
    positional = list(engines)
    if positional and positional[0] == Path("serve"):
        positional.pop(0)
    if len(positional) > 1:
        raise click.UsageError(
            f"one ENGINE at most, got {len(positional)}: {', '.join(map(str, positional))}"
        )
    if positional and is_truss(positional[0]):
        # Not the model, but what is around it: --engine names the model, or it lies in the Truss.
        if model_py is not None and model_py != positional[0]:
            raise click.UsageError(f"two Trusses given: {positional[0]} and --model-py {model_py}")
        model_py = positional[0]
    elif positional:
        context = click.get_current_context()
        source = context.get_parameter_source("engine")
        if source is click.core.ParameterSource.COMMANDLINE and engine != positional[0]:
            raise click.UsageError(f"two engines given: {positional[0]} and --engine {engine}")
        engine = positional[0]
    return perform(Arguments(engine=engine, model_py=model_py, **values))


def _print_version(context: click.Context, _parameter: click.Parameter, value: bool) -> None:
    if not value or context.resilient_parsing:
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        number = version("llgtrt")
    except PackageNotFoundError:
        number = "(not installed)"
    click.echo(f"{PROGRAM} {number}")
    context.exit()


def _say_how_to_get_a_model(_context: click.Context, parameter: click.Parameter, value: str | None) -> None:
    """llama-server's option, which is not here."""
    if value is not None:
        raise click.UsageError(f"{parameter.opts[0]}: {HOW_TO_GET_A_MODEL}")


def _complain(message: str) -> None:
    click.echo(f"{PROGRAM}: error: {' '.join(message.split())}", err=True)
