"""Types that ordinary code gives to pydantic; the grammar crate has their schemas in ``generated.jsonl``."""

from __future__ import annotations

import datetime
import decimal
import enum
import ipaddress
import pathlib
import re
import uuid
from typing import Annotated, Any, Literal, NamedTuple

import pydantic as p
from pydantic import BaseModel, Field, confloat, conint, conlist, constr
from typing_extensions import TypedDict


class Colour(enum.Enum):
    RED = "red"
    GREEN = "green"


class Level(enum.IntEnum):
    LOW = 1
    HIGH = 2


class Address(BaseModel):
    street: str
    zip: str = Field(pattern=r"^\d{5}$")


class Person(BaseModel):
    name: str
    age: int = Field(ge=0, le=150)
    email: str | None = None
    address: Address | None = None


class Node(BaseModel):
    value: int
    children: list[Node] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    barks: bool


class Strict(BaseModel):
    model_config = p.ConfigDict(extra="forbid")
    a: int
    b: str | None = None


class Open(BaseModel):
    model_config = p.ConfigDict(extra="allow")
    a: int


class TD(TypedDict, total=False):
    x: int
    y: str


class Pt(NamedTuple):
    x: float
    y: float


TYPES: dict[str, Any] = {
    "str": str,
    "int": int,
    "float": float,
    "bool": bool,
    "none": None,
    "bytes": bytes,
    "any": Any,
    "dict": dict,
    "list": list,
    "object": dict[str, Any],
    "str_length": Annotated[str, Field(min_length=2, max_length=8)],
    "str_pattern": constr(pattern=r"^[A-Z]{2}\d{3}$"),
    "str_upper": constr(to_upper=True, strip_whitespace=True),
    "str_word": constr(pattern=r"\bfoo\b", max_length=12),
    "int_ge_le": conint(ge=0, le=100),
    "int_gt_lt": conint(gt=0, lt=10),
    "int_multiple": conint(multiple_of=5, ge=0),
    "int64": conint(ge=-(2**63), le=2**63 - 1),
    "uint64": conint(ge=0, le=2**64 - 1),
    "int32": conint(ge=-(2**31), le=2**31 - 1),
    "int128": conint(ge=-(2**100), le=2**100),
    "positive_int": p.PositiveInt,
    "negative_int": p.NegativeInt,
    "non_negative_int": p.NonNegativeInt,
    "non_positive_int": p.NonPositiveInt,
    "strict_int": p.StrictInt,
    "positive_float": p.PositiveFloat,
    "negative_float": p.NegativeFloat,
    "non_negative_float": p.NonNegativeFloat,
    "finite_float": p.FiniteFloat,
    "float_unit": confloat(ge=0, le=1),
    "float_open": confloat(gt=0, lt=1),
    "float_cents": confloat(ge=0, multiple_of=0.01),
    "float_small": confloat(gt=0, le=0.5),
    "float_quarter": confloat(gt=0, le=5, multiple_of=0.25),
    "decimal": decimal.Decimal,
    "decimal_places": p.condecimal(max_digits=5, decimal_places=2),
    "decimal_ge": p.condecimal(ge=0),
    "datetime": datetime.datetime,
    "date": datetime.date,
    "time": datetime.time,
    "timedelta": datetime.timedelta,
    "aware": p.AwareDatetime,
    "past_date": list[datetime.date],
    "uuid": uuid.UUID,
    "uuid1": p.UUID1,
    "uuid3": p.UUID3,
    "uuid4": p.UUID4,
    "uuid5": p.UUID5,
    "uuid6": p.UUID6,
    "uuid7": p.UUID7,
    "uuid8": p.UUID8,
    "ipv4": ipaddress.IPv4Address,
    "ipv6": ipaddress.IPv6Address,
    "ipv4network": ipaddress.IPv4Network,
    "ipv6network": ipaddress.IPv6Network,
    "ipv4interface": ipaddress.IPv4Interface,
    "ipv6interface": ipaddress.IPv6Interface,
    "ipvany": p.IPvAnyAddress,
    "ipvanynetwork": p.IPvAnyNetwork,
    "ipvanyinterface": p.IPvAnyInterface,
    "base64_bytes": p.Base64Bytes,
    "base64_str": p.Base64Str,
    "base64url": p.Base64UrlStr,
    "secret": p.SecretStr,
    "path": pathlib.Path,
    "regex": re.Pattern,
    "url": p.AnyUrl,
    "http_url": p.HttpUrl,
    "json_str": p.Json[list[int]],
    "enum": Colour,
    "int_enum": Level,
    "literal": Literal["a", 1, None, True],
    "literal_str": Literal["x", "y"],
    "optional": int | None,
    "union": int | str | None,
    "union_models": Cat | Dog,
    "discriminated": Annotated[Cat | Dog, Field(discriminator="kind")],
    "list_int": list[int],
    "list_bounded": conlist(int, min_length=1, max_length=3),
    "set_str": set[str],
    "set_literal": set[Literal["a", "b", "c"]],
    "frozenset": frozenset[int],
    "tuple_fixed": tuple[int, str],
    "tuple_var": tuple[int, ...],
    "dict_int": dict[str, int],
    "dict_bounded": Annotated[dict[str, int], Field(min_length=1, max_length=3)],
    "dict_enum": dict[Literal["a", "b"], int],
    "dict_pattern": dict[Annotated[str, Field(pattern=r"^x-")], int],
    "dict_uuid": dict[uuid.UUID, bool],
    "dict_int_keys": dict[int, str],
    "model": Person,
    "model_list": list[Person],
    "nested": Node,
    "strict_model": Strict,
    "open_model": Open,
    "typed_dict": TD,
    "named_tuple": Pt,
    "model_dates": p.create_model(
        "Event", at=(datetime.datetime, ...), day=(datetime.date | None, None), took=(datetime.timedelta, ...)
    ),
    "model_ids": p.create_model(
        "Ids",
        id=(p.UUID4, ...),
        n=(conint(ge=-(2**63), le=2**63 - 1), ...),
        price=(p.condecimal(gt=0, decimal_places=2), ...),
    ),
}

#: Types of which the schema says less than pydantic reads: any string where it wants a number, an address
#: with a host, JSON, text in UTF-8, an expression of Python, a number that a double holds; other keys.
LOOSER = {
    "decimal",
    "decimal_places",
    "decimal_ge",
    "base64_str",
    "base64url",
    "url",
    "http_url",
    "json_str",
    "dict_int_keys",
    "regex",
    "model_ids",
    "finite_float",
    "dict_pattern",
}
