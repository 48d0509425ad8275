"""Use cases, without a web framework: what a request asks for becomes a generation of the core."""

from llgtrt.serving.chat import ChatService
from llgtrt.serving.completion import CompletionService
from llgtrt.serving.errors import ModelNotFoundError, RequestError
from llgtrt.serving.generation import Generation
from llgtrt.serving.models import ServedModel
from llgtrt.serving.protocol import ChatRequest, CompletionRequest, parse_request

__all__ = [
    "ChatRequest",
    "ChatService",
    "CompletionRequest",
    "CompletionService",
    "Generation",
    "ModelNotFoundError",
    "RequestError",
    "ServedModel",
    "parse_request",
]
