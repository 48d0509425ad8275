"""The core's figures under other servers' names, read back by Prometheus' own parser."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import Metric
from prometheus_client.parser import text_string_to_metric_families

from llgtrt.api.compat_metrics import TRITON, TRTLLM, VLLM, CompatMetrics
from support.fake_engine import FakeNativeEngine, fake_engine

CORE = """# HELP llgtrt_num_requests_running x
# TYPE llgtrt_num_requests_running gauge
llgtrt_num_requests_running 3
# TYPE llgtrt_num_requests_waiting gauge
llgtrt_num_requests_waiting 5
# TYPE llgtrt_kv_cache_usage_perc gauge
llgtrt_kv_cache_usage_perc 0.25
# TYPE llgtrt_forward_passes_total counter
llgtrt_forward_passes_total 77
# TYPE llgtrt_prompt_tokens_total counter
llgtrt_prompt_tokens_total 12345678901
# TYPE llgtrt_request_success_total counter
llgtrt_request_success_total{finished_reason="abort"} 1
llgtrt_request_success_total{finished_reason="error"} 2
llgtrt_request_success_total{finished_reason="handed_over"} 4
llgtrt_request_success_total{finished_reason="length"} 10
llgtrt_request_success_total{finished_reason="stop"} 20
# TYPE llgtrt_request_prefill_time_seconds histogram
llgtrt_request_prefill_time_seconds_bucket{le="0.5"} 3
llgtrt_request_prefill_time_seconds_bucket{le="+Inf"} 4
llgtrt_request_prefill_time_seconds_sum 1.5
llgtrt_request_prefill_time_seconds_count 4
# TYPE llgtrt_request_decode_time_seconds histogram
llgtrt_request_decode_time_seconds_bucket{le="+Inf"} 4
llgtrt_request_decode_time_seconds_sum 0.25
llgtrt_request_decode_time_seconds_count 4
# TYPE llgtrt_request_prompt_tokens histogram
llgtrt_request_prompt_tokens_bucket{le="10"} 3
llgtrt_request_prompt_tokens_bucket{le="+Inf"} 4
llgtrt_request_prompt_tokens_sum 77
llgtrt_request_prompt_tokens_count 4
"""
MODEL = 'a "model"\\with\nlines'

Make = Callable[..., CompatMetrics]


@pytest.fixture
async def make() -> AsyncIterator[Make]:
    """Builds the families on an engine with some properties."""
    natives: list[FakeNativeEngine] = []

    def build(*names: Any, model: str = "m", **info: Any) -> CompatMetrics:
        natives.append(FakeNativeEngine(**info))
        return CompatMetrics(names, model, fake_engine(natives[-1]), 16)

    yield build
    for native in natives:
        native.close()


def parse(text: str) -> dict[str, Metric]:
    """The families of an exposition; fails if one comes twice."""
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    return {family.name: family for family in families}


def values(family: Metric, label: str) -> dict[str, float]:
    return {sample.labels[label]: sample.value for sample in family.samples}


async def test_vllm(make: Make) -> None:
    families = parse(make("vllm", model=MODEL).text(CORE))
    labels = {"engine": "0", "model_name": MODEL}
    for name, value in (
        ("num_requests_running", 3),
        ("num_requests_waiting", 5),
        ("kv_cache_usage_perc", 0.25),
        ("gpu_cache_usage_perc", 0.25),
        ("prompt_tokens", 12345678901),
    ):
        (sample,) = families[f"vllm:{name}"].samples
        assert (sample.labels, sample.value) == (labels, value)
    assert families["vllm:prompt_tokens"].type == "counter"
    ended = families["vllm:request_success"]
    assert values(ended, "finished_reason") == {
        "abort": 1,
        "error": 2,
        "handed_over": 4,
        "length": 10,
        "stop": 20,
    }
    prefill = families["vllm:request_prefill_time_seconds"]
    assert prefill.type == "histogram"
    suffixes = {sample.name.removeprefix(prefill.name): sample.value for sample in prefill.samples}
    assert suffixes == {"_bucket": 4, "_sum": 1.5, "_count": 4}
    assert prefill.samples[0].labels == {**labels, "le": "0.5"}
    assert "vllm:num_generation_tokens" not in families, "no figure, no family"
    assert not any(name.startswith("nv_") for name in families)
    assert "vllm:cache_config_info" not in families, "the engine does not say"


async def test_triton(make: Make) -> None:
    families = parse(make("triton", model=MODEL).text(CORE))
    for family in families.values():
        for sample in family.samples:
            assert (sample.labels["model"], sample.labels["version"]) == (MODEL, "1")
    requests = values(families["nv_trt_llm_request_metrics"], "request_type")
    assert requests == {"active": 3, "scheduled": 3, "waiting": 5, "max": 8}
    general = values(families["nv_trt_llm_general_metrics"], "general_type")
    assert general["iteration_counter"] == 77
    assert general["timestamp"] > 1_700_000_000
    blocks = values(families["nv_trt_llm_kv_cache_block_metrics"], "kv_cache_block_type")
    assert blocks == {"fraction": 0.25}
    assert [one.value for one in families["nv_inference_request_success"].samples] == [34]
    assert [one.value for one in families["nv_inference_request_failure"].samples] == [2]
    assert [one.value for one in families["nv_inference_compute_infer_duration_us"].samples] == [1_750_000]
    lengths = families["nv_llm_input_token_len"]
    assert lengths.type == "histogram"
    assert {sample.name: sample.value for sample in lengths.samples}["nv_llm_input_token_len_sum"] == 77
    assert not any(name.startswith("vllm:") for name in families)


async def test_blocks_of_llama_cpps_cache(make: Make) -> None:
    text = make("vllm", "triton", backend="llamacpp", max_batch_size=4, max_sequence_tokens=100).text(CORE)
    families = parse(text)
    blocks = values(families["nv_trt_llm_kv_cache_block_metrics"], "kv_cache_block_type")
    assert blocks == {"fraction": 0.25, "max": 25, "used": 7, "free": 18, "tokens_per": 16}
    (info,) = families["vllm:cache_config_info"].samples
    assert (info.labels["block_size"], info.labels["num_gpu_blocks"], info.value) == ("16", "25", 1)


async def test_what_tensorrt_llm_says_of_its_cache_and_memory(make: Make) -> None:
    said = """# TYPE llgtrt_kv_cache_blocks gauge
llgtrt_kv_cache_blocks{kind="free"} 60
llgtrt_kv_cache_blocks{kind="max"} 100
llgtrt_kv_cache_blocks{kind="used"} 40
# TYPE llgtrt_kv_cache_block_tokens gauge
llgtrt_kv_cache_block_tokens 64
# TYPE llgtrt_runtime_memory_bytes gauge
llgtrt_runtime_memory_bytes{kind="cpu"} 2
llgtrt_runtime_memory_bytes{kind="gpu"} 3000000000
llgtrt_runtime_memory_bytes{kind="pinned"} 1
# TYPE llgtrt_context_tokens gauge
llgtrt_context_tokens 512
# TYPE llgtrt_batch_sequences gauge
llgtrt_batch_sequences{phase="context"} 2
llgtrt_batch_sequences{phase="generation"} 30
llgtrt_batch_sequences{phase="paused"} 0
llgtrt_batch_sequences{phase="scheduled"} 32
# TYPE llgtrt_micro_batch_id gauge
llgtrt_micro_batch_id 1
"""
    families = parse(make("vllm", "triton", "trtllm", backend="trtllm").text(CORE + said))
    blocks = values(families["nv_trt_llm_kv_cache_block_metrics"], "kv_cache_block_type")
    assert blocks == {"fraction": 0.25, "max": 100, "used": 40, "free": 60, "tokens_per": 64}
    memory = values(families["nv_trt_llm_runtime_memory_metrics"], "memory_type")
    assert memory == {"gpu": 3e9, "cpu": 2, "pinned": 1}
    batcher = families["nv_trt_llm_inflight_batcher_metrics"]
    specific = {"total_context_tokens": 512, "micro_batch_id": 1, "generation_requests": 30}
    assert values(batcher, "inflight_batcher_specific_metric") == specific
    requests = values(families["nv_trt_llm_request_metrics"], "request_type")
    assert (requests["scheduled"], requests["context"]) == (32, 2)
    (info,) = families["vllm:cache_config_info"].samples
    assert (info.labels["block_size"], info.labels["num_gpu_blocks"]) == ("64", "100")
    assert families["trtllm_kv_cache_used_blocks"].samples[0].value == 40


async def test_trtllm_serve(make: Make) -> None:
    whole = parse(make("trtllm", backend="llamacpp", max_batch_size=4, max_sequence_tokens=100).text(CORE))
    single = {name: family.samples[0].value for name, family in whole.items() if len(family.samples) == 1}
    assert single == {
        "trtllm_num_requests_running": 3,
        "trtllm_num_requests_waiting": 5,
        "trtllm_kv_cache_utilization": 0.25,
        "trtllm_kv_cache_max_blocks": 25,
        "trtllm_kv_cache_used_blocks": 7,
        "trtllm_kv_cache_free_blocks": 18,
        "trtllm_kv_cache_tokens_per_block": 16,
        "trtllm_prompt_tokens": 12345678901,
    }
    labels = whole["trtllm_kv_cache_utilization"].samples[0].labels
    assert labels == {"model_name": "m", "engine_type": "llamacpp"}
    assert values(whole["trtllm_request_success"], "finished_reason")["stop"] == 20
    assert not [name for name in parse(make("trtllm").text(CORE)) if "block" in name]


async def test_adapters(make: Make) -> None:
    def lora(text: str) -> dict[str, str]:
        (sample,) = parse(text)["vllm:lora_requests_info"].samples
        assert sample.value > 1_700_000_000
        return dict(sample.labels)

    native = FakeNativeEngine(adapters=["red", "blue"])
    engine = fake_engine(native)
    metrics = CompatMetrics(["vllm"], "m", engine, 16)
    nothing = {"max_lora": "2", "running_lora_adapters": "", "waiting_lora_adapters": ""}
    assert lora(metrics.text(CORE)) == nothing
    request: Any = object()
    permit: Any = object()
    streams = [engine.submit(request, permit, one) for one in ("red", "blue", "red", None)]
    assert lora(metrics.text(CORE)) == {**nothing, "running_lora_adapters": "blue,red"}
    streams[1].cancel()
    assert lora(metrics.text(CORE)) == {**nothing, "running_lora_adapters": "red"}
    streams[0].cancel()
    streams[2].cancel()
    assert lora(metrics.text(CORE)) == nothing
    await engine.shutdown()
    native.close()


async def test_none(make: Make) -> None:
    assert make().text(CORE) == ""
    assert set(parse(make("vllm", "triton").text("# nothing\n"))) == {
        "vllm:lora_requests_info",
        "nv_trt_llm_request_metrics",
        "nv_trt_llm_general_metrics",
    }


def test_the_page_names_every_family() -> None:
    page = (Path(__file__).parents[3] / "docs" / "metrics.md").read_text()
    for row in (*VLLM, *TRITON, *TRTLLM):
        assert f"`{row.name}" in page, row.name
        assert f"`{row.ours}" in page, row.ours


async def test_whether_prefixes_are_cached() -> None:
    native = FakeNativeEngine(backend="llamacpp", max_batch_size=4, max_sequence_tokens=100)
    engine = fake_engine(native)
    for cached in (True, False):
        metrics = CompatMetrics(["vllm"], "m", engine, 16, prefix_caching=cached)
        (info,) = parse(metrics.text(CORE))["vllm:cache_config_info"].samples
        assert info.labels["enable_prefix_caching"] == str(cached)
    await engine.shutdown()
    native.close()
