"""The model's logits through Triton's routes; the log-probabilities that other routes report judge them."""

from __future__ import annotations

import json
from typing import Any

import httpx
import numpy as np
import numpy.typing as npt
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from support.api import ok
from support.server import ServerProcess
from support.sim import StartServer

MODEL = "sim-model"
GENERATE = f"/v2/models/{MODEL}/generate"
STREAM = f"/v2/models/{MODEL}/generate_stream"
INFER = f"/v2/models/{MODEL}/infer"
PROMPT = "Once upon a time"
BOTH = {"return_context_logits": True, "return_generation_logits": True}
TOKENS = 7

Matrix = npt.NDArray[np.float64]


def columns(http: httpx.Client) -> int:
    """Size of the vocabulary."""
    config = ok(http.get(f"/v2/models/{MODEL}/config"))
    return int(config["parameters"]["vocabulary_size"]["string_value"])


def matrix(values: Any, width: int) -> Matrix:
    """A flat list as rows."""
    return np.array(values, dtype=np.float64).reshape(-1, width)


def log_softmax(rows: Matrix) -> Matrix:
    top = rows.max(axis=1, keepdims=True)
    shifted = rows - top
    result: Matrix = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result


def prompt_logprobs(http: httpx.Client, prompt: str) -> tuple[list[int], list[float]]:
    """The prompt's tokens, and the log-probability of each but the first, as completions have them."""
    body = {
        "model": MODEL,
        "prompt": prompt,
        "max_tokens": 1,
        "prompt_logprobs": 0,
        "return_token_ids": True,
    }
    choice = ok(http.post("/v1/completions", json=body))["choices"][0]
    tokens = choice["prompt_token_ids"]
    entries = choice["prompt_logprobs"][1:]
    return tokens, [entry[str(token)]["logprob"] for token, entry in zip(tokens[1:], entries, strict=True)]


def number(name: str, value: Any, datatype: str) -> triton.InferInput:
    types = {"INT32": np.int32, "BOOL": np.bool_}
    return filled(triton.InferInput(name, [1, 1], datatype), np.array([[value]], dtype=types[datatype]))


def texts(*values: str) -> triton.InferInput:
    data = np.array([[value.encode()] for value in values], dtype=np.object_)
    return filled(triton.InferInput("text_input", list(data.shape), "BYTES"), data)


def filled(tensor: triton.InferInput, data: Any) -> triton.InferInput:
    tensor.set_data_from_numpy(data)
    return tensor


@pytest.fixture(scope="module")
def whole(http: httpx.Client) -> dict[str, Any]:
    """An answer with both outputs and its log-probabilities."""
    body = {"text_input": PROMPT, "max_tokens": TOKENS, "return_log_probs": True, **BOTH}
    answer: dict[str, Any] = ok(http.post(GENERATE, json=body))
    return answer


def test_rows_give_the_log_probabilities_of_prompt_and_answer(
    http: httpx.Client, whole: dict[str, Any]
) -> None:
    width = columns(http)
    generated = matrix(whole["generation_logits"], width)
    context = matrix(whole["context_logits"], width)
    tokens, expected = prompt_logprobs(http, PROMPT)
    assert len(generated) == len(whole["output_log_probs"]) <= TOKENS
    np.testing.assert_allclose(log_softmax(generated).max(axis=1), whole["output_log_probs"], atol=1e-4)
    assert len(context) == len(tokens)
    of_tokens = log_softmax(context[:-1])[np.arange(len(tokens) - 1), tokens[1:]]
    np.testing.assert_allclose(of_tokens, expected, atol=1e-4)
    np.testing.assert_array_equal(context[-1], generated[0])


def test_without_them_an_answer_is_the_same(http: httpx.Client, whole: dict[str, Any]) -> None:
    plain = ok(http.post(GENERATE, json={"text_input": PROMPT, "max_tokens": TOKENS}))
    assert plain["text_output"] == whole["text_output"]
    assert not {"context_logits", "generation_logits"} & set(plain)


def test_logits_are_the_models_own_under_a_constraint_and_penalties(http: httpx.Client) -> None:
    body = {
        "text_input": PROMPT,
        "max_tokens": 1,
        "repetition_penalty": 3.0,
        "temperature": 0.5,
        "top_k": 3,
        "return_context_logits": True,
        "return_generation_logits": True,
        "guided_decoding_guide_type": "regex",
        "guided_decoding_guide": "[0-9]",
    }
    answer = ok(http.post(GENERATE, json=body))
    width = columns(http)
    rows = matrix(answer["generation_logits"], width)
    # The grammar allows ten tokens; a row has a finite number for every one of the vocabulary.
    assert np.isfinite(rows).all()
    np.testing.assert_array_equal(matrix(answer["context_logits"], width)[-1], rows[0])


def test_events_hold_the_rows_of_their_tokens(http: httpx.Client, whole: dict[str, Any]) -> None:
    response = http.post(STREAM, json={"text_input": PROMPT, "max_tokens": TOKENS, **BOTH})
    assert response.status_code == 200, response.text
    events = [json.loads(part.removeprefix("data: ")) for part in response.text.split("\n\n") if part]
    assert "".join(event["text_output"] for event in events) == whole["text_output"]
    rows = [value for event in events for value in event.get("generation_logits", [])]
    assert rows == whole["generation_logits"]
    contexts = [event["context_logits"] for event in events if "context_logits" in event]
    assert contexts == [whole["context_logits"]]


@pytest.mark.parametrize("binary", [True, False])
def test_infer_gives_tensors(
    server: ServerProcess, http: httpx.Client, whole: dict[str, Any], binary: bool
) -> None:
    width = columns(http)
    inputs = [texts(PROMPT), number("max_tokens", TOKENS, "INT32")]
    names = ("generation_logits", "text_output", "context_logits")
    outputs = [triton.InferRequestedOutput(name, binary_data=binary) for name in names]
    with triton.InferenceServerClient(url=server.base_url.removeprefix("http://")) as client:
        result = client.infer(MODEL, inputs, outputs=outputs)
    generated, context = result.as_numpy("generation_logits"), result.as_numpy("context_logits")
    assert generated.shape == (1, 1, len(whole["generation_logits"]) // width, width)
    assert context.shape == (1, len(whole["context_logits"]) // width, width)
    assert generated.dtype == context.dtype == np.float32
    np.testing.assert_array_equal(generated.ravel(), np.array(whole["generation_logits"], dtype=np.float32))
    np.testing.assert_array_equal(context.ravel(), np.array(whole["context_logits"], dtype=np.float32))
    text = result.as_numpy("text_output")[0][0]
    assert (text if isinstance(text, str) else text.decode()) == whole["text_output"]


def test_texts_of_several_lengths_are_filled_up(server: ServerProcess, http: httpx.Client) -> None:
    both = [PROMPT, "Hi"]
    inputs = [
        texts(*both),
        filled(triton.InferInput("max_tokens", [2, 1], "INT32"), np.array([[3], [3]], dtype=np.int32)),
        filled(
            triton.InferInput("return_context_logits", [2, 1], "BOOL"),
            np.array([[True], [True]], dtype=np.bool_),
        ),
        filled(
            triton.InferInput("num_return_sequences", [2, 1], "INT32"), np.array([[2], [2]], dtype=np.int32)
        ),
    ]
    with triton.InferenceServerClient(url=server.base_url.removeprefix("http://")) as client:
        result = client.infer(MODEL, inputs)
    tensor = result.as_numpy("context_logits")
    width = columns(http)
    lengths = [len(prompt_logprobs(http, text)[0]) for text in both]
    assert tensor.shape == (2, max(lengths), width)
    body = {"text_input": both, "max_tokens": 3, "return_context_logits": True, "num_return_sequences": 2}
    lists = ok(http.post(GENERATE, json=body))["context_logits"]
    for rows, flat, length in zip(tensor, lists, lengths, strict=True):
        assert len(flat) == length * width
        np.testing.assert_array_equal(rows[:length].ravel(), np.array(flat, dtype=np.float32))
        assert not rows[length:].any()


@pytest.mark.parametrize("name", ["return_generation_logits", "return_context_logits"])
def test_more_than_the_bound_is_refused_before_it_starts(start_server: StartServer, name: str) -> None:
    server = start_server(runtime={"max_seq_len": 1_000_000})
    with httpx.Client(base_url=server.base_url, timeout=60) as http:
        width = columns(http)
        most = 64 * 1024 * 1024 // (4 * width)
        count = most + 1
        body = {"text_input": "a", "max_tokens": count, name: True}
        if name == "return_context_logits":
            body = {"text_input": "a " * count, "max_tokens": 1, name: True}
        response = http.post(GENERATE, json=body)
        assert response.status_code == 400
        message = response.json()["error"]
        assert name in message
        assert str(64 * 1024 * 1024) in message
        metrics = http.get("/metrics").text
        assert "vllm:prompt_tokens_total" in metrics
        started = [line for line in metrics.splitlines() if line.startswith("vllm:generation_tokens_total")]
        assert [float(line.split()[-1]) for line in started] == [0.0]
        # As tensors they are a quarter as large.
        inputs = [texts("a"), number("max_tokens", 4 * (most + 1), "INT32"), number(name, True, "BOOL")]
        if name == "return_generation_logits":
            with (
                triton.InferenceServerClient(url=server.base_url.removeprefix("http://")) as client,
                pytest.raises(InferenceServerException, match=name),
            ):
                client.infer(MODEL, inputs)
