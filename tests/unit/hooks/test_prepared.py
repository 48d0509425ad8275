"""What a processor returns: what is taken, and how the rest is refused."""

from __future__ import annotations

import array
import struct
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from llgtrt.hooks import PreparedInput, ProcessorFailedError, Tensor
from llgtrt.hooks.prepared import check_prepared

VOCAB = 100


def test_tokens_of_any_kind_become_a_list() -> None:
    kinds: list[Any] = [[1, 2, 3], (1, 2, 3), np.array([1, 2, 3]), range(1, 4)]
    for tokens in kinds:
        prepared = check_prepared(PreparedInput(tokens=tokens), VOCAB)
        assert prepared.tokens == [1, 2, 3]
        assert all(type(token) is int for token in prepared.tokens)
        assert prepared.extras() == {}


def test_everything_at_once() -> None:
    result = PreparedInput(
        tokens=[1, VOCAB, VOCAB + 1],
        prompt="look",
        prompt_table=np.ones((2, 4), np.float16),
        prompt_table_extra_ids=[0, 2**64 - 1, 7],
        position_ids=np.arange(3),  # type: ignore[arg-type]
        mrope_cos_sin=np.zeros((1, 8), np.float32),
        mrope_position_deltas=np.array(-3),  # type: ignore[arg-type]
        encoder_tokens=[5],
        encoder_features=np.zeros((2, 2), np.float32),
        encoder_output_length=2,
        cross_attention_mask=np.zeros((3, 2), np.int32),
        skip_cross_attention=np.ones(1, np.bool_),
    )
    prepared = check_prepared(result, VOCAB)
    assert prepared.prompt == "look"
    extras = prepared.extras()
    assert extras["prompt_table"] == Tensor("fp16", (2, 4), np.ones(8, np.float16).tobytes())
    assert extras["position_ids"] == [0, 1, 2]
    assert extras["mrope_position_deltas"] == -3
    assert extras["encoder_tokens"] == [5]
    assert set(extras) == {
        "prompt_table",
        "prompt_table_extra_ids",
        "position_ids",
        "mrope_cos_sin",
        "mrope_position_deltas",
        "encoder_tokens",
        "encoder_features",
        "encoder_output_length",
        "cross_attention_mask",
        "skip_cross_attention",
    }


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"tokens": []}, "there are no tokens"),
        ({"tokens": "text"}, "tokens is str, not a list of integers"),
        ({"tokens": None}, "tokens is NoneType"),
        ({"tokens": [1, 2.0]}, r"tokens\[1\] is float, not an integer"),
        ({"tokens": [True]}, r"tokens\[0\] is bool"),
        ({"tokens": np.zeros((2, 2), int)}, r"tokens\[0\] is list"),
        ({"tokens": [-1]}, r"tokens\[0\] is -1, not from 0"),
        ({"tokens": [VOCAB]}, "token 100: the vocabulary has 100 tokens, and there is no prompt_table"),
        (
            {"tokens": [VOCAB + 2], "prompt_table": np.zeros((2, 4), np.float32)},
            "token 102: the vocabulary has 100 tokens and 2 rows of prompt_table",
        ),
        ({"prompt": 3}, "prompt is int, not a text"),
        ({"prompt_table": np.zeros(4, np.float32)}, "prompt_table has 1 dimensions, not 2"),
        ({"prompt_table": [[1.0]]}, "prompt_table: expected an array, got list"),
        ({"prompt_table": np.zeros((1, 4))}, "prompt_table: elements of type float64 are not supported"),
        ({"prompt_table": np.zeros((1, 1, 1, 1, 1), np.int32)}, "prompt_table: a tensor has 1 to 4"),
        ({"prompt_table_extra_ids": [1, 2]}, "needs prompt_table"),
        ({"skip_cross_attention": np.ones(1, np.int32)}, "skip_cross_attention is of i32, not bool"),
        (
            {"mrope_cos_sin": np.ones((1, 2), np.float16), "mrope_position_deltas": 0},
            "mrope_cos_sin is of fp16, not fp32",
        ),
        ({"position_ids": [0]}, "position_ids has 1 numbers for 2 tokens"),
        ({"position_ids": [0, -1]}, r"position_ids\[1\] is -1"),
        ({"mrope_position_deltas": 1}, "go together"),
        ({"mrope_cos_sin": np.zeros(2, np.float32)}, "go together"),
        ({"encoder_output_length": -1}, "encoder_output_length is -1"),
        ({"encoder_output_length": 2.5}, "encoder_output_length is 2.5"),
    ],
)
def test_what_cannot_be_used(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ProcessorFailedError, match=message):
        check_prepared(PreparedInput(**{"tokens": [1, 2], **fields}), VOCAB)


@pytest.mark.parametrize("result", [None, [1, 2], {"tokens": [1]}, "text"])
def test_only_prepared_inputs_count(result: Any) -> None:
    with pytest.raises(ProcessorFailedError, match="not PreparedInput"):
        check_prepared(result, VOCAB)


def test_arrays_are_copied_in_row_major_order() -> None:
    values = np.arange(6, dtype=np.int64).reshape(2, 3)
    assert Tensor.of(values.T).data == struct.pack("6q", 0, 3, 1, 4, 2, 5)
    assert Tensor.of(values[:, ::2]) == Tensor("i64", (2, 2), struct.pack("4q", 0, 2, 3, 5))
    assert Tensor.of(array.array("f", [1.5])) == Tensor("fp32", (1,), struct.pack("f", 1.5))
    assert Tensor.of(Tensor.of(values)) == Tensor.of(values)


def test_a_tensor_is_as_long_as_its_shape_says() -> None:
    with pytest.raises(ValueError, match=r"has 16 bytes, not 4"):
        Tensor("bf16", (2, 4), b"1234")
    with pytest.raises(ValueError, match="element is one of"):
        Tensor("u8", (4,), b"1234")  # type: ignore[arg-type]


class FakeTorchTensor:
    """What of a torch tensor is used, on the bits of bfloat16 in 16-bit integers."""

    dtype = "torch.bfloat16"

    def __init__(self, bits: Any) -> None:
        self.bits = bits
        self.shape = bits.shape

    def detach(self) -> FakeTorchTensor:
        return self

    cpu = detach

    def contiguous(self) -> FakeTorchTensor:
        return FakeTorchTensor(np.ascontiguousarray(self.bits))

    def reshape(self, *shape: int) -> FakeTorchTensor:
        return FakeTorchTensor(self.bits.reshape(*shape))

    def view(self, dtype: Any) -> FakeTorchTensor:
        return FakeTorchTensor(self.bits.view(dtype))

    def numpy(self) -> Any:
        return self.bits


def test_torch_is_known_without_being_a_dependency(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = ModuleType("torch")
    torch.Tensor, torch.uint8 = FakeTorchTensor, np.uint8  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "torch", torch)
    bits = np.arange(6, dtype=np.uint16).reshape(2, 3)
    assert Tensor.of(FakeTorchTensor(bits.T)) == Tensor("bf16", (3, 2), bits.T.tobytes())
