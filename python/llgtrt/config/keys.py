"""An API key: whose it is and what it may ask for."""

from pydantic import Field

from .section import Section


class ApiKey(Section):
    """A key of one client."""

    name: str | None = Field(
        default=None,
        min_length=1,
        max_length=100,
        description="Whose it is, for the log and the metrics. null: nameless.",
    )
    key: str = Field(min_length=1, repr=False, description="The key itself.")
    max_concurrent: int | None = Field(
        default=None, ge=1, description="Requests that may be worked on at the same time. null: no limit."
    )
    requests_per_minute: int | None = Field(
        default=None,
        ge=1,
        description="Requests per minute. As many may come at once; then places come back evenly.\n"
        "null: no limit.",
    )
    manages_models: bool = Field(
        default=True, description="Whether it may load and unload models (docs/models.md)."
    )
