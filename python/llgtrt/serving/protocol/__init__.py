"""Request bodies as pydantic models, and the errors that they give."""

from llgtrt.serving.protocol.chat import ChatRequest
from llgtrt.serving.protocol.completion import CompletionRequest
from llgtrt.serving.protocol.constraint import Constraint
from llgtrt.serving.protocol.constraint_fields import ConstraintFields
from llgtrt.serving.protocol.parse import parse_request
from llgtrt.serving.protocol.resolve import resolve_constraint
from llgtrt.serving.protocol.validate import ValidateRequest

__all__ = [
    "ChatRequest",
    "CompletionRequest",
    "Constraint",
    "ConstraintFields",
    "ValidateRequest",
    "parse_request",
    "resolve_constraint",
]
