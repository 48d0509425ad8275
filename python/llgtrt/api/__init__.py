"""The HTTP interface: OpenAI's routes, probes, metrics, the key, errors."""

from llgtrt.api.application import create_app
from llgtrt.api.compat_metrics import CompatMetrics
from llgtrt.api.metrics import HttpMetrics
from llgtrt.api.model_metrics import ModelMetrics
from llgtrt.api.services import Services

__all__ = ["CompatMetrics", "HttpMetrics", "ModelMetrics", "Services", "create_app"]
