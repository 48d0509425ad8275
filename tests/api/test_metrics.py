"""``/metrics`` of a real process, read by Prometheus' own parser."""

from __future__ import annotations

import httpx
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from llgtrt.api.compat_metrics import TRITON, TRTLLM, VLLM
from support.api import COMPLETIONS, ok
from support.server import ServerProcess
from support.sim import StartServer


def families(server: ServerProcess) -> dict[str, Metric]:
    """All families of one scrape; fails if one comes twice."""
    response = server.get("/metrics")
    assert response.status_code == 200
    found = list(text_string_to_metric_families(response.text))
    assert len({family.name for family in found}) == len(found)
    return {family.name: family for family in found}


def sample(metrics: dict[str, Metric], family: str, name: str, **labels: str) -> float:
    """The one sample of a name and some of its labels."""
    (value,) = (
        one.value
        for one in metrics[family].samples
        if one.name == name and labels.items() <= one.labels.items()
    )
    return float(value)


SAID_BY_TENSORRT_LLM_ALONE = {
    "llgtrt_runtime_memory_bytes",
    "llgtrt_context_tokens",
    "llgtrt_batch_sequences",
    "llgtrt_micro_batch_id",
}


def test_every_figure_under_other_names(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.base_url) as http:
        ok(http.post(COMPLETIONS, json={"prompt": ["a", "b"], "max_tokens": 5}))
    metrics = families(server)
    text = server.get("/metrics").text
    for row in (*VLLM, *TRITON):
        if row.ours in SAID_BY_TENSORRT_LLM_ALONE:
            assert row.ours not in text
            others = metrics[row.name].samples if row.name in metrics else []
            assert not any(row.labels.items() <= one.labels.items() for one in others)
            continue
        assert f"# TYPE {row.ours} " in text, f"{row.ours} is no metric of the core"
        family = row.name.removesuffix("_total") if row.kind == "counter" else row.name
        assert metrics[family].type == row.kind
    for name in ("prompt_tokens", "generation_tokens"):
        ours = sample(metrics, f"llgtrt_{name}", f"llgtrt_{name}_total")
        theirs = sample(metrics, f"vllm:{name}", f"vllm:{name}_total", model_name="sim-model")
        assert ours == theirs > 0
    for own, foreign in (
        ("llgtrt_time_to_first_token_seconds", "vllm:time_to_first_token_seconds"),
        ("llgtrt_inter_token_latency_seconds", "vllm:time_per_output_token_seconds"),
        ("llgtrt_e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"),
    ):
        mine, yours = (
            [(one.name.removeprefix(name), one.labels.get("le"), one.value) for one in metrics[name].samples]
            for name in (own, foreign)
        )
        assert mine == yours
    ended = sum(
        one.value
        for one in metrics["llgtrt_request_success"].samples
        if one.labels["finished_reason"] in ("stop", "length")
    )
    success = "nv_inference_request_success"
    # The parser puts the suffix on names of counters that are without, as Triton's are.
    assert sample(metrics, success, f"{success}_total", version="1") == ended
    requests = "nv_trt_llm_request_metrics"
    assert sample(metrics, requests, requests, request_type="max", model="sim-model") == 16


def test_only_ours(start_server: StartServer) -> None:
    names = families(start_server(metrics={"compat": []}))
    assert "llgtrt_num_requests_running" in names
    assert not [name for name in names if name.startswith(("vllm:", "nv_"))]
    names = families(start_server("--set", 'metrics.compat=["vllm","trtllm"]'))
    assert [name for name in names if name.startswith("vllm:")]
    assert not [name for name in names if name.startswith("nv_")]
    # Nothing has ended yet, and the core has no sample of a kind that never came.
    missing = {row.name.removesuffix("_total") for row in TRTLLM} - set(names)
    assert missing == {"trtllm_request_success"}
