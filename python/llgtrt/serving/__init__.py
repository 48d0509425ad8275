"""Use cases, without a web framework: what a request asks for becomes a generation of the core."""

from llgtrt.serving.answers import AnswerFormats
from llgtrt.serving.chat import ChatService
from llgtrt.serving.completion import CompletionService
from llgtrt.serving.disaggregation import Disaggregation
from llgtrt.serving.errors import Failure, ModelNotFoundError, NotFoundError, RequestError
from llgtrt.serving.generation import Generation, Traits
from llgtrt.serving.models import ServedModel
from llgtrt.serving.offload import in_proportion
from llgtrt.serving.prompt import ChatPrompts
from llgtrt.serving.protocol import ChatRequest, CompletionRequest, ValidateRequest, parse_request
from llgtrt.serving.protocol.triton import TritonRequest
from llgtrt.serving.registry import Models, ModelServices
from llgtrt.serving.sampling import TokenLimits
from llgtrt.serving.tokens import TokenWork
from llgtrt.serving.triton import TritonService
from llgtrt.serving.validate import ValidateService

__all__ = [
    "AnswerFormats",
    "ChatPrompts",
    "ChatRequest",
    "ChatService",
    "CompletionRequest",
    "CompletionService",
    "Disaggregation",
    "Failure",
    "Generation",
    "ModelNotFoundError",
    "ModelServices",
    "Models",
    "NotFoundError",
    "RequestError",
    "ServedModel",
    "TokenLimits",
    "TokenWork",
    "Traits",
    "TritonRequest",
    "TritonService",
    "ValidateRequest",
    "ValidateService",
    "in_proportion",
    "parse_request",
]
