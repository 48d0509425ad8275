"""The asyncio client of the Rust core: the only package that imports ``llgtrt._native``."""

from llgtrt._native import (
    ChoiceDelta,
    Delta,
    GenerateRequest,
    GrammarChecker,
    GrammarSpec,
    Permit,
    Usage,
    __version__,
    explain_schema,
)
from llgtrt.engine.client import AsyncEngine, ModelInfo, start_core_log
from llgtrt.engine.errors import (
    ConfigurationError,
    ConstraintError,
    ContextLengthError,
    EngineFailedError,
    GrammarError,
    InternalError,
    InvalidRequestError,
    LlgtrtError,
    NotFiniteError,
    OverloadedError,
    ShuttingDownError,
    new_error,
)
from llgtrt.engine.stream import Payload, Sink, Stream, StreamCancelledError
from llgtrt.engine.trtllm import plugin_sources, process_rank, work_for_leader

__all__ = [
    "AsyncEngine",
    "ChoiceDelta",
    "ConfigurationError",
    "ConstraintError",
    "ContextLengthError",
    "Delta",
    "EngineFailedError",
    "GenerateRequest",
    "GrammarChecker",
    "GrammarError",
    "GrammarSpec",
    "InternalError",
    "InvalidRequestError",
    "LlgtrtError",
    "ModelInfo",
    "NotFiniteError",
    "OverloadedError",
    "Payload",
    "Permit",
    "ShuttingDownError",
    "Sink",
    "Stream",
    "StreamCancelledError",
    "Usage",
    "__version__",
    "explain_schema",
    "new_error",
    "plugin_sources",
    "process_rank",
    "start_core_log",
    "work_for_leader",
]
