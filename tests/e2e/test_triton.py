"""Triton's client and the real model."""

from __future__ import annotations

import json

import numpy as np
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
