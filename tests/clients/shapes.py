"""What the clients ask for: types as applications have them."""

from __future__ import annotations

import enum
import uuid
from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import BaseModel, Field


class Colour(enum.Enum):
    """A closed list."""

    RED = "red"
    GREEN = "green"


class Cat(BaseModel):
    """One of two kinds."""

    kind: Literal["cat"]
    lives: int = Field(ge=1, le=9)


class Dog(BaseModel):
    """The other kind."""

    kind: Literal["dog"]
    name: str = Field(max_length=10)


class Person(BaseModel):
    """Nested, optional, dated, of several kinds."""

    name: str = Field(min_length=1, max_length=20)
    age: Annotated[int, Field(ge=0, le=130)]
    colour: Colour
    born: date
    pet: Cat | Dog
    email: Annotated[str, Field(max_length=30)] | None
    tags: list[Literal["a", "b", "c"]] = Field(max_length=3)


class Order(BaseModel):
    """Types whose schemas servers refuse: sets, bounds of 64 bits, ids, moments."""

    id: uuid.UUID
    placed: datetime
    total: float = Field(ge=0)
    serial: int = Field(ge=-(2**63), le=2**63 - 1)
    labels: set[Literal["new", "gift", "fragile", "large", "late", "paid"]] = Field(max_length=3)
    counts: dict[str, int] = Field(min_length=1, max_length=2)


class Node(BaseModel):
    """Recursive."""

    value: int = Field(ge=0, le=9)
    children: list[Node] = Field(max_length=2)


class Weather(BaseModel):
    """The arguments of a tool."""

    city: str = Field(min_length=1, max_length=20)
    days: int = Field(ge=1, le=7)
