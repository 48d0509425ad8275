"""Metrics of one model, and how those of several stand in one text."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.exposition import generate_latest

from llgtrt.api.compat_metrics import CompatMetrics, label_text
from llgtrt.engine import AsyncEngine


class ModelMetrics:
    """The core's figures, under other names as well, and those that Python has of the model.

    Args:
        engine: the core.
        compat: makes the families under other names.
    """

    def __init__(self, engine: AsyncEngine, compat: CompatMetrics) -> None:
        self._engine = engine
        self._compat = compat
        self.registry = CollectorRegistry()

    def gauge(self, name: str, text: str, value: Callable[[], float]) -> None:
        """Adds a gauge that is read when it is asked for."""
        Gauge(name, text, registry=self.registry).set_function(value)

    def text(self, label: str | None) -> str:
        """All in Prometheus' text format; with a label ``model`` on the families that have none."""
        core = self._engine.metrics()
        own = core + generate_latest(self.registry).decode()
        if label is not None:
            own = "\n".join(_labelled(own.splitlines(), label_text({"model": label}))) + "\n"
        return own + self._compat.text(core, label is not None)


def merged(texts: Iterable[str]) -> str:
    """One text of several in which the same families occur: a family's samples have to stand together."""
    heads: dict[str, dict[str, None]] = {}
    samples: dict[str, list[str]] = {}
    for text in texts:
        family = ""
        for line in text.splitlines():
            if line.startswith(("# HELP ", "# TYPE ")):
                family = line.split(" ", 3)[2]
                heads.setdefault(family, {})[line] = None
            elif line and not line.startswith("#"):
                samples.setdefault(family, []).append(line)
    lines = [line for family in samples for line in (*heads.get(family, ()), *samples[family])]
    return "\n".join(lines) + "\n" if lines else ""


def _labelled(lines: Iterable[str], labels: str) -> Iterator[str]:
    """The lines with labels, such as ``{model="a"}``, in front of those that samples have."""
    for line in lines:
        if not line or line.startswith("#"):
            yield line
            continue
        name, _, value = line.rpartition(" ")
        name, brace, rest = name.partition("{")
        yield f"{name}{labels[:-1]},{rest} {value}" if brace else f"{name}{labels} {value}"
