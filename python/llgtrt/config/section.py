"""What every configuration section has in common."""

from typing import Any

from pydantic import BaseModel, ConfigDict


class Section(BaseModel):
    """A group of options.

    Values are immutable once loaded. Unknown options are errors, and so are values of another JSON type:
    a text ``"8"`` where a number belongs is a mistake that is better reported than guessed at.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        hide_input_in_errors=True,
        protected_namespaces=(),
    )

    @classmethod
    def default_of(cls, option: str) -> Any:
        """The value an option has when nothing sets it."""
        return cls.model_fields[option].get_default(call_default_factory=True, validated_data={})
