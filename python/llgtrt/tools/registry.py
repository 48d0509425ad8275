"""Which format a model writes its calls in: the operator's word, else what its chat template shows."""

from __future__ import annotations

import logging
from importlib.metadata import entry_points

from llgtrt.config import ConfigError
from llgtrt.tools.families.deepseek import DEEPSEEK_V3, DEEPSEEK_V31
from llgtrt.tools.families.fallback import FALLBACK
from llgtrt.tools.families.glm import GLM4
from llgtrt.tools.families.granite import GRANITE3
from llgtrt.tools.families.harmony import HARMONY
from llgtrt.tools.families.hermes import HERMES
from llgtrt.tools.families.kimi import KIMI_K2
from llgtrt.tools.families.lfm2 import LFM2
from llgtrt.tools.families.llama3 import LLAMA3
from llgtrt.tools.families.minicpm import MINICPM5
from llgtrt.tools.families.minimax import MINIMAX_M2, MINIMAX_M3
from llgtrt.tools.families.mistral import MISTRAL, MISTRAL_ARGS
from llgtrt.tools.families.nemotron import NEMOTRON
from llgtrt.tools.families.pythonic import PYTHONIC
from llgtrt.tools.families.qwen3_coder import QWEN3_CODER
from llgtrt.tools.families.seed_oss import SEED_OSS
from llgtrt.tools.format import ToolFormat

logger = logging.getLogger("llgtrt.tools")

ENTRY_POINTS = "llgtrt.tool_parsers"
"""Group of entry points: each names a :class:`ToolFormat`, which goes before those of this package."""

FAMILIES: tuple[ToolFormat, ...] = (
    HARMONY,
    MISTRAL,
    MISTRAL_ARGS,
    DEEPSEEK_V3,
    DEEPSEEK_V31,
    KIMI_K2,
    GRANITE3,
    MINIMAX_M3,
    MINICPM5,
    SEED_OSS,
    NEMOTRON,
    LFM2,
    QWEN3_CODER,
    GLM4,
    MINIMAX_M2,
    PYTHONIC,
    LLAMA3,
    HERMES,
)
"""The more special come first: the first whose marks are in the template counts."""


def find_format(template: str, name: str | None = None) -> ToolFormat:
    """The format for a chat template.

    Args:
        template: the template's text.
        name: ``tools.parser`` of the configuration.

    Raises:
        ConfigError: no format has that name, or one of another package cannot be loaded.
    """
    formats = (*_registered(), *FAMILIES)
    if name is None:
        return next((one for one in formats if one.detects(template)), FALLBACK)
    for one in formats:
        if one.name == name:
            return one
    known = ", ".join(sorted({one.name for one in formats}))
    raise ConfigError(f"tools.parser: there is no format {name!r}; known are {known}")


def _registered() -> tuple[ToolFormat, ...]:
    found = []
    for entry in entry_points(group=ENTRY_POINTS):
        try:
            one = entry.load()
        except Exception as error:
            # It is a program of somebody else's: anything can come.
            raise ConfigError(f"tool format {entry.name} of {entry.value}: {error}") from error
        if not isinstance(one, ToolFormat):
            raise ConfigError(f"tool format {entry.name} of {entry.value} is no ToolFormat")
        logger.info("tool format %s of %s", one.name, entry.value)
        found.append(one)
    return tuple(found)
