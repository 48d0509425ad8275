"""Tensors in bodies of the inference protocol, as JSON or as bytes after it (Triton's binary tensor data).

A body with bytes has its JSON first; the header ``Inference-Header-Content-Length`` says how long that is.
The bytes of the tensors follow in their order, little-endian; a text has its length before it, in 4 bytes.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, Field
from pydantic_core import to_json
from starlette.responses import Response

from llgtrt.api.delivery import DeliveryLimits, JsonGenerationResponse, PiecewiseResponse
from llgtrt.api.metrics import HttpMetrics
from llgtrt.engine import Delta
from llgtrt.patient_json import parse_json
from llgtrt.serving import Generation, RequestError, in_proportion
from llgtrt.serving.errors import quote
from llgtrt.serving.generation import delta_size
from llgtrt.serving.protocol.triton import ASKED_BY, FLOATS, INPUTS, INTEGERS, OUTPUTS
from llgtrt.serving.triton import TritonOutput
from llgtrt.serving.triton_logits import LOGITS, LogitsTensor

MAX_TENSORS = 64
MAX_ELEMENTS = 65_536
MAX_DIMENSIONS = 8
_FORMATS = {
    "BOOL": "?",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}


class Tensor(BaseModel):
    """A tensor of an inference request."""

    name: str
    datatype: str = Field(description="BYTES, BOOL, INT32, FP32 and so on.")
    shape: list[int] = Field(description="The first dimension is the batch.")
    data: list[Any] | None = Field(default=None, description="The elements, in any nesting.")
    parameters: dict[str, Any] | None = Field(
        default=None, description="`binary_data_size`: so many of the bytes after the JSON are the elements."
    )


class RequestedOutput(BaseModel):
    """An output that an inference request asks for."""

    name: str
    parameters: dict[str, Any] | None = Field(
        default=None, description="`binary_data`: whether its elements come as bytes after the JSON."
    )


class InferRequest(BaseModel):
    """The JSON of an inference request. It is read by hand, as bytes may follow it."""

    id: str | None = Field(default=None, description="Comes back with the answer.")
    inputs: list[Tensor]
    outputs: list[RequestedOutput] | None = Field(default=None, description="Left out: all that there are.")
    parameters: dict[str, Any] | None = Field(
        default=None, description="`binary_data_output`: what `binary_data` is where an output does not say."
    )


@dataclass(frozen=True, slots=True)
class Tensors:
    """What a body asks for.

    Attributes:
        inputs: the inputs as the generate extension would write them.
        outputs: whether each output that is asked for is to come as bytes; empty: all that there are.
        binary: how those come that are not asked for by name.
    """

    inputs: dict[str, Any]
    outputs: dict[str, bool]
    binary: bool

    @property
    def logits_as_text(self) -> bool:
        """Whether any logits are to come as JSON. Nothing comes as bytes then: these would follow JSON of a
        length that nobody knows."""
        return not all(self.outputs.get(name, self.binary) for name in LOGITS if self._asks(name))

    def _asks(self, name: str) -> bool:
        if self.outputs:
            return name in self.outputs
        return bool(_truth(self.inputs.get(ASKED_BY[name])))


def _truth(value: Any) -> Any:
    return value[0] if isinstance(value, list) and value else value


def read_tensors(body: bytes, json_length: str | None) -> Tensors:
    """The tensors of a body.

    Args:
        body: all of it.
        json_length: the header that says where the JSON ends, if there is one.

    Raises:
        RequestError: it is malformed, or a tensor does not fit its shape or the model's.
    """
    head = _json_end(body, json_length)
    try:
        given = parse_json(body[:head])
    except ValueError as error:
        raise RequestError(f"The body is not valid JSON: {error}.", code="invalid_json") from None
    if not isinstance(given, dict):
        raise RequestError("The body must be a JSON object.", code="invalid_json")
    parameters = _object(given.get("parameters"), "parameters")
    inputs: dict[str, Any] = {}
    if given.get("id"):
        inputs["id"] = given["id"]
    rest = memoryview(body)[head:]
    for index, tensor in enumerate(_objects(given.get("inputs"), "inputs")):
        param = f"inputs[{index}]"
        name, values, used = _input(tensor, rest, param)
        if name in inputs:
            raise RequestError(f"{param}: {quote(name)} is given twice.", param)
        inputs[name] = values
        rest = rest[used:]
    if rest:
        raise RequestError(f"{len(rest)} bytes follow the tensors.")
    binary = parameters.pop("binary_data_output", False) is True
    for name, value in parameters.items():
        # As in the generate extension; what is no input is named when the inputs are checked.
        if name in inputs:
            raise RequestError(f"{quote(name)} is given twice, also in parameters.", name[:100])
        inputs[name] = value
    outputs: dict[str, bool] = {}
    for index, one in enumerate(_objects(given.get("outputs"), "outputs")):
        output = one.get("name")
        if not isinstance(output, str):
            raise RequestError(f"outputs[{index}].name must be a string.", f"outputs[{index}].name")
        asked = _object(one.get("parameters"), f"outputs[{index}].parameters")
        if asked.get("classification"):
            raise RequestError("Classification is not supported.", f"outputs[{index}].parameters")
        outputs[output] = asked.get("binary_data", binary) is True
        if output in ASKED_BY:
            inputs.setdefault(ASKED_BY[output], [True])
    return Tensors(inputs, outputs, binary)


def _json_end(body: bytes, json_length: str | None) -> int:
    if json_length is None:
        return len(body)
    digits = json_length.strip()
    if not (digits.isascii() and digits.isdigit() and len(digits) < 20) or int(digits) > len(body):
        raise RequestError("Inference-Header-Content-Length must be the length of the body's JSON.")
    return int(digits)


def _object(value: Any, param: str) -> dict[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RequestError(f"{param} must be an object.", param)
    return value


def _objects(value: Any, param: str) -> list[dict[str, Any]]:
    if value is None:
        return []
    if not isinstance(value, list) or len(value) > MAX_TENSORS:
        raise RequestError(f"{param} must be an array of at most {MAX_TENSORS} objects.", param)
    return [_object(one, f"{param}[{index}]") for index, one in enumerate(value)]


def _input(tensor: dict[str, Any], rest: memoryview, param: str) -> tuple[str, list[Any], int]:
    """Name and elements of an input, and how many bytes of ``rest`` it took."""
    name, datatype = tensor.get("name"), tensor.get("datatype")
    if not isinstance(name, str):
        raise RequestError(f"{param}.name must be a string.", f"{param}.name")
    if name not in INPUTS:
        raise RequestError(f"{param}: this model has no input {quote(name)}.", f"{param}.name")
    expected = INPUTS[name][0]
    if not isinstance(datatype, str) or not _fits(datatype, expected):
        raise RequestError(
            f"{name}: the datatype is {quote(datatype)}, the model expects {expected}.", f"{param}.datatype"
        )
    count = _count(tensor.get("shape"), name, param)
    parameters = _object(tensor.get("parameters"), f"{param}.parameters")
    if "shared_memory_region" in parameters:
        raise RequestError(f"{name}: shared memory is not supported.", f"{param}.parameters")
    size = parameters.get("binary_data_size")
    if size is None:
        values = _flat(tensor.get("data"), param)
        used = 0
    elif isinstance(size, int) and not isinstance(size, bool) and 0 <= size <= len(rest):
        values = _unpack(rest[:size], datatype, count, name)
        used = size
    else:
        raise RequestError(f"{name}: binary_data_size is more than there is.", f"{param}.parameters")
    if len(values) != count:
        raise RequestError(f"{name}: {len(values)} elements do not fit the shape.", f"{param}.shape")
    return name, values, used


def _fits(datatype: str, expected: str) -> bool:
    """Whether the model can take it: versions of the ensemble differ in the size of numbers."""
    same = next((kind for kind in (INTEGERS, FLOATS) if expected in kind), (expected,))
    return datatype in same


def _count(shape: Any, name: str, param: str) -> int:
    sizes: list[Any] = shape if isinstance(shape, list) and len(shape) <= MAX_DIMENSIONS else [None]
    if not all(isinstance(one, int) and not isinstance(one, bool) and one >= 0 for one in sizes):
        raise RequestError(f"{name}: the shape must be an array of counts.", f"{param}.shape")
    count: int = math.prod(sizes)
    if count > MAX_ELEMENTS:
        raise RequestError(f"{name}: more than {MAX_ELEMENTS} elements.", f"{param}.shape")
    return count


def _flat(data: Any, param: str) -> list[Any]:
    if not isinstance(data, list):
        raise RequestError(f"{param}.data must be an array.", f"{param}.data")
    flat: list[Any] = []
    for one in data:
        flat += _flat(one, param) if isinstance(one, list) else [one]
    return flat


def _unpack(data: memoryview, datatype: str, count: int, name: str) -> list[Any]:
    if datatype == "BYTES":
        return _texts(data, name)
    form = f"<{count}{_FORMATS[datatype]}"
    if struct.calcsize(form) != len(data):
        raise RequestError(f"{name}: {len(data)} bytes do not fit the shape.", name)
    return list(struct.unpack(form, data))


def _texts(data: memoryview, name: str) -> list[str]:
    texts: list[str] = []
    at = 0
    while at < len(data):
        if at + 4 > len(data):
            raise RequestError(f"{name}: the bytes end within a length.", name)
        (length,) = struct.unpack_from("<I", data, at)
        at += 4
        if length > len(data) - at:
            raise RequestError(f"{name}: the bytes end within a text.", name)
        try:
            texts.append(str(data[at : at + length], "utf-8"))
        except UnicodeDecodeError:
            raise RequestError(f"{name} is not UTF-8.", name) from None
        at += length
    return texts


class TensorResponse(JsonGenerationResponse):
    """The outputs of a generation as tensors."""

    def __init__(
        self, generation: Generation, limits: DeliveryLimits, metrics: HttpMetrics, tensors: Tensors
    ) -> None:
        super().__init__(generation, limits, metrics)
        self._tensors = tensors

    async def _answer(self, delta: Delta) -> Response:
        """The tensors of a complete generation."""
        return await in_proportion(delta_size(delta), self._write_tensors, delta)

    def _write_tensors(self, delta: Delta) -> Response:
        output = self._generation.output
        assert isinstance(output, TritonOutput)
        body = output.columns(delta)
        batch: list[int] = body.pop("shape")
        columns: dict[str, list[Any]] = body["outputs"]
        logits = {
            name: LogitsTensor(rows, batch[: 1 if name == "context_logits" else 2])
            for name, rows in output.logits(delta).items()
        }
        as_text = bool(logits) and self._tensors.logits_as_text
        tensors: list[dict[str, Any]] = []
        binary: list[bytes | LogitsTensor] = []
        for name in self._tensors.outputs or [*columns, *logits]:
            large = logits.get(name)
            values, shape = _padded(columns[name], batch) if large is None else ([], large.shape)
            tensor: dict[str, Any] = {"name": name, "datatype": OUTPUTS[name][0], "shape": shape}
            if self._tensors.outputs.get(name, self._tensors.binary) and not as_text:
                data = _pack(values, OUTPUTS[name][0]) if large is None else large
                size = data.size if isinstance(data, LogitsTensor) else len(data)
                tensor["parameters"] = {"binary_data_size": size}
                binary.append(data)
            elif large is None:
                tensor["data"] = values
            tensors.append(tensor)
        if as_text:
            return PiecewiseResponse(_as_text(body, tensors, logits), media_type="application/json")
        head = to_json({**body, "outputs": tensors})
        if not binary:
            return Response(head, media_type="application/json")
        headers = {"Inference-Header-Content-Length": str(len(head))}
        if not logits:
            whole = head + b"".join(one for one in binary if isinstance(one, bytes))
            return Response(whole, headers=headers, media_type="application/octet-stream")
        size = sum(one.size if isinstance(one, LogitsTensor) else len(one) for one in binary)
        headers["Content-Length"] = str(len(head) + size)
        return PiecewiseResponse(_as_bytes(head, binary), headers, "application/octet-stream")


def _as_bytes(head: bytes, binary: list[bytes | LogitsTensor]) -> Iterator[bytes]:
    yield head
    for one in binary:
        if isinstance(one, LogitsTensor):
            yield from one.raw()
        elif one:
            yield one


def _as_text(
    body: dict[str, Any], tensors: list[dict[str, Any]], logits: dict[str, LogitsTensor]
) -> Iterator[bytes]:
    yield to_json({name: value for name, value in body.items() if name != "outputs"})[:-1] + b',"outputs":['
    for index, tensor in enumerate(tensors):
        head = to_json(tensor)
        yield b"," + head[:-1] if index > 0 else head[:-1]
        if tensor["name"] in logits:
            yield b',"data":'
            yield from logits[tensor["name"]].json()
        yield b"}"
    yield b"]}"


def _padded(column: list[Any], batch: list[int]) -> tuple[list[Any], list[int]]:
    """The elements of an output, and its shape. Lists of unequal length are filled up with zeros."""
    if not column or not isinstance(column[0], list):
        return column, batch
    longest = max(map(len, column))
    values = [value for row in column for value in (*row, *[0.0] * (longest - len(row)))]
    return values, [*batch, longest]


def _pack(values: list[Any], datatype: str) -> bytes:
    if datatype == "BYTES":
        texts = [str(value).encode() for value in values]
        return b"".join(struct.pack("<I", len(text)) + text for text in texts)
    return struct.pack(f"<{len(values)}{_FORMATS[datatype]}", *values)
