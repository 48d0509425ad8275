"""The metrics of several models in one text."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families

from llgtrt.api.compat_metrics import CompatMetrics
from llgtrt.api.model_metrics import ModelMetrics, merged
from support.fake_engine import FakeNativeEngine, fake_engine

CORE = """# HELP llgtrt_num_requests_running Running.
# TYPE llgtrt_num_requests_running gauge
llgtrt_num_requests_running 3
# HELP llgtrt_request_success_total Ended.
# TYPE llgtrt_request_success_total counter
llgtrt_request_success_total{finished_reason="stop"} 2
"""


async def test_samples_get_the_models_name_once_and_families_stand_together() -> None:
    native = FakeNativeEngine()
    native.metrics = lambda: CORE  # type: ignore[method-assign]
    engine = fake_engine(native)
    texts = []
    for name in ("a", 'b"\\'):
        metrics = ModelMetrics(engine, CompatMetrics(["vllm", "triton"], name, engine, 16))
        metrics.gauge("llgtrt_own", "Of Python.", lambda: 7)
        plain = metrics.text(None)
        assert plain.startswith(CORE)
        assert "\nllgtrt_own 7.0\n" in plain
        texts.append(metrics.text(name))
    families = list(text_string_to_metric_families(merged(texts)))
    assert len({one.name for one in families}) == len(families)
    by_name = {one.name: one for one in families}
    for name, label in (
        ("llgtrt_num_requests_running", "model"),
        ("llgtrt_request_success", "model"),
        ("llgtrt_own", "model"),
        ("vllm:num_requests_running", "model_name"),
        ("nv_inference_pending_request_count", "model"),
    ):
        if name in by_name:
            assert [one.labels[label] for one in by_name[name].samples] == ["a", 'b"\\'], name
    assert by_name["llgtrt_request_success"].samples[0].labels["finished_reason"] == "stop"
    assert {"llgtrt_own", "vllm:num_requests_running"} <= by_name.keys()
    await engine.shutdown()
    native.close()


def test_no_models_are_no_text() -> None:
    assert merged([]) == ""
