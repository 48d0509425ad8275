"""An answer as an object of a pydantic class, always valid: python examples/pydantic_schema.py [TEXT]"""

from __future__ import annotations

import sys
from datetime import date
from typing import Literal

from _client import connect
from pydantic import BaseModel, Field


class Guest(BaseModel):
    name: str = Field(max_length=30)
    meal: Literal["meat", "fish", "vegetarian"]


class Booking(BaseModel):
    day: date
    table: int = Field(ge=1, le=40)
    guests: list[Guest] = Field(min_length=1, max_length=4)


def main() -> None:
    client, model = connect()
    text = " ".join(sys.argv[1:]) or "Table 7 on 24 May 2026 for Ann, who eats no meat, and Bob: fish."
    answer = client.chat.completions.parse(
        model=model,
        messages=[
            {"role": "system", "content": "Write the booking down."},
            {"role": "user", "content": text},
        ],
        response_format=Booking,
        max_tokens=400,
    )
    booking = answer.choices[0].message.parsed
    assert booking is not None
    print(f"table {booking.table} on {booking.day}")
    for guest in booking.guests:
        print(f"- {guest.name!r}: {guest.meal}")


if __name__ == "__main__":
    main()
