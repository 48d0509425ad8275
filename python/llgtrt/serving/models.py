"""The model that is served, as the API names it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from llgtrt.config import ConfigError
from llgtrt.serving.errors import ModelNotFoundError, RequestError, quote
from llgtrt.serving.sampling import now


@dataclass(frozen=True, slots=True)
class ServedModel:
    """Name and properties of the served model.

    Attributes:
        name: name in the API.
        max_sequence_tokens: most tokens of prompt and answer together.
        adapters: names of LoRA adapters, each of which can be asked for as a model too.
        any_name: whatever a request calls the model, it means this one.
        created: when it was loaded, in seconds since the epoch.
        other_names: names that requests may use instead; answers give ``name``.
        aliases: names that are not listed, each with the name or the adapter that it stands for.
        embedding_name: the name of a model that is there for embeddings or scores alone.
        embedding_tokens: most tokens of an input to it.
        system_fingerprint: what answers depend on beside the request, as a short hash; None: they do not say.
    """

    name: str
    max_sequence_tokens: int
    adapters: tuple[str, ...] = ()
    created: int = field(default_factory=now)
    any_name: bool = False
    other_names: tuple[str, ...] = ()
    aliases: Mapping[str, str] = field(default_factory=dict)
    embedding_name: str | None = None
    embedding_tokens: int = 0
    system_fingerprint: str | None = None

    def __post_init__(self) -> None:
        """Checks the aliases.

        Raises:
            ConfigError: an alias stands for nothing that is served.
        """
        names: tuple[str, ...] = (self.name, *self.other_names, *self.adapters)
        if self.embedding_name is not None:
            if self.embedding_name in names:
                raise ConfigError(
                    f"embedding.model: {self.embedding_name} is the name of the served model: give that "
                    "another one (--served-model-name)"
                )
            names = (*names, self.embedding_name)
        for alias, meant in self.aliases.items():
            if alias in names:
                raise ConfigError(f"server.model_aliases: {alias} is the name of a model or adapter already")
            if meant not in names:
                raise ConfigError(
                    f"server.model_aliases: {alias}: no model or adapter is called {quote(meant)} here"
                )

    @property
    def names(self) -> frozenset[str]:
        """Everything that a request may call the model, an adapter of it or its model of embeddings."""
        own = () if self.embedding_name is None else (self.embedding_name,)
        return frozenset((self.name, *self.other_names, *self.adapters, *self.aliases, *own))

    def has(self, name: str) -> bool:
        """Whether a request of that name is for this model or an adapter of it."""
        return name in self.names

    def resolve(self, name: str | None) -> str:
        """The name to answer with: the model's first, or an adapter's. No name is the model.

        Raises:
            ModelNotFoundError: another model was asked for.
        """
        name = self.aliases.get(name, name) if name else self.name
        if name in self.other_names:
            return self.name
        if name != self.name and name not in self.adapters and not self.any_name:
            raise ModelNotFoundError(name, self.name)
        return name

    def resolve_embedding(self, name: str | None) -> str:
        """The name to answer with where embeddings or scores are asked for. No name is the one for them.

        Raises:
            ModelNotFoundError: another model was asked for.
        """
        own = self.embedding_name
        if own is None:
            return self.resolve(name)
        name = self.aliases.get(name, name) if name else own
        if name != own and not self.any_name:
            raise ModelNotFoundError(name, own)
        return own

    def adapter(self, name: str, lora_model: str | None) -> str | None:
        """The LoRA adapter that a request means, by ``lora_model`` or by the name of the model.

        Raises:
            RequestError: the server has no adapters, or two are named.
        """
        by_name = name if name in self.adapters and name != self.name else None
        if lora_model is None:
            return by_name
        if by_name is not None and by_name != lora_model:
            raise RequestError("model and lora_model name different adapters.", "lora_model")
        return lora_model

    def objects(self) -> list[dict[str, Any]]:
        """The model under each of its names, then its adapters."""
        models = [self.object(name) for name in (self.name, *self.other_names)]
        models += [{**self.object(name), "parent": self.name} for name in self.adapters]
        if self.embedding_name is not None:
            own = self.embedding_name
            models.append({**self.object(own), "root": own, "max_model_len": self.embedding_tokens})
        return models

    def object(self, name: str | None = None) -> dict[str, Any]:
        """OpenAI's model object; ``max_model_len`` is what vLLM calls the context length."""
        return {
            "id": self.name if name is None else name,
            "object": "model",
            "created": self.created,
            "owned_by": "llgtrt",
            "root": self.name,
            "max_model_len": self.max_sequence_tokens,
        }


def first_chunk_fields(expanded_prompt: str | list[str] | None) -> str | None:
    """JSON members for the first chunk of a stream."""
    if expanded_prompt is None:
        return None
    return '"expanded_prompt":' + json.dumps(expanded_prompt, ensure_ascii=False)
