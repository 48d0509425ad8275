"""The core's figures under the names that vLLM, Triton and trtllm-serve give them.

One table for each: a family of theirs, and which of ours it holds. A figure that the engine does not have is
left out; none is made up. The core's text is renamed line by line, as routers ask for it many times a second.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from llgtrt.config import MetricNames
from llgtrt.engine import AsyncEngine


@dataclass(frozen=True, slots=True)
class Row:
    """A family of theirs.

    Attributes:
        name: what they call it; a counter's ends with ``_total`` where theirs does.
        kind: ``gauge``, ``counter`` or ``histogram``.
        ours: the family that it holds.
        labels: further labels.
        part: the one sample of ours that is taken, by what follows the family's name: a suffix and labels.
            None: all, with their own suffixes and labels.
        scale: what ours is multiplied by.
    """

    name: str
    kind: str
    ours: str
    labels: dict[str, str] = field(default_factory=dict)
    part: str | None = None
    scale: float = 1.0


VLLM = (
    Row("vllm:num_requests_running", "gauge", "llgtrt_num_requests_running"),
    Row("vllm:num_requests_waiting", "gauge", "llgtrt_num_requests_waiting"),
    Row("vllm:kv_cache_usage_perc", "gauge", "llgtrt_kv_cache_usage_perc"),
    Row("vllm:gpu_cache_usage_perc", "gauge", "llgtrt_kv_cache_usage_perc"),
    Row("vllm:prefix_cache_queries_total", "counter", "llgtrt_prefix_cache_queries"),
    Row("vllm:prefix_cache_hits_total", "counter", "llgtrt_prefix_cache_hits"),
    Row("vllm:prompt_tokens_total", "counter", "llgtrt_prompt_tokens_total"),
    Row("vllm:generation_tokens_total", "counter", "llgtrt_generation_tokens_total"),
    Row("vllm:spec_decode_num_draft_tokens_total", "counter", "llgtrt_draft_tokens_total"),
    Row("vllm:spec_decode_num_accepted_tokens_total", "counter", "llgtrt_accepted_draft_tokens_total"),
    Row("vllm:request_success_total", "counter", "llgtrt_request_success_total"),
    Row("vllm:time_to_first_token_seconds", "histogram", "llgtrt_time_to_first_token_seconds"),
    Row("vllm:time_per_output_token_seconds", "histogram", "llgtrt_inter_token_latency_seconds"),
    Row("vllm:inter_token_latency_seconds", "histogram", "llgtrt_inter_token_latency_seconds"),
    Row("vllm:e2e_request_latency_seconds", "histogram", "llgtrt_e2e_request_latency_seconds"),
    Row("vllm:request_queue_time_seconds", "histogram", "llgtrt_request_queue_time_seconds"),
    Row("vllm:request_prefill_time_seconds", "histogram", "llgtrt_request_prefill_time_seconds"),
    Row("vllm:request_decode_time_seconds", "histogram", "llgtrt_request_decode_time_seconds"),
    Row("vllm:request_prompt_tokens", "histogram", "llgtrt_request_prompt_tokens"),
    Row("vllm:request_generation_tokens", "histogram", "llgtrt_request_generation_tokens"),
)

TRTLLM = (
    Row("trtllm_num_requests_running", "gauge", "llgtrt_num_requests_running"),
    Row("trtllm_num_requests_waiting", "gauge", "llgtrt_num_requests_waiting"),
    Row("trtllm_kv_cache_utilization", "gauge", "llgtrt_kv_cache_usage_perc"),
    Row("trtllm_prompt_tokens_total", "counter", "llgtrt_prompt_tokens_total"),
    Row("trtllm_generation_tokens_total", "counter", "llgtrt_generation_tokens_total"),
    Row("trtllm_request_success_total", "counter", "llgtrt_request_success_total"),
    Row("trtllm_time_to_first_token_seconds", "histogram", "llgtrt_time_to_first_token_seconds"),
    Row("trtllm_time_per_output_token_seconds", "histogram", "llgtrt_inter_token_latency_seconds"),
    Row("trtllm_e2e_request_latency_seconds", "histogram", "llgtrt_e2e_request_latency_seconds"),
    Row("trtllm_request_queue_time_seconds", "histogram", "llgtrt_request_queue_time_seconds"),
    Row("trtllm_request_prefill_time_seconds", "histogram", "llgtrt_request_prefill_time_seconds"),
    Row("trtllm_request_decode_time_seconds", "histogram", "llgtrt_request_decode_time_seconds"),
)
"""Of trtllm-serve."""

US = 1_000_000
_REQUESTS = "nv_trt_llm_request_metrics"
_BLOCKS = "nv_trt_llm_kv_cache_block_metrics"
_GENERAL = "nv_trt_llm_general_metrics"
_MEMORY = "nv_trt_llm_runtime_memory_metrics"
_BATCHER = "nv_trt_llm_inflight_batcher_metrics"
_SPECIFIC = "inflight_batcher_specific_metric"
_ENDED = "llgtrt_request_success_total"
_STOP, _LENGTH, _HANDED_OVER, _ERROR = (
    f'{{finished_reason="{reason}"}}' for reason in ("stop", "length", "handed_over", "error")
)


def _micros(name: str, ours: str) -> Row:
    """The sum of a histogram of seconds, in microseconds."""
    return Row(name, "counter", ours, part="_sum", scale=US)


def _batch(phase: str, name: str, labels: dict[str, str]) -> Row:
    """The sequences of a phase in the last forward pass."""
    return Row(name, "gauge", "llgtrt_batch_sequences", labels, part=f'{{phase="{phase}"}}')


TRITON = (
    Row(_REQUESTS, "gauge", "llgtrt_num_requests_running", {"request_type": "active"}),
    _batch("context", _REQUESTS, {"request_type": "context"}),
    Row(_REQUESTS, "gauge", "llgtrt_num_requests_waiting", {"request_type": "waiting"}),
    Row(_BLOCKS, "gauge", "llgtrt_kv_cache_usage_perc", {"kv_cache_block_type": "fraction"}),
    Row(_GENERAL, "gauge", "llgtrt_forward_passes_total", {"general_type": "iteration_counter"}),
    *(
        Row(_MEMORY, "gauge", "llgtrt_runtime_memory_bytes", {"memory_type": kind}, part=f'{{kind="{kind}"}}')
        for kind in ("gpu", "cpu", "pinned")
    ),
    Row(_BATCHER, "gauge", "llgtrt_context_tokens", {_SPECIFIC: "total_context_tokens"}),
    Row(_BATCHER, "gauge", "llgtrt_micro_batch_id", {_SPECIFIC: "micro_batch_id"}),
    _batch("generation", _BATCHER, {_SPECIFIC: "generation_requests"}),
    Row("nv_llm_input_token_len", "histogram", "llgtrt_request_prompt_tokens"),
    Row("nv_llm_output_token_len", "histogram", "llgtrt_request_generation_tokens"),
    Row("nv_inference_pending_request_count", "gauge", "llgtrt_num_requests_waiting"),
    Row("nv_inference_request_success", "counter", _ENDED, part=_STOP),
    Row("nv_inference_request_success", "counter", _ENDED, part=_LENGTH),
    Row("nv_inference_request_success", "counter", _ENDED, part=_HANDED_OVER),
    Row("nv_inference_request_failure", "counter", _ENDED, part=_ERROR),
    Row("nv_inference_exec_count", "counter", "llgtrt_forward_passes_total"),
    _micros("nv_inference_request_duration_us", "llgtrt_e2e_request_latency_seconds"),
    _micros("nv_inference_queue_duration_us", "llgtrt_request_queue_time_seconds"),
    _micros("nv_inference_compute_infer_duration_us", "llgtrt_request_prefill_time_seconds"),
    _micros("nv_inference_compute_infer_duration_us", "llgtrt_request_decode_time_seconds"),
)
"""Rows of one name and the same labels are added up."""

OWN_BLOCKS = "llgtrt_kv_cache_blocks"
OWN_BLOCK_TOKENS = "llgtrt_kv_cache_block_tokens"
"""What an engine says whose cache has blocks."""

Samples = dict[str, list[tuple[str, str]]]
"""By family: what follows its name in a sample, and the value."""


class CompatMetrics:
    """Writes the families of other servers.

    Args:
        names: whose.
        model: the served model's name.
        engine: whose figures they are.
        block_tokens: llama.cpp's cache has no blocks, and routers count in them: so many of its cells are
            one, as in the KV events.
        prefix_caching: whether finished prompts are kept.
    """

    def __init__(
        self,
        names: Sequence[MetricNames],
        model: str,
        engine: AsyncEngine,
        block_tokens: int,
        *,
        prefix_caching: bool = True,
    ) -> None:
        self._names = names
        self._model = model
        self._engine = engine
        self._prefix_caching = prefix_caching
        info = engine.model_info
        cells = info.max_batch_size * info.max_sequence_tokens if info.backend == "llamacpp" else 0
        self._block_tokens = block_tokens
        self._blocks = cells // block_tokens
        """Blocks of llama.cpp's cache; 0 with another engine."""

    def text(self, core: str, one_of_several: bool = False) -> str:
        """The families for the core's text exposition; of several models each sample says which it is of."""
        if not self._names:
            return ""
        samples = _samples(core)
        lines: list[str] = []
        if "vllm" in self._names:
            labels = {"engine": "0", "model_name": self._model}
            lines += _write(VLLM, samples, labels)
            lines += self._vllm_infos(samples, labels, one_of_several)
        if "triton" in self._names:
            labels = {"model": self._model, "version": "1"}
            lines += _write([*TRITON, *self._triton_constants(samples)], samples, labels)
        if "trtllm" in self._names:
            labels = {"model_name": self._model, "engine_type": self._engine.model_info.backend}
            lines += _write([*TRTLLM, *self._trtllm_constants(samples)], samples, labels)
        return "\n".join(lines) + "\n"

    def _vllm_infos(self, samples: Samples, labels: dict[str, str], one_of_several: bool) -> Iterator[str]:
        if blocks := self._cache_blocks(samples):
            config = {
                "block_size": str(blocks["tokens_per"]),
                "enable_prefix_caching": str(self._prefix_caching),
                "num_gpu_blocks": str(blocks["max"]),
            }
            yield "# HELP vllm:cache_config_info The KV cache."
            yield "# TYPE vllm:cache_config_info gauge"
            yield f"vllm:cache_config_info{label_text({**labels, **config})} 1"
        adapters = self._engine.adapters_in_use()
        lora = {
            # vLLM has no such label here.
            **({"model_name": self._model} if one_of_several else {}),
            "max_lora": str(len(self._engine.model_info.adapters)),
            "running_lora_adapters": ",".join(adapters),
            "waiting_lora_adapters": "",
        }
        yield "# HELP vllm:lora_requests_info Adapters of the requests that run or wait, and the time."
        yield "# TYPE vllm:lora_requests_info gauge"
        yield f"vllm:lora_requests_info{label_text(lora)} {time.time():.3f}"

    def _triton_constants(self, samples: Samples) -> Iterator[Row]:
        yield _constant(samples, _REQUESTS, self._engine.model_info.max_batch_size, {"request_type": "max"})
        if "llgtrt_batch_sequences" in samples:
            yield _batch("scheduled", _REQUESTS, {"request_type": "scheduled"})
        else:
            yield Row(_REQUESTS, "gauge", "llgtrt_num_requests_running", {"request_type": "scheduled"})
        yield _constant(samples, _GENERAL, int(time.time()), {"general_type": "timestamp"})
        for kind, count in self._cache_blocks(samples).items():
            yield _constant(samples, _BLOCKS, count, {"kv_cache_block_type": kind})

    def _trtllm_constants(self, samples: Samples) -> Iterator[Row]:
        names = {"max": "max_blocks", "used": "used_blocks", "free": "free_blocks"}
        for kind, count in self._cache_blocks(samples).items():
            yield _constant(samples, f"trtllm_kv_cache_{names.get(kind, 'tokens_per_block')}", count, {})

    def _cache_blocks(self, samples: Samples) -> dict[str, int]:
        """Blocks of the KV cache as Triton calls them; empty if the engine does not say."""
        if reported := dict(samples.get(OWN_BLOCKS, ())):
            counts = {kind: int(reported[f'{{kind="{kind}"}}']) for kind in ("max", "used", "free")}
            return {**counts, "tokens_per": int(samples[OWN_BLOCK_TOKENS][0][1])}
        if not self._blocks or "llgtrt_kv_cache_usage_perc" not in samples:
            return {}
        usage = float(samples["llgtrt_kv_cache_usage_perc"][0][1])
        used = min(math.ceil(usage * self._blocks), self._blocks)
        blocks = {"max": self._blocks, "used": used, "free": self._blocks - used}
        return {**blocks, "tokens_per": self._block_tokens}


def _constant(samples: Samples, name: str, figure: float, labels: dict[str, str]) -> Row:
    """A row whose figure is not the core's: it is entered into ``samples``."""
    ours = f"({name},{labels})"
    samples[ours] = [("", repr(figure))]
    return Row(name, "gauge", ours, labels)


def _samples(text: str) -> Samples:
    families: Samples = {}
    family, samples = "", []
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            family = line.split(" ")[2]
            samples = families.setdefault(family, [])
        elif line and not line.startswith("#"):
            name, _, value = line.rpartition(" ")
            samples.append((name.removeprefix(family), value))
    return families


def _write(rows: Iterable[Row], samples: Samples, labels: dict[str, str]) -> Iterator[str]:
    """The lines of the families whose figures there are."""
    by_name: dict[str, list[Row]] = {}
    for row in rows:
        if row.ours in samples:
            by_name.setdefault(row.name, []).append(row)
    for name, group in by_name.items():
        yield f"# HELP {name} See docs/metrics.md."
        yield f"# TYPE {name} {group[0].kind}"
        sums: dict[str, str | float] = {}
        for row in group:
            written = label_text({**labels, **row.labels})
            for own, value in samples[row.ours]:
                if row.part is None:
                    suffix, brace, rest = own.partition("{")
                    at = f"{suffix}{written[:-1]},{rest}" if brace else suffix + written
                elif own == row.part:
                    at = written
                else:
                    continue
                if at not in sums and row.scale == 1:
                    sums[at] = value
                else:
                    sums[at] = float(sums.get(at, 0)) + float(value) * row.scale
        for at, total in sums.items():
            yield f"{name}{at} {total}"


def label_text(labels: dict[str, str]) -> str:
    """Labels as samples have them."""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(value: str) -> str:
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")
