"""Section ``tools``: calls of tools."""

from pydantic import Field

from .section import Section


class ToolsConfig(Section):
    """Calls of tools in chat."""

    parser: str | None = Field(
        default=None,
        description="Format in which the model writes calls, such as hermes or llama3; see docs/tools.md.\n"
        "null: the one that the chat template shows.",
    )
