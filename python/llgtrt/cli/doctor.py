"""``llgtrt doctor``: looks at all that a server needs, and says what to do about what is wrong."""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import click

from llgtrt.config import (
    FLAGS,
    Arguments,
    ConfigError,
    Repository,
    Settings,
    find_repository,
    load_settings,
)

from .health import Finding, check_model, check_system, check_trtllm
from .health.trtllm import process_count
from .options import option

NAME = "doctor"

_HELP = """Look for what would keep a server from working on this machine, without loading the model.

ENGINE is a GGUF file, a folder with one, or a TensorRT-LLM engine folder; without it, the demo model. The
options are those of `llgtrt serve`. What cannot be looked at here, such as a GPU that is not there, is said
and passed over.

The exit code is 1 if something has to be mended, else 0.
"""

_MARKS = {"ok": "ok", "warning": "WARNING", "failure": "FAILURE", "skipped": "skipped"}
_NOT_OPTIONS = frozenset(
    {"engine", "print_config", "print_complete_config", "print_chat_template", "test_py"}
)
"""What of the command line asks for something else than a server, or is an argument here."""

_OPTIONS = tuple(name for name in FLAGS if name not in _NOT_OPTIONS)


def command() -> click.Command:
    """The command with its options."""
    return click.Command(
        NAME,
        callback=_run,
        params=[
            click.Argument(["engine"], metavar="[ENGINE]", required=False, type=click.Path(path_type=Path)),
            *(option(name, FLAGS[name]) for name in _OPTIONS),
            click.Option(["--json", "as_json"], is_flag=True, help="Print the findings as JSON."),
        ],
        help=_HELP,
    )


def examine(arguments: Arguments) -> list[Finding]:
    """All findings about a server with these arguments."""
    try:
        repository = find_repository(arguments)
        if repository is not None:
            return _examine_several(repository)
        settings = load_settings(arguments)
    except ConfigError as error:
        return [Finding("configuration", "failure", " ".join(str(error).split()), "mend it first")]
    processes = 1
    if settings.backend == "trtllm" and settings.model_path is not None:
        processes = process_count(settings.model_path)
    findings = [_configuration(settings, settings.backend), *_model(settings)]
    return findings + check_system(settings, [settings], processes)


def _examine_several(repository: Repository) -> list[Finding]:
    """All findings about a server of several models: those that it loads at the start."""
    models = {entry.first_name: repository.settings(entry) for entry in repository.at_start()}
    findings = [_configuration(repository.shared, f"{len(models)} models")]
    for name, settings in models.items():
        findings += [
            dataclasses.replace(finding, check=f"{name}: {finding.check}") for finding in _model(settings)
        ]
    return findings + check_system(repository.shared, list(models.values()), 1)


def _configuration(settings: Settings, what: str) -> Finding:
    files = ", ".join(map(str, settings.config_files)) or "defaults"
    return Finding("configuration", "ok", f"{what}, {files}")


def _model(settings: Settings) -> list[Finding]:
    findings = check_model(settings)
    return findings + check_trtllm(settings) if settings.backend == "trtllm" else findings


def _run(engine: Path | None, as_json: bool, **values: Any) -> int:
    findings = examine(Arguments(engine=engine, **values))
    if as_json:
        text = json.dumps([dataclasses.asdict(finding) for finding in findings], indent=2, ensure_ascii=False)
        click.echo(text)
    else:
        _print_table(findings)
    return int(any(finding.state == "failure" for finding in findings))


def _print_table(findings: list[Finding]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE)
    for title in ("", "what", "found", "what to do"):
        table.add_column(title, overflow="fold")
    styles = {"ok": "green", "warning": "yellow", "failure": "bold red", "skipped": "dim"}
    for finding in findings:
        mark = Text(_MARKS[finding.state], styles[finding.state])
        table.add_row(mark, finding.check, Text(finding.found), Text(finding.advice))
    # As wide as a terminal is, and wide enough for a file.
    Console(file=sys.stdout, width=None if sys.stdout.isatty() else 160).print(table)
