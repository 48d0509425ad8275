"""Section ``metrics``: what ``/metrics`` holds beside this server's own names."""

from typing import Literal

from pydantic import Field

from .section import Section

MetricNames = Literal["vllm", "triton", "trtllm"]


class MetricsConfig(Section):
    """Metrics in Prometheus' format."""

    compat: list[MetricNames] = Field(
        default=["vllm", "triton"],
        description="Whose names the figures have too, so that routers and dashboards made for them work:\n"
        "see docs/metrics.md. trtllm: those of trtllm-serve. []: only names that begin with llgtrt_.",
    )
