"""The stock client, at the address of ``LLGTRT_URL`` with the key of ``LLGTRT_API_KEY``."""

from __future__ import annotations

import os

from openai import OpenAI


def connect() -> tuple[OpenAI, str]:
    """A client and the name of the served model."""
    url = os.environ.get("LLGTRT_URL", "http://127.0.0.1:3000")
    client = OpenAI(base_url=f"{url}/v1", api_key=os.environ.get("LLGTRT_API_KEY", "none"))
    return client, client.models.list().data[0].id
