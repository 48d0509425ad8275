"""Beam search through the three routes that have it, over the simulated engine."""

from __future__ import annotations

import json
import math
import socket
from pathlib import Path
from typing import Any

import httpx
import jsonschema
import numpy as np
import pytest
import tritonclient.http as triton
from openai import BadRequestError, OpenAI

from support.api import ok
from support.server import ServerProcess
from support.sim import StartServer
from support.wait import wait_until

MODEL = "sim-model"
GENERATE = f"/v2/models/{MODEL}/generate"
STREAM = f"/v2/models/{MODEL}/generate_stream"
PROMPT = "Once upon a time"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "kind": {"enum": ["cat", "dog", "bird"]},
        "age": {"type": "integer", "minimum": 0, "maximum": 30},
    },
    "required": ["name", "kind", "age"],
    "additionalProperties": False,
}


def completion(http: httpx.Client, n: int, **fields: Any) -> dict[str, Any]:
    body = {"model": MODEL, "prompt": PROMPT, "use_beam_search": True, "n": n, "max_tokens": 6, **fields}
    answer: dict[str, Any] = ok(http.post("/v1/completions", json=body))
    return answer


def events(response: httpx.Response) -> list[dict[str, Any]]:
    assert response.status_code == 200, response.text
    parts = [part.removeprefix("data: ") for part in response.text.split("\n\n") if part]
    return [json.loads(part) for part in parts if not part.startswith((":", "[DONE]"))]


def score(choice: dict[str, Any], penalty: float = 1.0) -> float:
    values = choice["logprobs"]["token_logprobs"]
    return float(sum(values)) / math.pow(len(values), penalty)


def test_answers_come_best_first(http: httpx.Client) -> None:
    answer = completion(http, 4, logprobs=2, return_token_ids=True)
    choices = answer["choices"]
    assert [choice["index"] for choice in choices] == [0, 1, 2, 3]
    scores = [score(choice) for choice in choices]
    assert scores == sorted(scores, reverse=True)
    assert len({tuple(choice["token_ids"]) for choice in choices}) == 4
    assert all(len(choice["logprobs"]["top_logprobs"][0]) in (2, 3) for choice in choices)
    assert answer["usage"]["completion_tokens"] == sum(len(choice["token_ids"]) for choice in choices)
    assert answer["usage"]["prompt_tokens"] == len(choices[0]["prompt_token_ids"])


def test_best_of_is_the_number_of_beams(http: httpx.Client) -> None:
    wide = completion(http, 4, logprobs=0)["choices"]
    two = completion(http, 2, best_of=4, logprobs=0)["choices"]
    assert two == wide[:2]


def test_neither_seed_nor_temperature_matters(http: httpx.Client) -> None:
    first = completion(http, 2)["choices"]
    assert completion(http, 2, seed=7, temperature=1.5, top_p=0.5, top_k=3)["choices"] == first


def test_each_prompt_is_searched(http: httpx.Client) -> None:
    both = completion(http, 2, prompt=[PROMPT, "Hi"])["choices"]
    alone = [completion(http, 2, prompt=prompt)["choices"] for prompt in (PROMPT, "Hi")]
    assert [choice["text"] for choice in both] == [choice["text"] for one in alone for choice in one]
    assert [choice["index"] for choice in both] == [0, 1, 2, 3]


def test_stop_strings_and_stop_tokens(http: httpx.Client) -> None:
    plain = completion(http, 1, return_token_ids=True)["choices"][0]
    stop = plain["text"][2]
    cut = completion(http, 1, stop=[stop])["choices"][0]
    assert (cut["finish_reason"], cut["stop_reason"]) == ("stop", stop)
    assert cut["text"] == plain["text"].split(stop)[0]
    kept = completion(http, 1, stop=[stop], include_stop_str_in_output=True)["choices"][0]
    assert kept["text"] == cut["text"] + stop
    token = plain["token_ids"][2]
    ended = completion(http, 1, stop_token_ids=[token], return_token_ids=True, length_penalty=0.0)
    choice = ended["choices"][0]
    assert choice["finish_reason"] in ("stop", "length")
    if choice["finish_reason"] == "stop":
        assert (choice["stop_reason"], choice["token_ids"][-1]) == (token, token)


def test_streams_hold_whole_answers(http: httpx.Client) -> None:
    whole = completion(http, 2)["choices"]
    body = {"model": MODEL, "prompt": PROMPT, "use_beam_search": True, "n": 2, "max_tokens": 6}
    options = {"stream": True, "stream_options": {"include_usage": True}}
    response = http.post("/v1/completions", json={**body, **options})
    assert response.text.endswith("data: [DONE]\n\n")
    chunks = events(response)
    choices = [choice for chunk in chunks for choice in chunk["choices"]]
    assert [(one["index"], one["text"], one["finish_reason"]) for one in choices] == [
        (one["index"], one["text"], one["finish_reason"]) for one in whole
    ]
    assert chunks[-1]["usage"]["completion_tokens"] == 12


def test_the_stock_client_gets_beams_of_a_chat(openai: OpenAI) -> None:
    messages: Any = [{"role": "user", "content": "Tell me."}]
    extra = {"use_beam_search": True, "length_penalty": 0.5}
    answer = openai.chat.completions.create(
        model=MODEL, messages=messages, n=3, max_tokens=5, logprobs=True, extra_body=extra
    )
    texts = [choice.message.content for choice in answer.choices]
    assert len(set(texts)) == 3
    sums = []
    for choice in answer.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        sums.append(sum(entry.logprob for entry in choice.logprobs.content))
    assert sums == sorted(sums, reverse=True)
    stream = openai.chat.completions.create(
        model=MODEL, messages=messages, n=3, max_tokens=5, stream=True, extra_body=extra
    )
    streamed = {0: "", 1: "", 2: ""}
    for chunk in stream:
        for part in chunk.choices:
            streamed[part.index] += part.delta.content or ""
    assert list(streamed.values()) == texts
    with pytest.raises(BadRequestError, match="best_of"):
        openai.chat.completions.create(model=MODEL, messages=messages, extra_body={"best_of": 3})


@pytest.mark.parametrize("most", [33, 38, 45, 60, 200])
@pytest.mark.parametrize("width", [2, 5])
def test_every_answer_is_valid_under_a_schema(http: httpx.Client, most: int, width: int) -> None:
    for prompt in ("A pet:", "Another pet:", "The last one:"):
        answer = completion(http, width, prompt=prompt, max_tokens=most, guided_json=SCHEMA)
        assert answer["choices"]
        receipts = [choice["constraint"] for choice in answer["choices"]]
        assert all(receipt["kind"] == "json_schema" and receipt["complete"] for receipt in receipts)
        counts = [receipt["sampled_tokens"] + receipt["forced_tokens"] for receipt in receipts]
        assert sum(counts) == answer["usage"]["completion_tokens"]
        for choice in answer["choices"]:
            jsonschema.validate(json.loads(choice["text"]), SCHEMA)


def test_tools_may_be_searched_for(http: httpx.Client) -> None:
    tool = {"type": "function", "function": {"name": "pet", "parameters": SCHEMA}}
    body = {
        "model": MODEL,
        "messages": [{"role": "user", "content": "A pet!"}],
        "tools": [tool],
        "tool_choice": "required",
        "use_beam_search": True,
        "n": 2,
        "max_tokens": 200,
    }
    answer = ok(http.post("/v1/chat/completions", json=body))
    for choice in answer["choices"]:
        assert choice["finish_reason"] == "tool_calls"
        for call in choice["message"]["tool_calls"]:
            jsonschema.validate(json.loads(call["function"]["arguments"]), SCHEMA)


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 17}, "n"),
        ({"best_of": 17}, "best_of"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"logit_bias": {"5": 1.0}}, "logit_bias"),
        ({"frequency_penalty": 0.5}, "frequency_penalty"),
        ({"repetition_penalty": 1.1}, "repetition_penalty"),
        ({"prompt_logprobs": 1}, "prompt_logprobs"),
        ({"echo": True}, "echo"),
        ({"stop": ["x"], "guided_regex": "[a-z]+"}, "stop"),
        ({"length_penalty": 11}, "length_penalty"),
        ({"early_stopping": "sometimes"}, "early_stopping"),
        ({"use_beam_search": False, "length_penalty": 2}, "length_penalty"),
        ({"use_beam_search": None, "early_stopping": True}, "early_stopping"),
        ({"guided_json": {"type": "nothing"}}, "guided_json.type"),
        ({"max_tokens": 10**6}, "prompt"),
    ],
)
def test_what_is_wrong_is_named(http: httpx.Client, fields: dict[str, Any], param: str) -> None:
    body = {"model": MODEL, "prompt": PROMPT, "use_beam_search": True, "n": 2, "max_tokens": 5, **fields}
    response = http.post("/v1/completions", json=body)
    assert response.status_code == 400, response.text
    assert response.json()["error"]["param"] == param


# --- Triton's routes ------------------------------------------------------------------------------


def test_generate_gives_every_beam(http: httpx.Client) -> None:
    body = {"text_input": PROMPT, "beam_width": 3, "max_tokens": 6, "return_log_probs": True}
    answer = ok(http.post(GENERATE, json=body))
    assert answer["sequence_index"] == [0, 1, 2]
    assert len(set(answer["text_output"])) == 3
    # Without length_penalty there is none, as in TensorRT-LLM.
    assert answer["cum_log_probs"] == sorted(answer["cum_log_probs"], reverse=True)
    for total, values in zip(answer["cum_log_probs"], answer["output_log_probs"], strict=True):
        assert math.isclose(total, sum(values), abs_tol=1e-5)
    expected = completion(http, 3, length_penalty=0.0, early_stopping=True)["choices"]
    assert answer["text_output"] == [choice["text"] for choice in expected]
    one = ok(http.post(GENERATE, json={**body, "num_return_sequences": 1}))
    assert one["text_output"] == answer["text_output"][0]


def test_generate_stream_gives_whole_beams(http: httpx.Client) -> None:
    body = {"text_input": PROMPT, "beam_width": 3, "max_tokens": 6}
    streamed = [event["text_output"] for event in events(http.post(STREAM, json=body))]
    assert streamed == ok(http.post(GENERATE, json=body))["text_output"]


def test_infer_gives_a_tensor_of_beams(server: ServerProcess, http: httpx.Client) -> None:
    text = triton.InferInput("text_input", [2, 1], "BYTES")
    text.set_data_from_numpy(np.array([[PROMPT.encode()], [b"Hi"]], dtype=np.object_))
    numbers = []
    for name, value in (("beam_width", 2), ("max_tokens", 6)):
        tensor = triton.InferInput(name, [2, 1], "INT32")
        tensor.set_data_from_numpy(np.array([[value], [value]], dtype=np.int32))
        numbers.append(tensor)
    with triton.InferenceServerClient(url=server.base_url.removeprefix("http://")) as client:
        texts = client.infer(MODEL, [text, *numbers]).as_numpy("text_output")
    body = {"text_input": [PROMPT, "Hi"], "beam_width": 2, "max_tokens": 6}
    assert texts.shape == (2, 2)
    assert [one.decode() for one in texts.flat] == ok(http.post(GENERATE, json=body))["text_output"]


def test_beams_under_a_guide(http: httpx.Client) -> None:
    body = {
        "text_input": ["A pet:", "Another:"],
        "beam_width": 4,
        "max_tokens": 100,
        "guided_decoding_guide_type": "json_schema",
        "guided_decoding_guide": json.dumps(SCHEMA),
    }
    for text in ok(http.post(GENERATE, json=body))["text_output"]:
        jsonschema.validate(json.loads(text), SCHEMA)


def test_where_there_are_too_few_answers_the_others_are_empty(http: httpx.Client) -> None:
    body = {
        "text_input": "A pet:",
        "beam_width": 4,
        "max_tokens": 20,
        "return_num_output_tokens": True,
        "guided_decoding_guide_type": "regex",
        "guided_decoding_guide": "cat|dog",
    }
    answer = ok(http.post(GENERATE, json=body))
    assert sorted(answer["text_output"]) == ["", "", "cat", "dog"]
    assert answer["num_output_tokens"][2:] == [0, 0]


@pytest.mark.parametrize(
    ("fields", "name"),
    [
        ({"beam_width": 17}, "beam_width"),
        ({"beam_width": 0}, "beam_width"),
        ({"beam_width": 2, "num_return_sequences": 3}, "num_return_sequences"),
        ({"beam_width": 2, "repetition_penalty": 1.5}, "repetition_penalty"),
        ({"beam_width": 2, "presence_penalty": 0.5}, "presence_penalty"),
        ({"beam_width": 2, "return_generation_logits": True}, "return_generation_logits"),
        ({"beam_width": 16, "text_input": ["a"] * 9}, "beam_width"),
        (
            {
                "beam_width": 2,
                "stop_words": "x",
                "guided_decoding_guide_type": "regex",
                "guided_decoding_guide": "a+",
            },
            "stop_words",
        ),
    ],
)
def test_triton_names_what_is_wrong(http: httpx.Client, fields: dict[str, Any], name: str) -> None:
    response = http.post(GENERATE, json={"text_input": PROMPT, "max_tokens": 5, **fields})
    assert response.status_code == 400, response.text
    assert name in response.json()["error"]


# --- the server around it --------------------------------------------------------------------------


def test_a_client_that_leaves_ends_the_search(start_server: StartServer) -> None:
    server = start_server(sim={"step_us": 2000}, runtime={"max_batch_size": 4, "max_seq_len": 30_000})
    body = {"model": MODEL, "prompt": PROMPT, "use_beam_search": True, "n": 4, "max_tokens": 20_000}
    with httpx.Client(base_url=server.base_url, timeout=30) as http:

        def figure(name: str) -> float:
            lines = [line for line in http.get("/metrics").text.splitlines() if line.startswith(name)]
            return sum(float(line.split()[-1]) for line in lines)

        text = json.dumps(body)
        head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n"
        address = httpx.URL(server.base_url)
        with socket.create_connection((address.host, address.port or 80)) as client:
            client.sendall(f"{head}{text}".encode())
            wait_until(lambda: figure("vllm:generation_tokens_total") > 40, "the search runs")
        wait_until(lambda: figure("llgtrt_http_disconnects_total") > 0, "the disconnect is counted")
        wait_until(lambda: figure("vllm:num_requests_running") == 0, "nothing runs any more")
        # Its places are free: as many beams as there are places find their answers.
        answer = ok(http.post("/v1/completions", json={**body, "max_tokens": 3}))
        assert len(answer["choices"]) == 4


HOOK = """
class Shouting:
    async def on_output(self, request, output):
        return output.text.upper()
"""


def test_a_hook_sees_the_answers(start_server: StartServer, tmp_path: Path) -> None:
    file = tmp_path / "shouting.py"
    file.write_text(HOOK)
    body = {"model": MODEL, "prompt": PROMPT, "use_beam_search": True, "n": 2, "max_tokens": 6}
    plain, hooked = start_server(), start_server("--hooks", f"{file}:Shouting")
    texts = [
        [
            choice["text"]
            for choice in ok(httpx.post(f"{one.base_url}/v1/completions", json=body, timeout=30))["choices"]
        ]
        for one in (plain, hooked)
    ]
    assert texts[1] == [text.upper() for text in texts[0]]


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/responses", {"input": "Go"}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "Go"}], "max_tokens": 5}),
    ],
)
def test_other_routes_have_no_place_for_several_answers(
    http: httpx.Client, path: str, body: dict[str, Any]
) -> None:
    response = http.post(path, json={"model": MODEL, "use_beam_search": True, **body})
    assert response.status_code == 400
    assert "use_beam_search" in response.text
