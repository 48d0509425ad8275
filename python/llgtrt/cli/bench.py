"""``llgtrt bench``: measures a server from outside."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from llgtrt.bench.workload import (
    PATHS,
    Ask,
    TokenDistribution,
    WorkloadError,
    arrivals,
    body_of,
    read_dataset,
    read_schemas,
)

if TYPE_CHECKING:
    from llgtrt.bench.client import Exchange

NAME = "bench"

PLOTS = (".png", ".html")
NEEDED = ("aiohttp", "jsonschema", "matplotlib", "numpy")
DEFAULT_REQUESTS = 100
DEFAULT_CONCURRENCY = 8

_HELP = """Measure a server with OpenAI's routes, or with Triton's generate route, from outside.

URL is the server's address, such as http://localhost:3000. What is asked comes from --dataset or
--token-norm-dist. Requests are sent --concurrency at a time, or as they come at --request-rate.

The exit code is 0 if every request was answered, and validly under its schema, else 1.
"""


def command() -> click.Command:
    """The command with its options."""
    file = click.Path(path_type=Path, dir_okay=False)
    return click.Command(
        name=f"llgtrt {NAME}",
        callback=_callback,
        help=_HELP,
        params=[
            click.Argument(["url"]),
            click.Option(
                ["--api"],
                type=click.Choice(list(PATHS)),
                default="chat",
                show_default=True,
                help="Route to use: OpenAI's chat or completions, or Triton's generate_stream.",
            ),
            click.Option(
                ["-m", "--model"], help="The model's name. Default: the first that the server lists."
            ),
            click.Option(["--api-key"], envvar="LLGTRT_API_KEY", help="Key to send as a bearer token."),
            click.Option(
                ["--dataset"],
                type=file,
                metavar="FILE",
                help="JSON array or JSON lines: prompts, messages, or conversations as ShareGPT has them.",
            ),
            click.Option(
                ["--token-norm-dist"],
                metavar="IN,SD,OUT,SD",
                help="Random prompts: mean and standard deviation of their tokens and of the answers'.",
            ),
            click.Option(
                ["-n", "--requests", "count"],
                type=click.IntRange(1, 10_000_000),
                help=f"How many. Default: the dataset's, or {DEFAULT_REQUESTS}.",
            ),
            click.Option(
                ["-c", "--concurrency"],
                type=click.IntRange(1, 100_000),
                help=f"Most requests at once. Default: {DEFAULT_CONCURRENCY}; no limit with --request-rate.",
            ),
            click.Option(
                ["-r", "--request-rate"],
                type=click.FloatRange(0, min_open=True),
                help="Requests per second, at random times (a Poisson process).",
            ),
            click.Option(["--seed"], type=int, default=0, show_default=True, help="Of all that is random."),
            click.Option(
                ["--warmup"],
                type=click.IntRange(0, 100_000),
                default=1,
                show_default=True,
                help="Requests before those that count: the first of them, --concurrency at a time.",
            ),
            click.Option(
                ["--max-tokens"],
                type=click.IntRange(1),
                help="Most tokens of every answer, whatever the dataset says.",
            ),
            click.Option(
                ["--ignore-eos/--no-ignore-eos"],
                default=None,
                help="Whether answers have all of max_tokens. "
                "Default: with --token-norm-dist, but not under a schema.",
            ),
            click.Option(
                ["--schemas"],
                type=file,
                metavar="FILE",
                help="JSON schemas, one per line: answers are constrained by them in turn, and checked.",
            ),
            click.Option(
                ["--extra-body"],
                metavar="JSON",
                help="Fields for every request, such as '{\"temperature\": 0.7}'.",
            ),
            click.Option(
                ["--slo", "slos"],
                multiple=True,
                metavar="NAME:MS",
                help="What a good answer keeps: ttft:500, tpot:50, e2e:5000. May be repeated.",
            ),
            click.Option(
                ["--timeout", "timeout_s"],
                type=click.FloatRange(0, min_open=True),
                default=600.0,
                show_default=True,
                help="Longest answer, in seconds.",
            ),
            click.Option(
                ["--json", "json_file"], type=file, metavar="FILE", help="Write all figures; - prints."
            ),
            click.Option(
                ["--plot", "plots"],
                type=file,
                multiple=True,
                metavar="FILE",
                help="Write a picture: a .png, or an .html page. May be repeated.",
            ),
            click.Option(["-q", "--quiet"], is_flag=True, help="No progress bar, no table."),
        ],
    )


def plan(
    *,
    dataset: Path | None,
    token_norm_dist: str | None,
    schemas: Path | None,
    count: int | None,
    seed: int,
    max_tokens: int | None,
    ignore_eos: bool | None,
) -> list[Ask]:
    """The requests of a run.

    Raises:
        WorkloadError: a file or an option cannot be used.
    """
    if (dataset is None) == (token_norm_dist is None):
        raise WorkloadError("give --dataset or --token-norm-dist, one of them")
    if dataset is not None:
        found = read_dataset(dataset)
        asks = [found[index % len(found)] for index in range(count or len(found))]
    else:
        assert token_norm_dist is not None
        asks = TokenDistribution.parse(token_norm_dist).asks(count or DEFAULT_REQUESTS, seed)
    if schemas is not None:
        known = read_schemas(schemas)
        asks = [replace(ask, schema=known[index % len(known)]) for index, ask in enumerate(asks)]
    if max_tokens is not None:
        asks = [replace(ask, max_tokens=max_tokens) for ask in asks]
    whole = [ask.ignore_eos and ask.schema is None if ignore_eos is None else ignore_eos for ask in asks]
    return [replace(ask, ignore_eos=one) for ask, one in zip(asks, whole, strict=True)]


def _callback(url: str, quiet: bool, json_file: Path | None, **options: Any) -> int:
    missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        raise click.ClickException(f"{', '.join(missing)} not installed: pip install 'llgtrt[bench]'")
    try:
        return _measure(url, quiet, json_file, **options)
    except WorkloadError as error:
        raise click.UsageError(str(error)) from None


def _measure(
    url: str,
    quiet: bool,
    json_file: Path | None,
    *,
    api: Any,
    model: str | None,
    api_key: str | None,
    request_rate: float | None,
    concurrency: int | None,
    seed: int,
    warmup: int,
    extra_body: str | None,
    slos: tuple[str, ...],
    timeout_s: float,
    plots: tuple[Path, ...],
    **workload: Any,
) -> int:
    from rich.console import Console

    from llgtrt.bench.client import read_answer, run
    from llgtrt.bench.figures import Slo, figures
    from llgtrt.bench.report import details, table

    bounds = [Slo.parse(text) for text in slos]
    for path in plots:
        if path.suffix not in PLOTS:
            raise WorkloadError(f"{path}: a plot is one of {', '.join(PLOTS)}")
    asks = plan(seed=seed, **workload)
    extra = _object(extra_body)
    base = url.rstrip("/").removesuffix("/v1")
    headers = {"authorization": f"Bearer {api_key}"} if api_key else {}
    name = model or _first_model(base, api, headers)
    target = base + PATHS[api].format(model=urllib.parse.quote(name))
    bodies = [body_of(ask, api, name, extra) for ask in asks]
    if concurrency is None and request_rate is None:
        concurrency = DEFAULT_CONCURRENCY
    due = None if request_rate is None else arrivals(len(asks), request_rate, seed)
    common: dict[str, Any] = {"headers": headers, "timeout_s": timeout_s}
    if warmup:
        first = [bodies[index % len(bodies)] for index in range(warmup)]
        asyncio.run(run(target, first, concurrency=concurrency or DEFAULT_CONCURRENCY, **common))
    with _Progress(len(asks), quiet) as progress:
        exchanges = asyncio.run(
            run(target, bodies, due_s=due, concurrency=concurrency, on_end=progress.advance, **common)
        )
    answers = [read_answer(one) for one in exchanges]
    late = [one.start_s - one.due_s for one in exchanges] if due is not None else []
    result = {
        "url": target,
        "api": api,
        "model": name,
        "concurrency": concurrency,
        "request_rate": request_rate,
        "seed": seed,
        **figures(asks, answers, bounds, late),
    }
    if not quiet and json_file != Path("-"):
        Console().print(table(result))
    if json_file is not None:
        begin_s = min(answer.start_s for answer in answers)
        text = json.dumps({**result, "details": details(answers, begin_s)}, indent=1)
        if json_file == Path("-"):
            click.echo(text)
        else:
            json_file.write_text(text + "\n", encoding="utf-8")
    if plots:
        # Matplotlib takes a second to load.
        from llgtrt.bench.plot import write_plot
    for path in plots:
        write_plot(path, f"{name}, {len(answers)} requests", result, answers)
    validity = result["validity"]
    return int(result["completed"] < result["requests"] or validity["valid"] < validity["checked"])


class _Progress:
    """A bar on standard error, with the requests that have ended and those that failed."""

    def __init__(self, total: int, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=Console(stderr=True),
            disable=quiet,
        )
        self._task = self._bar.add_task("requests", total=total)
        self._failed = 0

    def __enter__(self) -> _Progress:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def advance(self, one: Exchange) -> None:
        """Counts a request that has ended."""
        if one.failure is not None or one.status != 200:
            self._failed += 1
            self._bar.update(self._task, description=f"requests ({self._failed} failed)")
        self._bar.advance(self._task)


def _object(text: str | None) -> dict[str, Any]:
    if text is None:
        return {}
    try:
        value = json.loads(text)
    except ValueError as error:
        raise WorkloadError(f"--extra-body: {error}") from None
    if not isinstance(value, dict):
        raise WorkloadError("--extra-body must be a JSON object")
    return value


def _first_model(base: str, api: str, headers: dict[str, str]) -> str:
    """The name of the first model that the server lists."""
    if api == "triton-generate":
        request = urllib.request.Request(
            f"{base}/v2/repository/index", b'{"ready": true}', headers, method="POST"
        )
    else:
        request = urllib.request.Request(f"{base}/v1/models", None, headers)
    try:
        with urllib.request.urlopen(request, timeout=30) as response:
            listed = json.load(response)
        return str(listed[0]["name"] if api == "triton-generate" else listed["data"][0]["id"])
    except (urllib.error.URLError, OSError, ValueError) as error:
        raise click.ClickException(f"{request.full_url}: {error}") from None
    except (KeyError, IndexError, TypeError):
        raise click.ClickException(f"{request.full_url} lists no model; name one with --model") from None
