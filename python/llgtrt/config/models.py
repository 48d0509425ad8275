"""Option ``models``: several models in one process."""

from typing import Annotated, Any

from pydantic import Field, field_validator

from .disaggregation import DisaggregationConfig
from .engine import BackendChoice
from .kv_events import KvEventsConfig
from .llamacpp import LlamaCppConfig
from .llguidance import LlguidanceConfig
from .py import PyConfig
from .runtime import RuntimeConfig
from .section import Section
from .server import ANY_NAME, ServerConfig
from .sim import SimConfig
from .tokenizer import TokenizerConfig
from .tools import ToolsConfig
from .trtllm import TrtllmConfig

SECTIONS = (
    "runtime",
    "tokenizer",
    "llguidance",
    "llamacpp",
    "trtllm",
    "sim",
    "tools",
    "py",
    "kv_events",
    "disaggregation",
    "server",
)
"""Sections that a model may have of its own."""

OF_A_MODEL = frozenset(
    {
        "max_n",
        "default_max_tokens",
        "generation_config",
        "max_tokens_beyond_context",
        "chat_template_kwargs",
        "receipt",
        "model_aliases",
    }
)
"""Options of ``server`` that a model may have of its own; the others hold for the whole server."""


class ModelEntry(Section):
    """One of several models. A section in it wins over the same section of the file option by option; of
    `server` a model may set `max_n`, `default_max_tokens`, `generation_config`,
    `max_tokens_beyond_context`, `chat_template_kwargs`, `receipt` and `model_aliases`."""

    name: str | Annotated[list[str], Field(min_length=1)] = Field(
        description="Name of the model in the API, or several: answers give the first.\n"
        'With "*" among them requests that name no other model are for this one.'
    )
    engine: str | None = Field(
        default=None,
        description="GGUF file, folder with one, or TensorRT-LLM engine folder. null: the demo model.",
    )
    backend: BackendChoice = Field(default="auto", description="The engine that runs the model.")
    tokenizer_dir: str | None = Field(
        default=None,
        description="Folder with tokenizer.json and tokenizer_config.json, instead of the engine folder.",
    )
    lora_root: str | None = Field(
        default=None, description="Folder of LoRA adapters, for TensorRT-LLM engines."
    )
    load: bool = Field(
        default=True,
        description="Load it at the start. false: /v2/repository/models/NAME/load loads it.",
    )
    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig)
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig)
    llguidance: LlguidanceConfig = Field(default_factory=LlguidanceConfig)
    llamacpp: LlamaCppConfig = Field(default_factory=LlamaCppConfig)
    trtllm: TrtllmConfig = Field(default_factory=TrtllmConfig)
    sim: SimConfig = Field(default_factory=SimConfig)
    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    py: PyConfig = Field(default_factory=PyConfig)
    kv_events: KvEventsConfig = Field(default_factory=KvEventsConfig)
    disaggregation: DisaggregationConfig = Field(default_factory=DisaggregationConfig)
    server: ServerConfig = Field(default_factory=ServerConfig)

    @field_validator("name")
    @classmethod
    def _a_first_name(cls, value: str | list[str]) -> str | list[str]:
        names = [value] if isinstance(value, str) else value
        if not all(names) or names[0] == ANY_NAME:
            raise ValueError(f'should be a name, or names that do not begin with "{ANY_NAME}"')
        return value

    @property
    def first_name(self) -> str:
        """What answers call it."""
        return self.name if isinstance(self.name, str) else self.name[0]

    def own_options(self) -> dict[str, Any]:
        """What the entry sets in the sections."""
        return self.model_dump(include=set(SECTIONS), exclude_unset=True)
