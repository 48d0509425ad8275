"""The inputs of Triton's TensorRT-LLM ensemble, as ``/v2/models/NAME/generate`` and ``infer`` take them.

Triton sends tensors, so each value may come alone or in a list, one for each text. A text is refused together
with a field that would change its answer and that this server does not have; nothing is ignored.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from llgtrt.patient_json import parse_json
from llgtrt.serving.errors import RequestError, quote
from llgtrt.serving.protocol.fields import (
    MAX_BAD_WORDS,
    MAX_COUNT,
    MAX_STOP_STRINGS,
    BadWord,
    RequestModel,
    StopWord,
)
from llgtrt.serving.protocol.parse import validate_request

NOT_SUPPORTED: dict[str, tuple[Any, ...]] = {
    "decoder_text_input": (),
    "embedding_bias_weights": (),
    "embedding_bias_words": (),
    "image_input": (),
    "image_url_input": (),
    "lora_config": (),
    "lora_weights": (),
    "num_draft_tokens": (0,),
    "prompt_embedding_table": (),
    "prompt_table_extra_ids": (),
    "prompt_vocab_size": (0,),
    "return_perf_metrics": (False,),
    "use_draft_logits": (False,),
}
"""Inputs of the ensemble that no engine here can honour, and the values that ask for nothing, beside empty
texts."""

GuideType = Literal["json", "json_schema", "regex", "ebnf_grammar"]


def _flat(value: Any) -> list[Any]:
    """The elements of a tensor that is written as nested lists."""
    if not isinstance(value, list):
        return [value]
    if not any(isinstance(one, list) for one in value):
        return value
    return [element for one in value for element in _flat(one)]


def _one(value: Any) -> Any:
    """The value that all texts share."""
    if not isinstance(value, list):
        return value
    elements = _flat(value)
    if not elements:
        return None
    first = elements[0]
    if any(type(one) is not type(first) or one != first for one in elements):
        raise PydanticCustomError("differs", "must be the same for all texts of a request")
    return first


def _number(value: Any) -> Any:
    """A whole number, however it is written: some clients send ``100.0``."""
    value = _one(value)
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _words(value: Any) -> Any:
    """A text or texts as a list; an empty one is how clients write that there are none."""
    return None if value is None else [word for word in _flat(value) if word != ""]


def _texts(value: Any) -> Any:
    return _flat(value)


Whole = BeforeValidator(_number, json_schema_input_type=int | list[int] | None)
Real = BeforeValidator(_one, json_schema_input_type=float | list[float] | None)
Switch = BeforeValidator(_one, json_schema_input_type=bool | list[bool] | None)
Text = BeforeValidator(_one, json_schema_input_type=str | list[str] | None)
Words = BeforeValidator(_words, json_schema_input_type=str | list[str] | None)


class TritonRequest(RequestModel):
    """The inputs of Triton's TensorRT-LLM ensemble; each may be a value or a list of one per text."""

    model_config = ConfigDict(extra="forbid")

    text_input: Annotated[
        list[str],
        Field(min_length=1, fail_fast=True, description="The text to continue, or several."),
        BeforeValidator(_texts, json_schema_input_type=str | list[str]),
    ]
    id: str | None = Field(default=None, description="Comes back with the answer.")
    max_tokens: Annotated[
        int | None, Field(default=None, ge=1, le=MAX_COUNT, description="Most tokens of an answer."), Whole
    ]
    bad_words: Annotated[
        list[BadWord] | None,
        Field(
            default=None,
            max_length=MAX_BAD_WORDS,
            description="Texts that are not generated. (TensorRT-LLM)",
        ),
        Words,
    ]
    stop_words: Annotated[
        list[StopWord] | None,
        Field(default=None, max_length=MAX_STOP_STRINGS, description="Texts that end an answer."),
        Words,
    ]
    end_id: Annotated[
        int | None,
        Field(
            default=None,
            ge=-1,
            le=MAX_COUNT,
            description="A token that ends an answer, beside the model's own; -1: none does.",
        ),
        Whole,
    ]
    pad_id: Annotated[int | None, Field(default=None, description="Accepted: nothing is padded."), Whole]
    top_k: Annotated[
        int | None,
        Field(
            default=None,
            ge=0,
            le=MAX_COUNT,
            description="Tokens to keep. Neither this nor top_p: the most likely token is taken.",
        ),
        Whole,
    ]
    top_p: Annotated[
        float | None,
        Field(default=None, ge=0, le=1, description="Mass of the likely tokens to keep; 0 as left out."),
        Real,
    ]
    temperature: Annotated[
        float | None, Field(default=None, ge=0, le=2, description="0 takes the most likely token."), Real
    ]
    beam_width: Annotated[
        int | None,
        Field(
            default=None,
            ge=1,
            le=MAX_COUNT,
            description="Above 1: the likeliest answers of a search with so many beams.",
        ),
        Whole,
    ]
    length_penalty: Annotated[
        float | None,
        Field(
            default=None,
            ge=-10,
            le=10,
            description="With beams: an answer's log-probability is divided by its length to this power. 0 "
            "if left out, as in TensorRT-LLM.",
        ),
        Real,
    ]
    early_stopping: Annotated[
        bool | int | None,
        Field(
            default=None,
            description="With beams: 1, as if left out, ends the search with as many answers as beams; else "
            "it ends when no better answer can come.",
        ),
        BeforeValidator(_one, json_schema_input_type=bool | int | list[bool] | list[int] | None),
    ]
    repetition_penalty: Annotated[
        float | None, Field(default=None, gt=0, le=10, description="Divides the logits of used tokens."), Real
    ]
    min_length: Annotated[
        int | None, Field(default=None, ge=0, le=MAX_COUNT, description="Least tokens of an answer."), Whole
    ]
    min_tokens: Annotated[
        int | None,
        Field(default=None, ge=0, le=MAX_COUNT, description="Newer name of min_length."),
        Whole,
    ]
    presence_penalty: Annotated[
        float | None, Field(default=None, ge=-2, le=2, description="Penalty on tokens used before."), Real
    ]
    frequency_penalty: Annotated[
        float | None, Field(default=None, ge=-2, le=2, description="Penalty per use of a token so far."), Real
    ]
    random_seed: Annotated[
        int | None,
        Field(
            default=None,
            ge=0,
            le=2**64 - 1,
            description="Sequence i of a text uses this plus i. 0 if left out, as in TensorRT-LLM.",
        ),
        Whole,
    ]
    seed: Annotated[
        int | None, Field(default=None, ge=0, le=2**64 - 1, description="Newer name of random_seed."), Whole
    ]
    return_log_probs: Annotated[
        bool | None, Field(default=None, description="Add cum_log_probs and output_log_probs."), Switch
    ]
    return_finish_reason: Annotated[
        bool | None, Field(default=None, description="Add finish_reason: stop or length."), Switch
    ]
    return_num_output_tokens: Annotated[
        bool | None, Field(default=None, description="Add num_output_tokens."), Switch
    ]
    return_context_logits: Annotated[
        bool | None,
        Field(
            default=None,
            description="Add context_logits: the model's logits behind each token of the text.",
        ),
        Switch,
    ]
    return_generation_logits: Annotated[
        bool | None,
        Field(
            default=None,
            description="Add generation_logits: the logits that each new token was chosen from.",
        ),
        Switch,
    ]
    num_return_sequences: Annotated[
        int | None, Field(default=None, ge=1, le=MAX_COUNT, description="Answers per text."), Whole
    ]
    exclude_input_in_output: Annotated[
        bool | None,
        Field(default=None, description="false: the text comes before its answer. Left out: true."),
        Switch,
    ]
    stream: Annotated[
        bool | None,
        Field(
            default=None,
            description="With generate_stream, false: one event with the whole answer. "
            "With generate and infer only false.",
        ),
        Switch,
    ]
    lora_task_id: Annotated[
        int | None,
        Field(
            default=None,
            ge=0,
            le=2**64 - 1,
            description="The adapter whose name is this number. (TensorRT-LLM)",
        ),
        Whole,
    ]
    guided_decoding_guide_type: Annotated[
        GuideType | None, Field(default=None, description="Kind of the constraint on the answer."), Text
    ]
    guided_decoding_guide: Annotated[
        str | None,
        Field(default=None, description="The schema, expression or grammar as text; with json nothing."),
        Text,
    ]

    @property
    def n(self) -> int:
        """Answers per text: with beams all of them, unless it is said."""
        return self.num_return_sequences or self.beam_width or 1


def read_inputs(body: bytes) -> TritonRequest:
    """The inputs in the body of the generate extension; they may stand in ``parameters`` as well.

    Raises:
        RequestError: it is not JSON, not an object, or an input is wrong.
    """
    try:
        value = parse_json(body)
    except ValueError as error:
        raise RequestError(f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(value, dict):
        raise RequestError("The body must be a JSON object.", code="invalid_json")
    parameters = value.pop("parameters", None)
    if parameters is not None:
        if not isinstance(parameters, dict):
            raise RequestError("parameters must be an object.", "parameters")
        for name, one in parameters.items():
            if name in value:
                raise RequestError(f"{quote(name)} is given twice, also in parameters.", name[:100])
            value[name] = one
    return check_inputs(value, len(body))


def check_inputs(inputs: dict[str, Any], body_bytes: int) -> TritonRequest:
    """Checks the inputs that came in a body of some size.

    Raises:
        RequestError: an input is wrong, not known, or not supported.
    """
    for name, harmless in NOT_SUPPORTED.items():
        if name in inputs:
            given = _words(inputs.pop(name))
            if given is not None and any(one not in harmless for one in given):
                raise RequestError(f"{name} is not supported here.", name)
    request = validate_request(TritonRequest, inputs)
    request._body_bytes = body_bytes
    return request


INTEGERS = ("INT32", "INT64", "UINT32", "UINT64", "INT16", "UINT16", "INT8", "UINT8")
FLOATS = ("FP32", "FP64", "FP16")

INPUTS: dict[str, tuple[str, list[int]]] = {
    "text_input": ("BYTES", [1]),
    "max_tokens": ("INT32", [1]),
    "bad_words": ("BYTES", [-1]),
    "stop_words": ("BYTES", [-1]),
    "end_id": ("INT32", [1]),
    "pad_id": ("INT32", [1]),
    "top_k": ("INT32", [1]),
    "top_p": ("FP32", [1]),
    "temperature": ("FP32", [1]),
    "beam_width": ("INT32", [1]),
    "length_penalty": ("FP32", [1]),
    "early_stopping": ("BOOL", [1]),
    "repetition_penalty": ("FP32", [1]),
    "min_length": ("INT32", [1]),
    "min_tokens": ("INT32", [1]),
    "presence_penalty": ("FP32", [1]),
    "frequency_penalty": ("FP32", [1]),
    "random_seed": ("UINT64", [1]),
    "seed": ("UINT64", [1]),
    "return_log_probs": ("BOOL", [1]),
    "return_finish_reason": ("BOOL", [1]),
    "return_num_output_tokens": ("BOOL", [1]),
    "return_context_logits": ("BOOL", [1]),
    "return_generation_logits": ("BOOL", [1]),
    "num_return_sequences": ("INT32", [1]),
    "exclude_input_in_output": ("BOOL", [1]),
    "stream": ("BOOL", [1]),
    "lora_task_id": ("UINT64", [1]),
    "guided_decoding_guide_type": ("BYTES", [1]),
    "guided_decoding_guide": ("BYTES", [1]),
}
"""Data type and dimensions, after the batch, of each input; the first alone is required."""

OUTPUTS: dict[str, tuple[str, list[int]]] = {
    "text_output": ("BYTES", [-1]),
    "cum_log_probs": ("FP32", [-1]),
    "output_log_probs": ("FP32", [-1, -1]),
    "finish_reason": ("BYTES", [-1]),
    "num_output_tokens": ("INT32", [-1]),
    "context_logits": ("FP32", [-1, -1]),
    "generation_logits": ("FP32", [-1, -1, -1]),
}
"""Data type and dimensions, after the batch, of each output: one element per sequence of a text; of
``context_logits``, one per token of the text."""

ASKED_BY = {
    "cum_log_probs": "return_log_probs",
    "output_log_probs": "return_log_probs",
    "finish_reason": "return_finish_reason",
    "num_output_tokens": "return_num_output_tokens",
    "context_logits": "return_context_logits",
    "generation_logits": "return_generation_logits",
}
"""The input that asks for an output which is not always there."""
