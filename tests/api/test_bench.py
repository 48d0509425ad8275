"""``llgtrt bench`` against the simulated engine: counts, order, validity; never a time."""

from __future__ import annotations

import json
import xml.etree.ElementTree
from pathlib import Path
from typing import Any

import pytest

from support.server import ServerProcess, run_llgtrt
from support.sim import FAIL_PROMPT

SCHEMAS = [
    {
        "type": "object",
        "properties": {"a": {"type": "integer"}},
        "required": ["a"],
        "additionalProperties": False,
    },
    {"enum": ["x", 1, None]},
]
APIS = ("chat", "completions", "triton-generate")


def bench(server: ServerProcess, *arguments: str, code: int = 0) -> dict[str, Any]:
    """The figures of a run."""
    process = run_llgtrt("bench", server.base_url, "-q", "--json", "-", *arguments)
    assert process.returncode == code, process.stderr
    result: dict[str, Any] = json.loads(process.stdout)
    return result


@pytest.mark.parametrize("api", APIS)
def test_every_request_is_counted_once(server: ServerProcess, api: str) -> None:
    before = server.metrics()
    result = bench(
        server, "--api", api, "--token-norm-dist", "20,5,9,3", "-n", "30", "-c", "7", "--warmup", "2"
    )
    after = server.metrics()
    assert (result["requests"], result["completed"], result["errors"]) == (30, 30, {})
    assert result["model"] == "sim-model"
    assert result["output_tokens_counted_by"] == "server"

    def grown(name: str) -> float:
        return sum(value - before.get(key, 0) for key, value in after.items() if key.split("{")[0] == name)

    assert grown("llgtrt_request_success_total") == 32
    details = result["details"]
    assert sum(one["output_tokens"] for one in details) == result["output_tokens"]
    # The warm-up repeats the first requests.
    warm = sum(one["output_tokens"] for one in details[:2])
    assert grown("llgtrt_generation_tokens_total") == result["output_tokens"] + warm
    if api != "triton-generate":
        assert result["input_tokens"] == sum(one["input_tokens"] for one in details)
    for one in details:
        assert one["finish_reason"] in ("length", None)
        assert 0 <= one["start_s"] < one["start_s"] + one["ttft_s"] <= one["end_s"]
        assert all(gap >= 0 for gap in one["gaps_s"])
        assert one["ttft_s"] + sum(one["gaps_s"]) <= one["end_s"] - one["start_s"] + 1e-9
    assert server.is_idle()


def test_no_more_at_once_than_asked_for(server: ServerProcess) -> None:
    details = bench(server, "--token-norm-dist", "20,5,9,3", "-n", "20", "-c", "3")["details"]
    changes = sorted([(one["start_s"], 1) for one in details] + [(one["end_s"], -1) for one in details])
    running = most = 0
    for _, change in changes:
        running += change
        most = max(most, running)
    assert most <= 3


def test_a_rate_sends_in_the_order_of_the_schedule(server: ServerProcess) -> None:
    arguments = ["--token-norm-dist", "20,5,9,3", "-n", "20", "-r", "500", "--seed", "4"]
    details = bench(server, *arguments)["details"]
    starts = [one["start_s"] for one in details]
    assert starts == sorted(starts)
    again = bench(server, *arguments)["details"]
    assert [one["output_tokens"] for one in again] == [one["output_tokens"] for one in details]


@pytest.mark.parametrize("api", APIS)
def test_answers_are_checked_under_their_schemas(server: ServerProcess, tmp_path: Path, api: str) -> None:
    file = tmp_path / "schemas.jsonl"
    file.write_text("\n".join(map(json.dumps, SCHEMAS)))
    dataset = tmp_path / "data.jsonl"
    dataset.write_text("\n".join(json.dumps({"prompt": f"Number {number}"}) for number in range(6)))
    common = ("--api", api, "--dataset", str(dataset), "--schemas", str(file), "--max-tokens", "60")
    result = bench(server, *common)
    assert result["validity"] == {"checked": 6, "valid": 6, "problems": []}
    # Without the constraint the sim writes letters: the check must see that.
    off = {"response_format": None, "guided_decoding_guide": None, "guided_decoding_guide_type": None}
    names = ["response_format"] if api != "triton-generate" else list(off)[1:]
    extra = json.dumps({name: off[name] for name in names})
    broken = bench(server, *common, "--extra-body", extra, code=1)
    assert (broken["validity"]["checked"], broken["validity"]["valid"]) == (6, 0)
    assert broken["goodput"]["requests"] == 0


def test_failures_are_counted_and_named(server: ServerProcess, tmp_path: Path) -> None:
    dataset = tmp_path / "data.json"
    dataset.write_text(json.dumps([{"prompt": FAIL_PROMPT}, {"prompt": "fine"}, {"prompt": "fine"}]))
    result = bench(server, "--dataset", str(dataset), "--max-tokens", "20", "--warmup", "0", code=1)
    assert (result["requests"], result["completed"]) == (3, 2)
    assert sum(result["errors"].values()) == 1
    missing = bench(server, "--dataset", str(dataset), "-m", "other", "--warmup", "0", code=1)
    assert missing["completed"] == 0
    assert list(missing["errors"].values()) == [3]
    assert "other" in next(iter(missing["errors"]))


def test_table_and_plots(server: ServerProcess, tmp_path: Path) -> None:
    picture, page, figures = (tmp_path / name for name in ("run.png", "run.html", "run.json"))
    arguments = ["--token-norm-dist", "20,5,9,3", "-n", "12", "--slo", "ttft:60000", "--slo", "e2e:60000"]
    files = ["--plot", str(picture), "--plot", str(page), "--json", str(figures)]
    process = run_llgtrt("bench", f"{server.base_url}/v1/", *arguments, *files)
    assert process.returncode == 0, process.stderr
    assert "12 of 12" in process.stdout
    assert "time to first token" in process.stdout
    assert "12 (100.0%)" in process.stdout
    assert picture.read_bytes().startswith(b"\x89PNG\r\n\x1a\n")
    text = page.read_text()
    xml.etree.ElementTree.fromstring(text[text.index("<svg") : text.index("</svg>") + 6])
    assert "12 of 12" in text
    assert "src=" not in text, "the page needs nothing else"
    assert json.loads(figures.read_text())["goodput"]["requests"] == 12
