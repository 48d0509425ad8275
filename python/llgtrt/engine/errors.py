"""The core's exception tree, under the name that the upper layers import.

::

    LlgtrtError
    ├── InvalidRequestError
    │   ├── ContextLengthError
    │   └── GrammarError
    ├── ConstraintError
    ├── OverloadedError
    ├── ShuttingDownError
    ├── NotFiniteError
    ├── ForwardPassError
    ├── LogitsProcessorError
    ├── EngineFailedError
    ├── ConfigurationError
    └── InternalError

Every error has ``kind``, ``message`` and ``param``. The HTTP status is decided in ``llgtrt.api.errors``.
"""

from llgtrt._native import (
    ConfigurationError,
    ConstraintError,
    ContextLengthError,
    EngineFailedError,
    ForwardPassError,
    GrammarError,
    InternalError,
    InvalidRequestError,
    LlgtrtError,
    LogitsProcessorError,
    NotFiniteError,
    OverloadedError,
    ShuttingDownError,
)

_KINDS: dict[type[LlgtrtError], str] = {
    ConfigurationError: "configuration",
    ConstraintError: "constraint",
    ContextLengthError: "context_length",
    EngineFailedError: "engine_failed",
    GrammarError: "grammar",
    InternalError: "internal",
    InvalidRequestError: "invalid_request",
    ForwardPassError: "forward_pass",
    LogitsProcessorError: "logits_processor",
    NotFiniteError: "not_finite",
    OverloadedError: "overloaded",
    ShuttingDownError: "shutting_down",
}


def new_error(error_type: type[LlgtrtError], message: str, param: str | None = None) -> LlgtrtError:
    """An error raised by Python with the attributes that the core sets on its own."""
    error = error_type(message)
    error.kind = _KINDS[error_type]
    error.message = message
    error.param = param
    return error


__all__ = [
    "ConfigurationError",
    "ConstraintError",
    "ContextLengthError",
    "EngineFailedError",
    "ForwardPassError",
    "GrammarError",
    "InternalError",
    "InvalidRequestError",
    "LlgtrtError",
    "LogitsProcessorError",
    "NotFiniteError",
    "OverloadedError",
    "ShuttingDownError",
    "new_error",
]
