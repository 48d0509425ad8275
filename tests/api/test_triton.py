"""Triton's routes over the simulated engine; ``tritonclient`` judges those that it has calls for."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from support.api import ok
from support.server import ServerProcess
from support.sim import FAIL_PROMPT, FAULTS, NAN_PROMPT, StartServer

MODEL = "sim-model"
GENERATE = f"/v2/models/{MODEL}/generate"
STREAM = f"/v2/models/{MODEL}/generate_stream"
INFER = f"/v2/models/{MODEL}/infer"
SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[triton.InferenceServerClient]:
    """Triton's own client."""
    with triton.InferenceServerClient(url=server.base_url.removeprefix("http://")) as one:
        yield one


def refused(response: httpx.Response, status: int = 400) -> str:
    """The message of an error; fails if it has not Triton's form."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    body = response.json()
    assert set(body) == {"error"}
    message: str = body["error"]
    assert message
    return message


def events(response: httpx.Response) -> list[dict[str, Any]]:
    """The objects of a stream; fails if it holds anything but ``data:`` lines and comments."""
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.text.endswith("\n\n")
    parts = [part for part in response.text.split("\n\n") if part and not part.startswith(":")]
    assert all(part.startswith("data: {") for part in parts), "no [DONE]"
    return [json.loads(part.removeprefix("data: ")) for part in parts]


def text_tensor(name: str, texts: list[str], *, binary: bool, columns: int = 1) -> triton.InferInput:
    data = np.array([text.encode() for text in texts], dtype=np.object_).reshape(-1, columns)
    tensor = triton.InferInput(name, list(data.shape), "BYTES")
    tensor.set_data_from_numpy(data, binary_data=binary)
    return tensor


def number_tensor(name: str, values: list[Any], datatype: str, *, binary: bool) -> triton.InferInput:
    types = {
        "INT32": np.int32,
        "UINT32": np.uint32,
        "FP32": np.float32,
        "BOOL": np.bool_,
        "UINT64": np.uint64,
    }
    data: Any = np.array(values, dtype=types[datatype]).reshape(-1, 1)
    tensor = triton.InferInput(name, list(data.shape), datatype)
    tensor.set_data_from_numpy(data, binary_data=binary)
    return tensor


# --- what tritonclient can ask ------------------------------------------------------------------


def test_health_and_metadata(client: triton.InferenceServerClient) -> None:
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready(MODEL)
    assert client.is_model_ready(MODEL, "1")
    assert not client.is_model_ready(MODEL, "2")
    assert not client.is_model_ready("other")
    server = client.get_server_metadata()
    assert server["name"] == "llgtrt"
    assert "binary_tensor_data" in server["extensions"]
    model = client.get_model_metadata(MODEL)
    assert (model["name"], model["versions"]) == (MODEL, ["1"])
    assert model["inputs"][0] == {"name": "text_input", "datatype": "BYTES", "shape": [-1, 1]}
    assert {"name": "text_output", "datatype": "BYTES", "shape": [-1, -1]} in model["outputs"]
    with pytest.raises(InferenceServerException, match="does not exist"):
        client.get_model_metadata("other")


def test_the_configuration_has_the_tensors_of_the_metadata(client: triton.InferenceServerClient) -> None:
    config = client.get_model_config(MODEL, "1")
    metadata = client.get_model_metadata(MODEL)
    assert [one["name"] for one in config["input"]] == [one["name"] for one in metadata["inputs"]]
    assert [one["name"] for one in config["input"] if not one["optional"]] == ["text_input"]
    assert [[-1, *one["dims"]] for one in config["output"]] == [one["shape"] for one in metadata["outputs"]]
    assert config["max_batch_size"] == 128
    assert config["parameters"]["backend"] == {"string_value": "sim"}


def test_the_index(client: triton.InferenceServerClient) -> None:
    assert client.get_model_repository_index() == [
        {"name": MODEL, "version": "1", "state": "READY", "reason": ""}
    ]


@pytest.mark.parametrize("binary", [True, False])
def test_infer_gives_what_generate_gives(
    client: triton.InferenceServerClient, http: httpx.Client, binary: bool
) -> None:
    inputs = [
        text_tensor("text_input", ["Hi", "Håkon ✓"], binary=binary),
        number_tensor("max_tokens", [9, 9], "INT32", binary=binary),
        number_tensor("temperature", [0.5, 0.5], "FP32", binary=binary),
        number_tensor("top_p", [0.75, 0.75], "FP32", binary=binary),
        number_tensor("random_seed", [5, 5], "UINT64", binary=binary),
        number_tensor("return_log_probs", [True, True], "BOOL", binary=binary),
        text_tensor("stop_words", ["", ""], binary=binary),
    ]
    names = ("text_output", "cum_log_probs", "output_log_probs")
    outputs = [triton.InferRequestedOutput(name, binary_data=binary) for name in names]
    result = client.infer(MODEL, inputs, outputs=outputs, request_id="one")
    body = {"text_input": ["Hi", "Håkon ✓"], "max_tokens": 9, "temperature": 0.5, "top_p": 0.75}
    expected = ok(http.post(GENERATE, json={**body, "random_seed": 5, "return_log_probs": True}))
    assert result.get_response()["id"] == "one"
    texts = result.as_numpy("text_output")
    assert texts.shape == (2, 1)
    assert [text if isinstance(text, str) else text.decode() for text in texts.flat] == expected[
        "text_output"
    ]
    np.testing.assert_allclose(result.as_numpy("cum_log_probs").flat, expected["cum_log_probs"], rtol=1e-6)
    log_probs = result.as_numpy("output_log_probs")
    assert log_probs.shape == (2, 1, max(map(len, expected["output_log_probs"])))
    for row, given in zip(log_probs, expected["output_log_probs"], strict=True):
        np.testing.assert_allclose(row[0][: len(given)], given, rtol=1e-6)
        assert not row[0][len(given) :].any()


def test_infer_with_a_constraint_and_without_named_outputs(client: triton.InferenceServerClient) -> None:
    inputs = [
        text_tensor("text_input", ["Hi"], binary=True),
        number_tensor("max_tokens", [100], "UINT32", binary=True),
        text_tensor("guided_decoding_guide_type", ["json_schema"], binary=True),
        text_tensor("guided_decoding_guide", [json.dumps(SCHEMA)], binary=True),
    ]
    result = client.infer(MODEL, inputs)
    assert [one["name"] for one in result.get_response()["outputs"]] == ["text_output"]
    answer = json.loads(result.as_numpy("text_output")[0][0])
    assert set(answer) == {"a", "b"}


def test_infer_names_what_is_wrong(client: triton.InferenceServerClient) -> None:
    text = text_tensor("text_input", ["Hi"], binary=True)
    cases = [
        (number_tensor("beams", [2], "INT32", binary=True), "beams"),
        (number_tensor("max_tokens", [2.0], "FP32", binary=True), "max_tokens"),
        (number_tensor("max_tokens", [0], "INT32", binary=True), "max_tokens"),
        (text_tensor("text_input", ["again"], binary=True), "text_input"),
    ]
    for tensor, name in cases:
        with pytest.raises(InferenceServerException, match=name) as caught:
            client.infer(MODEL, [text, tensor])
        assert caught.value.status() == "400"
    for parameters, name in (({"sampling": 1}, "sampling"), ({"max_tokens": 0}, "max_tokens")):
        with pytest.raises(InferenceServerException, match=name):
            client.infer(MODEL, [text], parameters=parameters)
    with pytest.raises(InferenceServerException, match="sequence_id"):
        client.infer(MODEL, [text], sequence_id=3, sequence_start=True)
    with pytest.raises(InferenceServerException, match="nothing"):
        client.infer(MODEL, [text], outputs=[triton.InferRequestedOutput("nothing")])
    with pytest.raises(InferenceServerException, match="text_input"):
        client.infer(MODEL, [number_tensor("max_tokens", [2], "INT32", binary=True)])
    with pytest.raises(InferenceServerException, match="other"):
        client.infer("other", [text])


def test_statistics_count_requests(client: triton.InferenceServerClient, http: httpx.Client) -> None:
    def read() -> dict[str, Any]:
        (one,) = client.get_inference_statistics(MODEL)["model_stats"]
        return dict(one)

    before = read()
    ok(http.post(GENERATE, json={"text_input": ["a", "b", "c"], "max_tokens": 3}))
    after = read()
    assert after["name"] == MODEL
    assert after["inference_count"] - before["inference_count"] == 3
    stats = {
        name: (before["inference_stats"][name], after["inference_stats"][name])
        for name in ("success", "queue")
    }
    for old, new in stats.values():
        assert new["count"] - old["count"] == 3
        assert new["ns"] > old["ns"]
    assert after["execution_count"] > before["execution_count"]
    assert after["last_inference"] >= before["last_inference"] > 1_700_000_000_000
    assert client.get_inference_statistics()["model_stats"][0]["name"] == MODEL


# --- generate -----------------------------------------------------------------------------------


def test_curl_without_a_content_type(http: httpx.Client) -> None:
    """``curl -d`` says that a body is a form, and Triton's documentation uses nothing else."""
    body = {"text_input": "Go", "max_tokens": 5, "bad_words": "", "stop_words": "", "pad_id": 2, "end_id": 2}
    form = {"content-type": "application/x-www-form-urlencoded"}
    answer = ok(http.post(GENERATE, content=json.dumps(body), headers=form))
    assert answer == {
        "model_name": MODEL,
        "model_version": "1",
        "batch_index": 0,
        "sequence_index": 0,
        "text_output": answer["text_output"],
    }
    assert answer["text_output"]
    page = {**form, "origin": "http://127.0.0.1"}
    refused(http.post(GENERATE, content=json.dumps(body), headers=page), 415)


def test_inputs_in_parameters_and_with_a_version(http: httpx.Client) -> None:
    plain = ok(http.post(GENERATE, json={"text_input": "Go", "max_tokens": 7, "temperature": 0}))
    nested = {"text_input": "Go", "parameters": {"max_tokens": 7, "temperature": 0, "stream": False}}
    assert ok(http.post(f"/v2/models/{MODEL}/versions/1/generate", json=nested)) == plain
    assert "version 3" in refused(http.post(f"/v2/models/{MODEL}/versions/3/generate", json=nested), 404)
    assert "max_tokens" in refused(http.post(GENERATE, json={**nested, "max_tokens": 7}))
    refused(http.post("/v2/models/other/generate", json=nested), 404)


def test_without_top_k_and_top_p_the_likeliest_token_is_taken(http: httpx.Client) -> None:
    def ask(**fields: Any) -> str:
        body = {"text_input": "Go", "max_tokens": 20, **fields}
        return str(ok(http.post(GENERATE, json=body))["text_output"])

    greedy = ask(temperature=0)
    assert ask() == ask(temperature=1.5) == ask(top_k=0, top_p=0.0) == ask(top_k=1, random_seed=3) == greedy
    assert ask(top_p=1.0) == ask(top_p=1.0, random_seed=0) != ask(top_p=1.0, random_seed=1)
    assert ask(top_k=50) != greedy


def test_texts_and_sequences_in_one_request(http: httpx.Client) -> None:
    fields = {"max_tokens": [[6], [6]], "top_p": 0.9, "num_return_sequences": 2, "return_finish_reason": True}
    answer = ok(http.post(GENERATE, json={"text_input": [["one"], ["two"]], **fields}))
    assert (answer["batch_index"], answer["sequence_index"]) == ([0, 0, 1, 1], [0, 1, 0, 1])
    assert answer["finish_reason"] == ["length"] * 4
    alone = [
        ok(http.post(GENERATE, json={"text_input": text, **fields, "max_tokens": 6}))
        for text in ("one", "two")
    ]
    assert answer["text_output"] == [text for one in alone for text in one["text_output"]]
    assert "max_tokens" in refused(
        http.post(GENERATE, json={"text_input": ["one", "two"], "max_tokens": [6, 7]})
    )


def test_the_text_before_its_answer(http: httpx.Client) -> None:
    body = {"text_input": ["one ", "two "], "max_tokens": 6}
    without = ok(http.post(GENERATE, json=body))["text_output"]
    asked = {**body, "exclude_input_in_output": False}
    assert ok(http.post(GENERATE, json=asked))["text_output"] == ["one " + without[0], "two " + without[1]]
    texts = ["", ""]
    for event in events(http.post(STREAM, json=asked)):
        texts[event["batch_index"]] += event["text_output"]
    assert texts == ["one " + without[0], "two " + without[1]]


@pytest.mark.parametrize(
    ("kind", "guide", "check"),
    [
        ("json", None, lambda text: json.loads(text) is not ...),
        ("json_schema", json.dumps(SCHEMA), lambda text: json.loads(text)["b"] in "xy"),
        ("regex", "[a-c]{3}-[0-9]", lambda text: len(text) == 5 and text[3] == "-"),
        ("ebnf_grammar", 'root ::= ("no" | "yes") " "?', lambda text: text.strip() in ("no", "yes")),
    ],
)
def test_guides(http: httpx.Client, kind: str, guide: str | None, check: Any) -> None:
    fields = {"guided_decoding_guide_type": kind, "max_tokens": 200, "top_p": 1.0}
    if guide is not None:
        fields["guided_decoding_guide"] = guide
    answer = ok(
        http.post(GENERATE, json={"text_input": ["1", "2", "3"], **fields, "return_finish_reason": True})
    )
    assert all(map(check, answer["text_output"]))
    streamed = {0: "", 1: "", 2: ""}
    for event in events(http.post(STREAM, json={"text_input": ["1", "2", "3"], **fields})):
        streamed[event["batch_index"]] += event["text_output"]
    assert list(streamed.values()) == answer["text_output"]


def test_a_guided_answer_has_its_receipt(client: triton.InferenceServerClient, http: httpx.Client) -> None:
    guided = {"guided_decoding_guide_type": "regex", "guided_decoding_guide": "[ab]{3}", "max_tokens": 9}

    def counted(receipt: dict[str, Any]) -> tuple[str, int]:
        return receipt["kind"], receipt["sampled_tokens"] + receipt["forced_tokens"]

    one = ok(http.post(GENERATE, json={"text_input": "1", **guided, "return_num_output_tokens": True}))
    assert counted(one["constraint"]) == ("regex", one["num_output_tokens"])
    several = ok(http.post(GENERATE, json={"text_input": ["1", "2"], **guided}))
    assert [counted(receipt)[0] for receipt in several["constraint"]] == ["regex", "regex"]
    streamed = events(http.post(STREAM, json={"text_input": "1", **guided}))
    assert [counted(event["constraint"]) for event in streamed if "constraint" in event] == [
        counted(one["constraint"])
    ]
    assert "constraint" in streamed[-1]
    free = ok(http.post(GENERATE, json={"text_input": "1", "max_tokens": 3}))
    assert "constraint" not in free
    inputs = [
        text_tensor("text_input", ["1"], binary=True),
        text_tensor("guided_decoding_guide_type", ["regex"], binary=True),
        text_tensor("guided_decoding_guide", ["[ab]{3}"], binary=True),
    ]
    answer = client.infer(MODEL, inputs).get_response()
    (receipt,) = json.loads(answer["parameters"]["constraint"])
    assert counted(receipt) == counted(one["constraint"])


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"frobnicate": 1, "more": 2}, ["frobnicate", "more"]),
        ({"parameters": {"frobnicate": 1, "max_tokens": "x"}}, ["frobnicate", "max_tokens"]),
        ({"parameters": 3}, ["parameters"]),
        ({"beam_width": 17}, ["beam_width"]),
        ({"return_context_logits": 3}, ["return_context_logits"]),
        ({"return_generation_logits": ["yes"]}, ["return_generation_logits"]),
        ({"embedding_bias_words": ["a"]}, ["embedding_bias_words"]),
        ({"lora_task_id": 3}, ["lora_task_id"]),
        ({"bad_words": ["a"]}, ["bad_words"]),
        ({"stream": True}, ["stream"]),
        ({"text_input": ""}, ["text_input"]),
        ({"text_input": []}, ["text_input"]),
        ({"text_input": ["a", 3]}, ["text_input"]),
        ({"text_input": ["a"] * 129}, ["text_input"]),
        ({"num_return_sequences": 129}, ["num_return_sequences"]),
        ({"max_tokens": "5"}, ["max_tokens"]),
        ({"min_length": 9, "max_tokens": 8}, ["min_length"]),
        ({"end_id": 10**6}, ["end_id"]),
        ({"top_p": 1.5, "temperature": -1}, ["top_p", "temperature"]),
        ({"guided_decoding_guide_type": "xml"}, ["guided_decoding_guide_type"]),
        ({"guided_decoding_guide_type": "regex"}, ["guided_decoding_guide"]),
        ({"guided_decoding_guide": "[a]"}, ["guided_decoding_guide_type"]),
        (
            {
                "guided_decoding_guide_type": "json_schema",
                "guided_decoding_guide": '{"items": {"type": "x"}}',
            },
            ["guided_decoding_guide.items.type"],
        ),
        (
            {"guided_decoding_guide_type": "json_schema", "guided_decoding_guide": "{"},
            ["guided_decoding_guide"],
        ),
        (
            {"guided_decoding_guide_type": "ebnf_grammar", "guided_decoding_guide": "root ="},
            ["guided_decoding_guide"],
        ),
    ],
)
def test_what_is_wrong_is_named(http: httpx.Client, fields: dict[str, Any], names: list[str]) -> None:
    for route in (GENERATE, STREAM):
        if route == STREAM and "stream" in fields:
            continue
        message = refused(http.post(route, json={"text_input": "Go", **fields}))
        assert all(name in message for name in names), message


def test_values_that_ask_for_nothing_are_taken(http: httpx.Client) -> None:
    nothing = {
        "beam_width": 1,
        "early_stopping": False,
        "embedding_bias_words": "",
        "length_penalty": 1.0,
        "num_return_sequences": 1,
        "return_context_logits": False,
        "return_generation_logits": [[False]],
        "use_draft_logits": None,
    }
    plain = {"text_input": "Go", "max_tokens": 5}
    assert ok(http.post(GENERATE, json={**plain, **nothing})) == ok(http.post(GENERATE, json=plain))


def test_stop_words_and_end_id(http: httpx.Client) -> None:
    body = {
        "text_input": "Go",
        "max_tokens": 30,
        "return_finish_reason": True,
        "return_num_output_tokens": True,
    }
    whole = ok(http.post(GENERATE, json={**body, "end_id": -1}))
    assert (whole["finish_reason"], whole["num_output_tokens"]) == ("length", 30)
    word = whole["text_output"].strip()[2:4]
    stopped = ok(http.post(GENERATE, json={**body, "stop_words": [[word]]}))
    assert stopped["finish_reason"] == "stop"
    assert stopped["text_output"] == whole["text_output"].partition(word)[0]


# --- streams ------------------------------------------------------------------------------------


def test_a_stream_adds_up_to_the_whole(slow_server: ServerProcess) -> None:
    body = {"text_input": "Go", "max_tokens": 24, "return_log_probs": True, "id": "abc"}
    with httpx.Client(base_url=slow_server.base_url, timeout=60) as http:
        whole = ok(http.post(GENERATE, json=body))
        parts = events(http.post(STREAM, json=body))
        one = events(http.post(STREAM, json={**body, "stream": False}))
    assert len(parts) > 1
    assert "".join(part["text_output"] for part in parts) == whole["text_output"]
    assert [value for part in parts for value in part["output_log_probs"]] == whole["output_log_probs"]
    assert parts[-1]["cum_log_probs"] == pytest.approx(whole["cum_log_probs"])
    assert all(
        (part["id"], part["model_name"], part["model_version"]) == ("abc", MODEL, "1") for part in parts
    )
    assert one == [whole]


@pytest.mark.parametrize("prompt", [NAN_PROMPT, FAIL_PROMPT])
def test_an_error_within_a_stream(start_server: StartServer, prompt: str) -> None:
    server = start_server(sim={"step_us": 50_000, "faults": FAULTS})
    body = {"text_input": prompt, "max_tokens": 20}
    with httpx.Client(base_url=server.base_url, timeout=60) as http:
        *parts, last = events(http.post(STREAM, json=body))
        refused(http.post(GENERATE, json=body), 500)
    assert parts
    assert all("text_output" in part for part in parts)
    assert set(last) == {"error"}
    assert isinstance(last["error"], str)
    assert server.is_idle()


def test_errors_of_other_layers_have_tritons_form(start_server: StartServer) -> None:
    server = start_server("--api-key", "Correct", server={"max_body_bytes": 200})
    key = {"authorization": "Bearer Correct"}
    with httpx.Client(base_url=server.base_url, timeout=60) as http:
        refused(http.post(GENERATE, json={"text_input": "Go"}), 401)
        refused(http.post(GENERATE, json={"text_input": "Go" * 200}, headers=key), 413)
        refused(http.post("/v2/health/ready", headers=key), 405)
        refused(http.get("/v2/nothing", headers=key), 404)
        refused(http.post(GENERATE, content=b"[", headers=key))
        refused(http.post("/v2/repository/index", content=b'{"ready": 1}', headers=key))
        assert http.get("/v2/health/ready").status_code == 200
        error = http.get("/v1/nothing", headers=key).json()["error"]
        assert set(error) == {"message", "type", "param", "code"}
    from_client = triton.InferenceServerClient(url=server.base_url.removeprefix("http://"))
    with from_client, pytest.raises(InferenceServerException, match="API key"):
        from_client.get_model_config(MODEL)
