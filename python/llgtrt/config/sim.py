"""Section ``sim``: the simulated engine."""

from pydantic import Field

from .section import Section


class SimConfig(Section):
    """The simulated engine, for tests and load."""

    seed: int = Field(default=0, ge=0, description="Seed of the random text.")
