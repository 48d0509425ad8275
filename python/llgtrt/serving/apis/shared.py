"""What the translations of several APIs share."""

from __future__ import annotations

from typing import Any

from llgtrt.serving.protocol import ChatRequest
from llgtrt.serving.protocol.constraint_fields import ConstraintFields


def given_fields(request: ConstraintFields) -> dict[str, Any]:
    """The fields of a request that all APIs share and that say something."""
    return {
        name: getattr(request, name)
        for name in ConstraintFields.model_fields
        if name in request.model_fields_set and getattr(request, name) is not None
    }


def chat_request(request: ConstraintFields, fields: dict[str, Any]) -> ChatRequest:
    """A request of the chat with the fields that both have, which were checked, and those given."""
    common = given_fields(request)
    # The options of a stream are the API's own.
    common.pop("stream_options", None)
    asked = ChatRequest.model_construct(**{**common, **fields})
    asked._body_bytes = request.body_bytes
    return asked
