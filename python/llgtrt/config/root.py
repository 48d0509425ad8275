"""The whole configuration: one field per section."""

from pydantic import Field

from .disaggregation import DisaggregationConfig
from .embedding import EmbeddingConfig
from .kv_events import KvEventsConfig
from .llamacpp import LlamaCppConfig
from .llguidance import LlguidanceConfig
from .metrics import MetricsConfig
from .models import ModelEntry
from .py import PyConfig
from .runtime import RuntimeConfig
from .section import Section
from .server import ServerConfig
from .sim import SimConfig
from .tokenizer import TokenizerConfig
from .tools import ToolsConfig
from .trtllm import TrtllmConfig


def description(kind: type[Section]) -> str:
    """A section's docstring as plain lines."""
    return "\n".join(line.strip() for line in (kind.__doc__ or "").strip().splitlines() if line.strip())


class Config(Section):
    """Configuration of llgtrt (JSON5). Commented-out options show their defaults."""

    runtime: RuntimeConfig = Field(default_factory=RuntimeConfig)
    tokenizer: TokenizerConfig = Field(default_factory=TokenizerConfig)
    llguidance: LlguidanceConfig = Field(default_factory=LlguidanceConfig)
    llamacpp: LlamaCppConfig = Field(default_factory=LlamaCppConfig)
    trtllm: TrtllmConfig = Field(default_factory=TrtllmConfig)
    embedding: EmbeddingConfig = Field(default_factory=EmbeddingConfig)
    sim: SimConfig = Field(default_factory=SimConfig)
    tools: ToolsConfig = Field(default_factory=ToolsConfig)
    py: PyConfig = Field(default_factory=PyConfig)
    metrics: MetricsConfig = Field(default_factory=MetricsConfig)
    kv_events: KvEventsConfig = Field(default_factory=KvEventsConfig)
    disaggregation: DisaggregationConfig = Field(default_factory=DisaggregationConfig)
    server: ServerConfig = Field(default_factory=ServerConfig)
    models: list[ModelEntry] = Field(
        default_factory=list,
        description="Several models in one process, each an object with `name`, `engine` and sections of\n"
        "its own: see docs/models.md. Empty: the one that ENGINE names.",
    )
