"""What is asked, how long the answers may be, and when each request is sent; equal for equal seeds."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

Api: TypeAlias = Literal["chat", "completions", "triton-generate"]

PATHS: dict[Api, str] = {
    "chat": "/v1/chat/completions",
    "completions": "/v1/completions",
    "triton-generate": "/v2/models/{model}/generate_stream",
}

CHARS_PER_TOKEN = 4
"""Of English text, roughly: for the answers of a ShareGPT file, whose tokens nobody counted."""
MOST_TOKENS_OF_A_REPLY = 1024

_COMMON = """
    time way year work day world life hand part place case week company system program question
    number night point home water room mother area money story fact month lot right study book eye
    job word business issue side kind head house service friend father power hour game line end
    member law car city name team minute idea body back parent face level office door health person
    art war history party result change morning
"""
WORDS = _COMMON.split()
"""Each is one token of usual vocabularies, with the space before it."""


class WorkloadError(ValueError):
    """A file or an option cannot be used; the message says why."""


@dataclass(frozen=True, slots=True)
class Ask:
    """One request, before it is written for some route.

    Attributes:
        prompt: the text; of a conversation the texts of all messages.
        messages: the conversation, where there is one.
        max_tokens: most tokens of the answer; None: what the server takes.
        ignore_eos: the answer is to have all of ``max_tokens``.
        schema: the JSON schema that the answer must satisfy.
    """

    prompt: str
    messages: list[dict[str, Any]] | None = None
    max_tokens: int | None = None
    ignore_eos: bool = False
    schema: Any = None


@dataclass(frozen=True, slots=True)
class TokenDistribution:
    """Normal distributions of the tokens of prompts and answers; nothing is below one token."""

    input_mean: float
    input_stdev: float
    output_mean: float
    output_stdev: float

    @classmethod
    def parse(cls, text: str) -> TokenDistribution:
        """Reads ``INPUT_MEAN,INPUT_STDEV,OUTPUT_MEAN,OUTPUT_STDEV``.

        Raises:
            WorkloadError: it is something else.
        """
        try:
            numbers = [float(part) for part in text.split(",")]
            input_mean, input_stdev, output_mean, output_stdev = numbers
        except ValueError:
            raise WorkloadError(
                "give four numbers: mean and standard deviation of input and output tokens"
            ) from None
        if not all(0 <= number < 1e9 for number in numbers) or input_mean < 1 or output_mean < 1:
            raise WorkloadError("means are at least 1, standard deviations at least 0")
        return cls(input_mean, input_stdev, output_mean, output_stdev)

    def asks(self, count: int, seed: int) -> list[Ask]:
        """Prompts of random words, so that a server finds next to nothing of them in its cache."""
        draw = random.Random(seed)

        def tokens(mean: float, stdev: float) -> int:
            return max(1, round(draw.gauss(mean, stdev)))

        asks = []
        for _ in range(count):
            words = [draw.choice(WORDS) for _ in range(tokens(self.input_mean, self.input_stdev))]
            most = tokens(self.output_mean, self.output_stdev)
            asks.append(Ask(" ".join(words), max_tokens=most, ignore_eos=True))
        return asks


def read_dataset(path: Path) -> list[Ask]:
    """The requests of a file: a JSON array, or a JSON object per line.

    An object has ``prompt`` or ``text_input`` (a text), ``messages``, or ``conversations`` as ShareGPT has
    them, of which the first turn is asked; and, if it likes, ``max_tokens`` and ``schema``. A conversation of
    ShareGPT asks for about as many tokens as the reply that it holds.

    Raises:
        WorkloadError: the file holds something else, or nothing.
    """
    asks = [ask for number, item in _items(path) if (ask := _ask(item, f"{path}:{number}")) is not None]
    if not asks:
        raise WorkloadError(f"{path}: no requests")
    return asks


def read_schemas(path: Path) -> list[Any]:
    """The JSON schemas of a file: an array, or one per line, alone or as member ``schema``.

    Raises:
        WorkloadError: the file holds something else, or nothing.
    """
    schemas = []
    for number, item in _items(path):
        schema = item["schema"] if isinstance(item, dict) and "schema" in item else item
        if not isinstance(schema, dict | bool):
            raise WorkloadError(f"{path}:{number}: a schema is an object, true or false")
        schemas.append(schema)
    if not schemas:
        raise WorkloadError(f"{path}: no schemas")
    return schemas


def arrivals(count: int, rate: float, seed: int) -> list[float]:
    """When requests are sent, in seconds from the first: a Poisson process of ``rate`` per second."""
    draw = random.Random(seed)
    times = [0.0]
    while len(times) < count:
        times.append(times[-1] + draw.expovariate(rate))
    return times[:count]


def body_of(ask: Ask, api: Api, model: str, extra: dict[str, Any]) -> dict[str, Any]:
    """The body of a request; ``extra`` wins over what would be there."""
    limit = {} if ask.max_tokens is None else {"max_tokens": ask.max_tokens}
    if api == "triton-generate":
        body: dict[str, Any] = {
            "text_input": ask.prompt,
            **limit,
            "stream": True,
            "return_num_output_tokens": True,
        }
        if ask.ignore_eos:
            body["end_id"] = -1
        if ask.schema is not None:
            body["guided_decoding_guide_type"] = "json_schema"
            body["guided_decoding_guide"] = json.dumps(ask.schema)
        return {**body, **extra}
    body = {
        "model": model,
        **limit,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if api == "chat":
        body["messages"] = ask.messages or [{"role": "user", "content": ask.prompt}]
    else:
        body["prompt"] = ask.prompt
    if ask.ignore_eos:
        body["ignore_eos"] = True
    if ask.schema is not None:
        body["response_format"] = {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": ask.schema, "strict": True},
        }
    return {**body, **extra}


def _items(path: Path) -> Iterator[tuple[int, Any]]:
    """The JSON values of a file, each with its number, counted from 1."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise WorkloadError(f"{path}: {error}") from None
    if text.lstrip().startswith("["):
        try:
            yield from enumerate(json.loads(text), 1)
        except ValueError as error:
            raise WorkloadError(f"{path}: {error}") from None
        return
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            yield number, json.loads(line)
        except ValueError as error:
            raise WorkloadError(f"{path}:{number}: {error}") from None


def _ask(item: Any, place: str) -> Ask | None:
    """The request of one object; None for a conversation without a question."""
    if not isinstance(item, dict):
        raise WorkloadError(f"{place}: a request is an object")
    most = item.get("max_tokens")
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        raise WorkloadError(f"{place}: max_tokens is a number of at least 1")
    schema = item.get("schema")
    if schema is not None and not isinstance(schema, dict | bool):
        raise WorkloadError(f"{place}: a schema is an object, true or false")
    for name in ("prompt", "text_input"):
        if isinstance(item.get(name), str):
            return Ask(item[name], None, most, schema=schema)
    messages = item.get("messages")
    if isinstance(messages, list) and all(isinstance(one, dict) for one in messages):
        texts = [one["content"] for one in messages if isinstance(one.get("content"), str)]
        return Ask("\n".join(texts), messages, most, schema=schema)
    turns = item.get("conversations")
    if not isinstance(turns, list):
        raise WorkloadError(f"{place}: no prompt, text_input, messages or conversations")
    texts = [one["value"] for one in turns[:2] if isinstance(one, dict) and isinstance(one.get("value"), str)]
    if not texts or not texts[0].strip():
        return None
    if most is None and len(texts) > 1:
        most = min(max(len(texts[1]) // CHARS_PER_TOKEN, 1), MOST_TOKENS_OF_A_REPLY)
    return Ask(texts[0], None, most, schema=schema)
