"""``llgtrt check-schema``: says of each schema whether the server takes it, offline."""

from __future__ import annotations

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llgtrt.cli.schema_files import STDIN, SUFFIXES, Source, find_files, read_schemas
from llgtrt.config import Arguments, ConfigError, load_config

if TYPE_CHECKING:
    from rich.console import Console

    from llgtrt.serving.schema_check import SchemaChecker

NAME = "check-schema"

_HELP = """Check JSON schemas as the server would, offline.

FILE is a JSON or JSON5 file with a schema, a .jsonl file with one on each line, a folder of such files, or -
for standard input. A schema may stand in OpenAI's object with name, schema and strict.

The exit code is 0 if the server takes every schema (and they accept every instance), else 1.
"""


@dataclass(frozen=True, slots=True)
class Options:
    """What the command line says."""

    residual: Any
    instances: list[Any]
    as_json: bool
    quiet: bool


@dataclass(slots=True)
class Summary:
    """Counts over all schemas."""

    unchanged: int = 0
    rewritten: int = 0
    refused: int = 0
    rejecting: int = 0
    rules: Counter[str] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)

    def add(self, report: dict[str, Any]) -> None:
        """Counts a report."""
        if not report["ok"]:
            self.refused += 1
            self.reasons.update({problem["keyword"] or "(the whole)" for problem in report["errors"]})
            return
        if report["rules"]:
            self.rewritten += 1
        else:
            self.unchanged += 1
        self.rules.update(rule["name"] for rule in report["rules"])
        self.rejecting += rejects(report)

    @property
    def checked(self) -> int:
        """All of them."""
        return self.unchanged + self.rewritten + self.refused

    @property
    def exit_code(self) -> int:
        """0 if all is well."""
        return int(self.refused > 0 or self.rejecting > 0)


def rejects(report: dict[str, Any]) -> bool:
    """Whether some instance was not accepted."""
    return any(verdict["accepted"] is not True for verdict in report["instances"])


def command() -> click.Command:
    """The command with its options."""
    file = click.Path(path_type=Path)
    return click.Command(
        name=f"llgtrt {NAME}",
        callback=_callback,
        help=_HELP,
        params=[
            click.Argument(["files"], metavar="FILE...", nargs=-1, required=True, type=file),
            click.Option(
                ["--residual"],
                type=click.Choice(["refuse", "verify"]),
                default=None,
                help="What no grammar can hold: refuse it, or leave it to a check of the answer. "
                "Default: llguidance.residual of the configuration.",
            ),
            click.Option(
                ["--instances"],
                type=click.Path(path_type=Path, dir_okay=False),
                metavar="FILE",
                help="JSON array of values and texts to try on every schema.",
            ),
            click.Option(
                ["-T", "--tokenizer"],
                type=file,
                metavar="PATH",
                help="tokenizer.json of the model, or its folder; without it, tokens are single bytes.",
            ),
            click.Option(
                ["-C", "--config"],
                type=file,
                metavar="FILE",
                multiple=True,
                help="Configuration file with the limits of the server; may be given more than once.",
            ),
            click.Option(["-j", "--jobs"], type=click.IntRange(1, 256), help="Schemas at a time; the cores."),
            click.Option(["-q", "--quiet"], is_flag=True, help="Show only what is refused."),
            click.Option(["--json", "as_json"], is_flag=True, help="Print one JSON object instead of text."),
            click.Option(
                ["--explain"],
                is_flag=True,
                help="Print the stages of each schema on its way to a grammar, and nothing else.",
            ),
        ],
        context_settings={"help_option_names": ["--help"], "max_content_width": 110},
    )


def _callback(
    files: tuple[Path, ...],
    residual: str | None,
    instances: Path | None,
    tokenizer: Path | None,
    config: tuple[Path, ...],
    jobs: int | None,
    quiet: bool,
    as_json: bool,
    explain: bool,
) -> int:
    for path in files:
        if path != STDIN and not path.exists():
            raise click.UsageError(f"{path}: no such file or folder")
    found = find_files(list(files))
    if not found:
        raise click.UsageError(f"no {', '.join(SUFFIXES)} file in {', '.join(map(str, files))}")
    options = Options(residual, _instances(instances), as_json, quiet)
    settings, _ = load_config(Arguments(config=config), with_tokenizer=False)
    if explain:
        return _explain(find_files(list(files)), options, settings.llguidance.standard)
    jobs = jobs or len(os.sched_getaffinity(0))
    # The core is loaded only now, so that everything before answers at once.
    from llgtrt.serving.schema_check import SchemaChecker

    checker = SchemaChecker(settings.llguidance, tokenizer, jobs)
    many = len(found) > 1 or any(path != STDIN and path.is_dir() for path in files)
    reports = _reports(found, checker, options, jobs)
    if as_json:
        return _print_json(reports)
    return _print_text(reports, len(found), many, options)


def _explain(files: list[Path], options: Options, standard: bool) -> int:
    """Prints the stages of every schema; 1 if one of them is refused."""
    from llgtrt.serving.schema_check import explained

    exit_code = 0
    for file in files:
        for source in read_schemas(file):
            ok, text = False, source.problem
            if text is None:
                ok, text = explained(source.schema, options.residual, standard)
            exit_code |= not ok
            sys.stdout.write(f"# {source.name}\n\n{text}\n")
    return exit_code


def _instances(file: Path | None) -> list[Any]:
    if file is None:
        return []
    try:
        values = json.loads(file.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(f"{file}: {error}") from error
    if not isinstance(values, list):
        raise ConfigError(f"{file}: not a JSON array of instances")
    return values


@dataclass(frozen=True, slots=True)
class Checked:
    """One schema's report. ``file_index`` counts the files that were begun."""

    name: str
    report: dict[str, Any]
    file_index: int


def _reports(files: list[Path], checker: SchemaChecker, options: Options, jobs: int) -> Iterator[Checked]:
    """Reports in the order of the files. A few are made ahead, so that memory stays bounded."""
    ahead: list[tuple[Source, int, Future[dict[str, Any]]]] = []
    with ThreadPoolExecutor(jobs) as pool:
        try:
            for index, file in enumerate(files, 1):
                for source in read_schemas(file):
                    ahead.append((source, index, pool.submit(_check, checker, source, options)))
                    if len(ahead) > 4 * jobs:
                        yield _first(ahead)
            while ahead:
                yield _first(ahead)
        finally:
            for _, _, future in ahead:
                future.cancel()


def _first(ahead: list[tuple[Source, int, Future[dict[str, Any]]]]) -> Checked:
    source, index, future = ahead.pop(0)
    return Checked(source.name, future.result(), index)


def _check(checker: SchemaChecker, source: Source, options: Options) -> dict[str, Any]:
    from llgtrt.serving.schema_check import refused

    if source.problem is not None:
        return refused(source.problem)
    return checker.check(source.schema, options.instances, options.residual)


def _print_json(reports: Iterable[Checked]) -> int:
    summary = Summary()
    results = []
    for checked in reports:
        summary.add(checked.report)
        results.append({"file": checked.name, **checked.report})
    document = {
        "ok": summary.exit_code == 0,
        "checked": summary.checked,
        "refused": summary.refused,
        "results": results,
    }
    sys.stdout.write(json.dumps(document, ensure_ascii=True) + "\n")
    return summary.exit_code


def _print_text(reports: Iterable[Checked], files: int, many: bool, options: Options) -> int:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    console = Console(highlight=False)
    # Where the lines go to a file or a pipe, the bar goes to standard error.
    bar_console = console if console.is_terminal else Console(stderr=True)
    columns = (TextColumn("checking"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    summary = Summary()
    shows_bar = many and bar_console.is_terminal
    with Progress(*columns, console=bar_console, disable=not shows_bar, transient=True) as progress:
        task = progress.add_task("checking", total=files)
        for checked in reports:
            summary.add(checked.report)
            for line in _lines(checked, options):
                console.print(line, markup=False, soft_wrap=True)
            progress.update(task, completed=checked.file_index)
    if many or summary.checked != 1:
        _print_summary(console, summary)
    return summary.exit_code


def _lines(checked: Checked, options: Options) -> Iterator[str]:
    report = checked.report
    if not report["ok"]:
        yield f"refused  {checked.name}"
        for problem in report["errors"]:
            path = problem["path"] or "(root)"
            yield f"         {path}: {problem['message']}"
            if problem["hint"]:
                yield f"           hint: {problem['hint']}"
        return
    rejected = [
        (index, verdict)
        for index, verdict in enumerate(report["instances"])
        if verdict["accepted"] is not True
    ]
    if options.quiet and not rejected:
        return
    rules = ", ".join(_counted(rule["name"], rule["count"]) for rule in report["rules"])
    residual = ", ".join(f"{left['keyword']} at {left['path'] or '(root)'}" for left in report["residual"])
    line = f"ok       {checked.name}"
    line += f"  rules: {rules}" if rules else ""
    line += f"  verified: {residual}" if residual else ""
    yield line
    for index, verdict in rejected:
        at = "" if verdict["rejected_at"] is None else f" at {verdict['rejected_at']}"
        yield f"         instance {index} rejected{at}: {verdict['reason']}"


def _counted(name: str, count: int) -> str:
    return name if count == 1 else f"{name} ({count})"


def _print_summary(console: Console, summary: Summary) -> None:
    from rich.table import Table

    table = Table(title=f"{summary.checked} schemas", title_justify="left")
    table.add_column("")
    table.add_column("schemas", justify="right")
    table.add_row("ok, unchanged", str(summary.unchanged))
    table.add_row("ok, rewritten", str(summary.rewritten))
    if summary.rejecting:
        table.add_row("ok, but reject an instance", str(summary.rejecting))
    table.add_row("refused", str(summary.refused))
    for title, counts in (("rule", summary.rules), ("refused for", summary.reasons)):
        if counts:
            table.add_section()
            for name, count in counts.most_common():
                table.add_row(f"{title} {name}", str(count))
    console.print(table)
