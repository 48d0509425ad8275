"""Tensors in bodies of the inference protocol."""

from __future__ import annotations

import json
import math
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llgtrt.api.triton_tensors import MAX_ELEMENTS, MAX_TENSORS, read_tensors
from llgtrt.serving import RequestError
from llgtrt.serving.protocol.triton import INPUTS


def body(*tensors: dict[str, Any], data: bytes = b"", **fields: Any) -> tuple[bytes, str]:
    """A body with bytes, and the header for it."""
    head = json.dumps({"inputs": tensors, **fields}).encode()
    return head + data, str(len(head))


def tensor(
    name: str = "text_input", datatype: str = "BYTES", shape: Any = (1,), **fields: Any
) -> dict[str, Any]:
    return {"name": name, "datatype": datatype, "shape": shape, **fields}


def binary(size: int) -> dict[str, Any]:
    return {"parameters": {"binary_data_size": size}}


def test_tensors_take_their_bytes_in_order() -> None:
    data = (
        struct.pack("<I2sI0s", 2, "é".encode(), 0, b"") + struct.pack("<2i", -1, 7) + struct.pack("<?", True)
    )
    read = read_tensors(
        *body(
            tensor(shape=[2, 1], **binary(10)),
            tensor("top_k", "INT64", [1, 1], data=[[5]]),
            tensor("end_id", "INT32", [2], **binary(8)),
            tensor("stream", "BOOL", [1], **binary(1)),
            data=data,
        )
    )
    assert read.inputs == {"text_input": ["é", ""], "top_k": [5], "end_id": [-1, 7], "stream": [True]}
    assert (read.outputs, read.binary) == ({}, False)


def test_parameters_are_inputs_as_well() -> None:
    parameters = {"binary_data_output": False, "max_tokens": 5, "sequence_id": 3}
    read = read_tensors(*body(tensor(data=["a"]), parameters=parameters))
    assert read.inputs == {"text_input": ["a"], "max_tokens": 5, "sequence_id": 3}
    with pytest.raises(RequestError, match="twice"):
        read_tensors(*body(tensor(data=["a"]), parameters={"text_input": "b"}))


@given(
    st.binary(max_size=60),
    st.integers(0, 70),
    st.lists(st.integers(-1, 9), max_size=3),
    st.sampled_from(sorted(INPUTS)),
)
def test_any_bytes_are_read_or_refused(data: bytes, size: int, shape: list[int], name: str) -> None:
    try:
        read = read_tensors(*body(tensor(name, INPUTS[name][0], shape, **binary(size)), data=data))
    except RequestError:
        return
    assert size == len(data)
    assert len(read.inputs[name]) == math.prod(shape)


def test_outputs_that_are_asked_for_ask_for_what_they_need() -> None:
    outputs = [{"name": "cum_log_probs"}, {"name": "text_output", "parameters": {"binary_data": False}}]
    read = read_tensors(*body(outputs=outputs, parameters={"binary_data_output": True}, id="i"))
    assert read.outputs == {"cum_log_probs": True, "text_output": False}
    assert read.inputs == {"id": "i", "return_log_probs": [True]}


@pytest.mark.parametrize(
    ("tensors", "data"),
    [
        ([tensor(shape=[2], data=["a"])], b""),
        ([tensor(shape=[-1], data=["a"])], b""),
        ([tensor(shape=[1.0], data=["a"])], b""),
        ([tensor(shape=[True], data=["a"])], b""),
        ([tensor(shape=None, data=["a"])], b""),
        ([tensor(shape=[1] * 9, data=["a"])], b""),
        ([tensor(shape=[2**40, 2**40], **binary(5))], b"\1\0\0\0a"),
        ([tensor(shape=[MAX_ELEMENTS + 1], **binary(5))], b"\1\0\0\0a"),
        ([tensor(data="a")], b""),
        ([tensor()], b""),
        ([tensor(**binary(6))], b"\1\0\0\0a"),
        ([tensor(**binary(-1))], b"\1\0\0\0a"),
        ([tensor(parameters={"binary_data_size": True})], b"\1\0\0\0a"),
        ([tensor(parameters={"binary_data_size": "5"})], b"\1\0\0\0a"),
        ([tensor(parameters=[])], b""),
        ([tensor(**binary(5))], b"\1\0\0\0a more"),
        ([tensor(**binary(4))], b"\1\0\0\0"),
        ([tensor(**binary(3))], b"\1\0\0"),
        ([tensor(**binary(5))], b"\xff\xff\xff\xffa"),
        ([tensor(**binary(5))], b"\1\0\0\0\xff"),
        ([tensor("top_k", "INT32", [1], **binary(8))], bytes(8)),
        ([tensor("top_k", "FP32", [1], **binary(4))], bytes(4)),
        ([tensor("top_k", "INT128", [1], data=[1])], b""),
        ([tensor("top_k", None, [1], data=[1])], b""),  # type: ignore[arg-type]
        ([tensor("nothing", data=["a"])], b""),
        ([tensor(3, data=["a"])], b""),  # type: ignore[arg-type]
        ([tensor(data=["a"]), tensor(data=["a"])], b""),
        ([tensor(parameters={"shared_memory_region": "x"})], b""),
        ([tensor(data=["a"])] * (MAX_TENSORS + 1), b""),
    ],
)
def test_what_does_not_fit_is_refused(tensors: list[dict[str, Any]], data: bytes) -> None:
    with pytest.raises(RequestError):
        read_tensors(*body(*tensors, data=data))


@pytest.mark.parametrize("length", ["-1", "x", "", "999", "1" * 5000, "²"])
def test_a_length_that_is_none_is_refused(length: str) -> None:
    with pytest.raises(RequestError, match="Inference-Header-Content-Length"):
        read_tensors(body(tensor(data=["a"]))[0], length)


@pytest.mark.parametrize(
    "text", [b"", b"[]", b"{", b'{"inputs": 1}', b'{"inputs": [1]}', b'{"outputs": [{}]}']
)
def test_json_of_another_form_is_refused(text: bytes) -> None:
    with pytest.raises(RequestError):
        read_tensors(text, None)
