"""Arrays of an input processor, in the plain form in which they cross to the engine."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

Element = Literal["bool", "i32", "i64", "bf16", "fp8", "fp16", "fp32"]

ELEMENT_BYTES: Mapping[Element, int] = {
    "bool": 1,
    "i32": 4,
    "i64": 8,
    "bf16": 2,
    "fp8": 1,
    "fp16": 2,
    "fp32": 4,
}
MAX_DIMENSIONS = 4

_OF_DTYPE: Mapping[str, Element] = {
    "bool": "bool",
    "int32": "i32",
    "int64": "i64",
    "bfloat16": "bf16",
    "float8_e4m3fn": "fp8",
    "float16": "fp16",
    "float32": "fp32",
}
"""numpy's names (with ml_dtypes') and torch's, which are the same behind ``torch.``."""

_OF_FORMAT: Mapping[str, Element] = {
    "?": "bool",
    "i": "i32",
    "q": "i64",
    "l": "i64",
    "e": "fp16",
    "f": "fp32",
}
"""Format characters of the buffer protocol."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A row-major array in host memory.

    Attributes:
        element: type of the elements.
        shape: sizes, outermost first; one to four.
        data: the elements, as this machine lays them out.
    """

    element: Element
    shape: tuple[int, ...]
    data: bytes = field(repr=False)

    def __post_init__(self) -> None:
        if self.element not in get_args(Element):
            raise ValueError(f"a tensor's element is one of {', '.join(get_args(Element))}")
        if not 1 <= len(self.shape) <= MAX_DIMENSIONS or min(self.shape) < 0:
            raise ValueError(f"a tensor has 1 to {MAX_DIMENSIONS} dimensions, not the shape {self.shape}")
        needed = math.prod(self.shape) * ELEMENT_BYTES[self.element]
        if len(self.data) != needed:
            raise ValueError(
                f"a tensor of {self.element} {list(self.shape)} has {needed} bytes, not {len(self.data)}"
            )

    @classmethod
    def of(cls, array: Any) -> Tensor:
        """A copy of an array of numpy or torch (on any device), or of anything with the buffer protocol.

        Raises:
            TypeError: it is none of these, or its elements have a type that engines do not take.
        """
        if isinstance(array, Tensor):
            return array
        if _is_torch(array):
            return cls._of_torch(array)
        dtype = getattr(array, "dtype", None)
        if dtype is not None and hasattr(array, "tobytes"):
            return cls(_element(str(dtype), _OF_DTYPE), tuple(map(int, array.shape)), array.tobytes("C"))
        try:
            view = memoryview(array)
        except TypeError:
            raise TypeError(f"expected an array, got {type(array).__name__}") from None
        return cls(_element(view.format, _OF_FORMAT), view.shape or (), view.tobytes("C"))

    def native(self) -> tuple[Element, list[int], bytes]:
        """As the core takes it."""
        return self.element, list(self.shape), self.data

    @classmethod
    def _of_torch(cls, array: Any) -> Tensor:
        import torch  # type: ignore[import-not-found, unused-ignore]

        element = _element(str(array.dtype).removeprefix("torch."), _OF_DTYPE)
        # To host memory: this waits for the work on the device that makes the values.
        host = array.detach().cpu().contiguous()
        # numpy has neither bfloat16 nor 8-bit floats, so the bytes are taken.
        flat = host.reshape(-1).view(torch.uint8).numpy()
        return cls(element, tuple(map(int, array.shape)), flat.tobytes())


def _is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, getattr(torch, "Tensor", ()))


def _element(name: str, known: Mapping[str, Element]) -> Element:
    element = known.get(name)
    if element is None:
        raise TypeError(f"elements of type {name} are not supported; use one of {', '.join(known)}")
    return element
