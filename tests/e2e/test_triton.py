"""Triton's client and the real model."""

from __future__ import annotations

import json

import httpx
import numpy as np
import numpy.typing as npt
import tritonclient.http as triton

from support.server import ServerProcess

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "people": {"type": "integer", "maximum": 10**8},
    },
    "required": ["city", "people"],
    "additionalProperties": False,
}


def test_answers_under_a_schema(server: ServerProcess) -> None:
    texts = ["The capital of France, as JSON:", "A town in Norway, as JSON:"]
    inputs = []
    for name, values in (
        ("text_input", texts),
        ("guided_decoding_guide_type", ["json_schema"]),
        ("guided_decoding_guide", [json.dumps(SCHEMA)]),
    ):
        tensor = triton.InferInput(name, [len(values), 1], "BYTES")
        tensor.set_data_from_numpy(np.array([[value.encode()] for value in values], dtype=np.object_))
        inputs.append(tensor)
    tokens = triton.InferInput("max_tokens", [2, 1], "INT32")
    tokens.set_data_from_numpy(np.array([[64], [64]], dtype=np.int32))
    with triton.InferenceServerClient(
        url=server.base_url.removeprefix("http://"), network_timeout=60
    ) as client:
        assert client.is_model_ready("smollm2")
        answers = client.infer("smollm2", [*inputs, tokens]).as_numpy("text_output")
        stats = client.get_inference_statistics("smollm2")["model_stats"][0]
    assert answers.shape == (2, 1)
    for answer in map(json.loads, answers.flat):
        assert isinstance(answer["city"], str)
        assert isinstance(answer["people"], int)
    assert stats["inference_count"] >= 2


def test_logits_of_the_model(server: ServerProcess) -> None:
    """Their log-softmax is what the completions route reports, of the prompt and of the answer."""
    prompt = "The capital of France is"
    with httpx.Client(base_url=server.base_url, timeout=60) as http:
        body = {
            "model": "smollm2",
            "prompt": prompt,
            "max_tokens": 4,
            "temperature": 0,
            "logprobs": 0,
            "prompt_logprobs": 0,
            "return_token_ids": True,
        }
        choice = http.post("/v1/completions", json=body).raise_for_status().json()["choices"][0]
    text = triton.InferInput("text_input", [1, 1], "BYTES")
    text.set_data_from_numpy(np.array([[prompt.encode()]], dtype=np.object_))
    tokens = triton.InferInput("max_tokens", [1, 1], "INT32")
    tokens.set_data_from_numpy(np.array([[4]], dtype=np.int32))
    names = ("text_output", "context_logits", "generation_logits")
    outputs = [triton.InferRequestedOutput(name) for name in names]
    url = server.base_url.removeprefix("http://")
    with triton.InferenceServerClient(url=url, network_timeout=60) as client:
        answer = client.infer("smollm2", [text, tokens], outputs=outputs)
    assert answer.as_numpy("text_output")[0][0].decode() == choice["text"]
    generated = answer.as_numpy("generation_logits")[0][0].astype(np.float64)
    context = answer.as_numpy("context_logits")[0].astype(np.float64)
    prompt_ids = choice["prompt_token_ids"]
    assert context.shape == (len(prompt_ids), generated.shape[1])
    assert list(generated.argmax(axis=1)) == choice["token_ids"]
    np.testing.assert_allclose(context[-1], generated[0], atol=1e-2)
    entries = zip(prompt_ids[1:], choice["prompt_logprobs"][1:], strict=True)
    expected = [entry[str(token)]["logprob"] for token, entry in entries]
    own = log_softmax(context[:-1])[np.arange(len(expected)), prompt_ids[1:]]
    np.testing.assert_allclose(own, expected, atol=1e-2)
    chosen = log_softmax(generated).max(axis=1)
    np.testing.assert_allclose(chosen, choice["logprobs"]["token_logprobs"], atol=1e-2)


def log_softmax(rows: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    shifted = rows - rows.max(axis=1, keepdims=True)
    result: npt.NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum(axis=1, keepdims=True))
    return result
