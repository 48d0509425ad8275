"""What an input processor returns, and whether it can be used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from .errors import ProcessorFailedError
from .tensor import Tensor

_I32_MAX = 2**31 - 1
_TENSORS = (
    "prompt_table",
    "mrope_cos_sin",
    "encoder_features",
    "cross_attention_mask",
    "skip_cross_attention",
)
_ELEMENTS = {"mrope_cos_sin": "fp32", "skip_cross_attention": "bool"}
"""Tensors whose elements have one type."""
_TEXT_ONLY = ("tokens", "prompt")


@dataclass(kw_only=True)
class PreparedInput:
    """A prompt. ``tokens`` is all that most models need; only TensorRT-LLM takes the rest.

    Where an array is wanted, it may be a :class:`Tensor`, an array of numpy or torch, or anything with the
    buffer protocol.

    Attributes:
        tokens: token ids. Those from the vocabulary's size on are rows of ``prompt_table``, in order.
        prompt: the prompt for people (``return_expanded_prompt``); ``None``: the tokens' text.
        prompt_table: embeddings ``[virtual tokens, hidden size]`` in the model's type.
        prompt_table_extra_ids: one number for each token, which tells virtual tokens of the same id but other
            content apart, so that the KV cache is not shared between them; 0 for other tokens.
        position_ids: position of each token; ``None``: 0, 1, 2 and so on.
        mrope_cos_sin: rotary cosines and sines, 32-bit floats, for models with mrope.
        mrope_position_deltas: offset of the answer's positions, for models with mrope.
        encoder_tokens: input of the encoder, for encoder-decoder models.
        encoder_features: features in place of ``encoder_tokens``.
        encoder_output_length: length of the encoder's output, where it is not that of its input.
        cross_attention_mask: which positions of the encoder each token attends to.
        skip_cross_attention: whether cross attention is left out; booleans.
    """

    tokens: Sequence[int]
    prompt: str | None = None
    prompt_table: Any = None
    prompt_table_extra_ids: Sequence[int] | None = None
    position_ids: Sequence[int] | None = None
    mrope_cos_sin: Any = None
    mrope_position_deltas: int | None = None
    encoder_tokens: Sequence[int] | None = None
    encoder_features: Any = None
    encoder_output_length: int | None = None
    cross_attention_mask: Any = None
    skip_cross_attention: Any = None

    def extras(self) -> dict[str, Any]:
        """Everything but the prompt itself that is set."""
        values = ((item.name, getattr(self, item.name)) for item in fields(self))
        return {name: value for name, value in values if name not in _TEXT_ONLY and value is not None}


def check_prepared(result: Any, vocab_size: int) -> PreparedInput:
    """A processor's result in its final form: lists of plain numbers, tensors as :class:`Tensor`.

    Raises:
        ProcessorFailedError: it cannot be used; the message says why.
    """
    if not isinstance(result, PreparedInput):
        raise ProcessorFailedError(f"process() returned {type(result).__name__}, not PreparedInput")
    if result.prompt is not None and not isinstance(result.prompt, str):
        raise ProcessorFailedError(f"prompt is {type(result.prompt).__name__}, not a text")
    prepared = PreparedInput(tokens=_numbers("tokens", result.tokens), prompt=result.prompt)
    count = len(prepared.tokens)
    if count == 0:
        raise ProcessorFailedError("there are no tokens")
    for name in ("prompt_table_extra_ids", "position_ids", "encoder_tokens"):
        value = getattr(result, name)
        if value is not None:
            most = 2**64 - 1 if name == "prompt_table_extra_ids" else _I32_MAX
            setattr(prepared, name, _numbers(name, value, most))
            if name != "encoder_tokens" and len(getattr(prepared, name)) != count:
                raise ProcessorFailedError(f"{name} has {len(value)} numbers for {count} tokens")
    for name in _TENSORS:
        if (value := getattr(result, name)) is not None:
            try:
                setattr(prepared, name, Tensor.of(value))
            except (TypeError, ValueError) as error:
                raise ProcessorFailedError(f"{name}: {error}") from error
            element = getattr(prepared, name).element
            if element != _ELEMENTS.get(name, element):
                raise ProcessorFailedError(f"{name} is of {element}, not {_ELEMENTS[name]}")
    prepared.mrope_position_deltas = _number("mrope_position_deltas", result.mrope_position_deltas, -_I32_MAX)
    prepared.encoder_output_length = _number("encoder_output_length", result.encoder_output_length, 0)
    if (prepared.mrope_cos_sin is None) != (prepared.mrope_position_deltas is None):
        raise ProcessorFailedError("mrope_cos_sin and mrope_position_deltas go together")
    _check_tokens(prepared, vocab_size)
    return prepared


def _check_tokens(prepared: PreparedInput, vocab_size: int) -> None:
    table: Tensor | None = prepared.prompt_table
    if table is not None and len(table.shape) != 2:
        raise ProcessorFailedError(f"prompt_table has {len(table.shape)} dimensions, not 2")
    if prepared.prompt_table_extra_ids is not None and table is None:
        raise ProcessorFailedError("prompt_table_extra_ids needs prompt_table")
    rows = 0 if table is None else table.shape[0]
    highest = max(prepared.tokens)
    if highest >= vocab_size + rows:
        table_text = f" and {rows} rows of prompt_table" if rows else ", and there is no prompt_table"
        raise ProcessorFailedError(f"token {highest}: the vocabulary has {vocab_size} tokens{table_text}")


def _numbers(name: str, values: Any, most: int = _I32_MAX) -> list[int]:
    # Arrays of numpy and torch give plain integers this way, and fast.
    if hasattr(values, "tolist"):
        values = values.tolist()
    if isinstance(values, str | bytes) or not isinstance(values, Sequence):
        raise ProcessorFailedError(f"{name} is {type(values).__name__}, not a list of integers")
    for index, value in enumerate(values):
        if not isinstance(value, int) or isinstance(value, bool):
            raise ProcessorFailedError(f"{name}[{index}] is {type(value).__name__}, not an integer")
        if not 0 <= value <= most:
            raise ProcessorFailedError(f"{name}[{index}] is {value}, not from 0 to {most}")
    return list(values)


def _number(name: str, value: Any, least: int) -> int | None:
    if value is None:
        return None
    if hasattr(value, "item"):
        value = value.item()
    if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= _I32_MAX:
        raise ProcessorFailedError(f"{name} is {value!r:.80}, not an integer from {least} to {_I32_MAX}")
    return value
