"""The model that is served, as the API names it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from llgtrt.serving.errors import ModelNotFoundError
from llgtrt.serving.sampling import now


@dataclass(frozen=True, slots=True)
class ServedModel:
    """Name and properties of the served model.

    Attributes:
        name: name in the API.
        max_sequence_tokens: most tokens of prompt and answer together.
        created: when it was loaded, in seconds since the epoch.
    """

    name: str
    max_sequence_tokens: int
    created: int = field(default_factory=now)

    def resolve(self, name: str | None) -> str:
        """The name to answer with.

        Raises:
            ModelNotFoundError: another model was asked for.
        """
        if name is not None and name != self.name:
            raise ModelNotFoundError(name)
        return self.name

    def object(self) -> dict[str, Any]:
        """OpenAI's model object; ``max_model_len`` is what vLLM calls the context length."""
        return {
            "id": self.name,
            "object": "model",
            "created": self.created,
            "owned_by": "llgtrt",
            "max_model_len": self.max_sequence_tokens,
        }


def first_chunk_fields(expanded_prompt: str | list[str] | None) -> str | None:
    """JSON members for the first chunk of a stream."""
    if expanded_prompt is None:
        return None
    return '"expanded_prompt":' + json.dumps(expanded_prompt, ensure_ascii=False)
