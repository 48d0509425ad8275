"""The run as a picture: PNG, or a page of HTML that needs nothing else."""

from __future__ import annotations

import html
import io
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from llgtrt.bench.client import Answer
from llgtrt.bench.report import LATENCIES, rows


def write_plot(path: Path, title: str, result: dict[str, Any], answers: Sequence[Answer]) -> None:
    """Writes the picture: a PNG if the file's name says so, else a page."""
    figure = draw(title, answers)
    if path.suffix == ".png":
        figure.savefig(path, format="png", dpi=110)
        return
    picture = io.StringIO()
    figure.savefig(picture, format="svg")
    path.write_text(_page(title, result, picture.getvalue()), encoding="utf-8")


def draw(title: str, answers: Sequence[Answer]) -> Figure:
    """Four panels: first tokens, gaps, what ran when, and length against time."""
    done = [answer for answer in answers if answer.error is None]
    figure = Figure(figsize=(11, 7), layout="constrained")
    FigureCanvasAgg(figure)
    figure.suptitle(title)
    panels = figure.subplots(2, 2)
    _cumulative(panels[0][0], "time to first token, ms", [one.ttft_s for one in done])
    _cumulative(panels[0][1], "gap between events, ms", [gap for one in done for gap in one.gaps_s])
    _in_flight(panels[1][0], answers)
    lengths = panels[1][1]
    lengths.scatter([one.tokens for one in done], [one.e2e_s for one in done], s=8)
    lengths.set_xlabel("output tokens")
    lengths.set_ylabel("end to end, s")
    return figure


def _cumulative(axes: Axes, name: str, values: Sequence[float | None]) -> None:
    """The share of values up to each."""
    data = np.sort(np.asarray([value * 1000 for value in values if value is not None], dtype=float))
    if data.size:
        axes.step(data, np.arange(1, data.size + 1) / data.size, where="post")
    axes.set_xlabel(name)
    axes.set_ylabel("share of values")
    axes.set_ylim(0, 1)
    axes.grid(alpha=0.3)


def _in_flight(axes: Axes, answers: Sequence[Answer]) -> None:
    """How many requests ran at each time."""
    axes.set_xlabel("s from the first request")
    axes.set_ylabel("requests at once")
    if not answers:
        return
    begin_s = min(one.start_s for one in answers)
    begins = [(one.start_s - begin_s, 1) for one in answers]
    changes = sorted(begins + [(one.end_s - begin_s, -1) for one in answers])
    axes.step([at for at, _ in changes], np.cumsum([change for _, change in changes]), where="post")
    axes.set_ylim(bottom=0)


def _page(title: str, result: dict[str, Any], picture: str) -> str:
    svg = picture[picture.index("<svg") :]
    counts = "".join(
        f"<tr><th>{html.escape(name)}</th><td>{html.escape(value)}</td></tr>" for name, value in rows(result)
    )
    columns = next((list(result[key]) for key in LATENCIES if result[key]), [])
    head = "".join(f"<th>{column}</th>" for column in columns)
    latencies = "".join(
        f"<tr><th>{name}</th>{''.join(f'<td>{value:,.2f}</td>' for value in result[key].values())}</tr>"
        for key, name in LATENCIES.items()
        if result[key]
    )
    data = json.dumps(result, indent=1)
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><title>{html.escape(title)}</title>
<style>body{{font:15px sans-serif;max-width:72em;margin:2em auto}}
table{{border-collapse:collapse;margin:1em 0}}
th{{text-align:left;font-weight:normal;padding:.1em 1em .1em 0}}td{{text-align:right;padding:.1em .7em}}
svg{{max-width:100%;height:auto}}</style>
<h1>{html.escape(title)}</h1><table>{counts}</table>
<table><tr><th>milliseconds</th>{head}</tr>{latencies}</table>
{svg}<details><summary>JSON</summary><pre>{html.escape(data)}</pre></details></html>
"""
