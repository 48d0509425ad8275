"""Prompts of an input processor on their way to the core."""

from __future__ import annotations

import struct
from array import array
from collections.abc import AsyncIterator

import pytest

from llgtrt.chat import CHATML, ChatTemplate
from llgtrt.hooks import InputProcessor, InputRequest, PreparedInput, ProcessorContext, ProcessorPool
from llgtrt.serving import ChatPrompts, ChatRequest, RequestError
from support.fake_engine import MODEL_INFO, FakeNativeEngine, fake_engine

VOCAB = int(str(MODEL_INFO["vocab_size"]))
TEMPLATE = ChatTemplate(CHATML)
REQUEST = ChatRequest(messages=[{"role": "user", "content": "x"}], return_expanded_prompt=True)


class WithTable(InputProcessor):
    """Two rows for two tokens past the vocabulary."""

    def process(self, request: InputRequest) -> PreparedInput:
        table = memoryview(array("f", [1, 2, 3, 4])).cast("B").cast("f", (2, 2))
        return PreparedInput(
            tokens=[5, VOCAB, VOCAB + 1], prompt_table=table, position_ids=[0, 1, 1], encoder_output_length=4
        )


@pytest.fixture
async def native() -> AsyncIterator[FakeNativeEngine]:
    fake = FakeNativeEngine()
    yield fake
    fake.close()


def prompts(native: FakeNativeEngine) -> ChatPrompts:
    context = ProcessorContext(
        vocab_size=VOCAB, max_sequence_tokens=10, template=TEMPLATE, encode=lambda *_: [], decode=str
    )
    return ChatPrompts(fake_engine(native), TEMPLATE, ProcessorPool(WithTable(context), 1, VOCAB))


async def test_tensors_reach_an_engine_that_takes_them() -> None:
    native = FakeNativeEngine(prompt_tensors=True)
    prompt = await prompts(native).make(REQUEST, None, n=1, max_tokens=None)
    native.close()
    assert (prompt.prompt, prompt.add_special) == ([5, VOCAB, VOCAB + 1], False)
    assert prompt.expanded == "5", "rows of a table have no text"
    assert prompt.extras == {
        "prompt_table": ("fp32", [2, 2], struct.pack("4f", 1, 2, 3, 4)),
        "position_ids": [0, 1, 1],
        "encoder_output_length": 4,
    }


async def test_other_engines_refuse_them(native: FakeNativeEngine) -> None:
    with pytest.raises(RequestError, match=r"prompt_table, position_ids, encoder_output_length\.$"):
        await prompts(native).make(REQUEST, None, n=1, max_tokens=None)


@pytest.mark.parametrize(
    ("source", "shown"), [("{{ verbosity }}|" + CHATML, "low|"), (CHATML, "<|im_start|>")]
)
async def test_the_verbosity_is_for_templates_that_read_it(
    native: FakeNativeEngine, source: str, shown: str
) -> None:
    request = ChatRequest(messages=[{"role": "user", "content": "x"}], verbosity="low")
    made = ChatPrompts(fake_engine(native), ChatTemplate(source))
    prompt = await made.make(request, None, n=1, max_tokens=None)
    assert prompt.expanded.startswith(shown)
