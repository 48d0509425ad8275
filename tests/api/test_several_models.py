"""Several models in one process, over simulated engines that each say something else."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest
import tritonclient.http as triton
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.utils import InferenceServerException

from llgtrt.api.server import EXIT_ENGINE_FAILED
from support.api import CHAT, COMPLETIONS, chunks_of, error_of, finish_reasons, joined, ok
from support.gguf import write_gguf
from support.openapi import validate
from support.server import ServerProcess, run_llgtrt, wait_until

KEY = "secret"
AUTH = {"authorization": f"Bearer {KEY}"}

StartSeveral = Callable[..., ServerProcess]


def says(name: str | list[str], script: str, **sections: Any) -> dict[str, Any]:
    """A simulated model that always gives the same answer."""
    sim = {"text": "script", "script": script, **sections.pop("sim", {})}
    return {"name": name, "backend": "sim", "sim": sim, **sections}


MODELS = [
    says("red", "I am red.", server={"default_max_tokens": 5}),
    says(
        ["blue", "azure"],
        "I am blue.",
        runtime={"max_seq_len": 512},
        server={"model_aliases": {"sky": "blue"}},
    ),
    says("slow", "word " * 400, sim={"step_us": 10_000}, load=False),
    says("weak", "I am weak.", sim={"faults": [{"kind": "fail_engine", "at_step": 2}]}, load=False),
]


@pytest.fixture(scope="module")
def start_several(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartSeveral]:
    """Starts servers of several models; they are stopped at the end."""
    started: list[ServerProcess] = []

    def start(*arguments: str, models: list[dict[str, Any]] | None = None, **config: Any) -> ServerProcess:
        file = tmp_path_factory.mktemp("several") / "several.json5"
        file.write_text(json.dumps({"models": MODELS if models is None else models, **config}))
        process = ServerProcess("-C", str(file), *arguments, wait=False)
        started.append(process)
        process.wait_ready()
        return process

    yield start
    for process in started:
        process.close()


@pytest.fixture(scope="module")
def server(start_several: StartSeveral) -> ServerProcess:
    guest = {"key": "guest", "name": "guest", "manages_models": False}
    return start_several(server={"api_key": KEY, "api_keys": [guest]})


@pytest.fixture(scope="module")
def http(server: ServerProcess) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.base_url, headers=AUTH, timeout=60) as client:
        yield client


@pytest.fixture(scope="module")
def client(server: ServerProcess) -> Iterator[triton.InferenceServerClient]:
    with triton.InferenceServerClient(url=server.base_url.removeprefix("http://")) as one:
        yield one


def ask(model: str | None, **fields: Any) -> dict[str, Any]:
    body = {"messages": [{"role": "user", "content": "Who are you?"}], "max_tokens": 64, **fields}
    return body if model is None else {"model": model, **body}


def states(http: httpx.Client) -> dict[str, tuple[str, str]]:
    listed = http.post("/v2/repository/index", json={})
    assert listed.status_code == 200, listed.text
    return {one["name"]: (one["state"], one["reason"]) for one in listed.json()}


def text_of(body: dict[str, Any]) -> str:
    text: str = body["choices"][0]["message"]["content"]
    return text


# --- which model answers ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "model", "text"),
    [
        ("red", "red", "I am red."),
        ("blue", "blue", "I am blue."),
        ("azure", "blue", "I am blue."),
        ("sky", "blue", "I am blue."),
    ],
)
def test_openai_requests_pick_the_model(http: httpx.Client, name: str, model: str, text: str) -> None:
    answer = ok(http.post(CHAT, json=ask(name)))
    assert (answer["model"], text_of(answer)) == (model, text)
    chunks = chunks_of(http.post(CHAT, json=ask(name, stream=True)).text)
    assert ({one["model"] for one in chunks}, joined(chunks)) == ({model}, text)
    completed = ok(http.post(COMPLETIONS, json={"model": name, "prompt": "Hi", "max_tokens": 64}))
    assert (completed["model"], completed["choices"][0]["text"]) == (model, text)


def test_the_other_apis_pick_the_model(http: httpx.Client) -> None:
    for name in ("red", "blue"):
        text = f"I am {name}."
        response = ok(
            http.post("/v1/responses", json={"model": name, "input": "Who?", "max_output_tokens": 64})
        )
        validate("Response", response)
        assert response["output"][-1]["content"][0]["text"] == text
        body = ask(name, max_tokens=64)
        message = ok(http.post("/v1/messages", json=body, headers={"anthropic-version": "2023-06-01"}))
        assert (message["model"], message["content"][0]["text"]) == (name, text)
        assert ok(http.post("/v1/messages/count_tokens", json=ask(name)))["input_tokens"] > 0
        tokens = ok(http.post("/tokenize", json={"model": name, "prompt": "abc"}))
        assert tokens["max_model_len"] == (512 if name == "blue" else tokens["max_model_len"])
        assert (
            ok(http.post("/detokenize", json={"model": name, "tokens": tokens["tokens"]}))["prompt"] == "abc"
        )
        assert ok(http.post("/v1/grammar/validate", json={"model": name, "regex": "a+"}))["ok"]
        assert ok(http.get(f"/v1/health/model?model={name}"))["model"] == name


def test_a_response_goes_on_with_another_model(http: httpx.Client) -> None:
    first = ok(http.post("/v1/responses", json={"model": "red", "input": "Who?", "max_output_tokens": 64}))
    body = {"model": "blue", "input": "And you?", "previous_response_id": first["id"]}
    second = ok(http.post("/v1/responses", json=body))
    assert second["output"][-1]["content"][0]["text"] == "I am blue."
    items = ok(http.get(f"/v1/responses/{second['id']}/input_items"))["data"]
    assert "I am red." in json.dumps(items)


def test_triton_picks_the_model_by_its_path(http: httpx.Client, client: triton.InferenceServerClient) -> None:
    for name in ("red", "blue"):
        body = {"text_input": "Hi", "max_tokens": 64}
        answer = ok(http.post(f"/v2/models/{name}/generate", json=body))
        assert (answer["model_name"], answer["text_output"]) == (name, f"I am {name}.")
        assert client.is_model_ready(name, headers=AUTH)
        assert client.get_model_metadata(name, headers=AUTH)["name"] == name
    assert not client.is_model_ready("slow", headers=AUTH)
    config = client.get_model_config("blue", headers=AUTH)
    assert config["parameters"]["max_sequence_tokens"] == {"string_value": "512"}


def test_options_of_a_model_are_its_own(http: httpx.Client) -> None:
    body = ask("red")
    del body["max_tokens"]
    answer = ok(http.post(CHAT, json=body))
    assert (answer["usage"]["completion_tokens"], answer["choices"][0]["finish_reason"]) == (5, "length")
    assert error_of(http.post(CHAT, json=ask("blue", max_tokens=600)))["code"] == "context_length_exceeded"
    assert ok(http.post(CHAT, json=ask("red", max_tokens=600)))["model"] == "red"


@pytest.mark.parametrize("path", [CHAT, "/v1/messages", "/v1/responses"])
def test_an_unknown_model_is_a_404_that_names_those_that_are_there(http: httpx.Client, path: str) -> None:
    body = {**ask("green"), "input": "Hi"} if path.endswith("responses") else ask("green")
    body = {
        name: value for name, value in body.items() if "responses" not in path or name in ("model", "input")
    }
    response = http.post(path, json=body)
    assert response.status_code == 404, response.text
    for name in ("'green'", "'red'", "'blue'", "'azure'"):
        assert name in response.json()["error"]["message"]
    # One that is known and not loaded is not there either.
    assert http.post(CHAT, json=ask("slow")).status_code == 404
    assert "'red'" in http.post("/v2/models/green/generate", json={"text_input": "Hi"}).json()["error"]


def test_openais_client_raises_not_found(server: ServerProcess) -> None:
    with openai.OpenAI(base_url=f"{server.base_url}/v1", api_key=KEY, max_retries=0) as client:
        assert [model.id for model in client.models.list()] == ["red", "blue", "azure"]
        assert client.models.retrieve("azure").id == "azure"
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model="green", messages=[{"role": "user", "content": "Hi"}])


def test_a_request_has_to_say_which_model(http: httpx.Client) -> None:
    error = error_of(http.post(CHAT, json=ask(None)))
    assert error["param"] == "model"
    assert "'red', 'blue', 'azure'" in error["message"]
    assert error_of(http.get("/v1/health/model"))["param"] == "model"


def test_one_model_may_take_any_other_name(start_several: StartSeveral) -> None:
    models = [says("red", "I am red."), says(["blue", "*"], "I am blue.")]
    with start_several(models=models) as server:
        for name, text in (("red", "I am red."), ("gpt-4o", "I am blue."), (None, "I am blue.")):
            response = httpx.post(server.base_url + CHAT, json=ask(name), timeout=60)
            assert text_of(ok(response)) == text


# --- what is said of the models ---------------------------------------------------------------


def test_every_models_metrics_have_its_name(http: httpx.Client, server: ServerProcess) -> None:
    for name in ("red", "blue"):
        ok(http.post(CHAT, json=ask(name)))
    text = http.get("/metrics").text
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names)), "a family stands in one place"
    seen: dict[str, set[str]] = {}
    for family in families:
        assert len({(one.name, tuple(sorted(one.labels.items()))) for one in family.samples}) == len(
            family.samples
        )
        for one in family.samples:
            label = "model_name" if family.name.startswith("vllm:") else "model"
            if label in one.labels:
                seen.setdefault(family.name, set()).add(one.labels[label])
    for name in ("llgtrt_generation_tokens", "vllm:generation_tokens", "nv_inference_exec_count"):
        assert seen[name] >= {"red", "blue"}, name
    stats = ok(http.get("/v2/models/stats"))["model_stats"]
    assert {one["name"] for one in stats} >= {"red", "blue"}
    assert all(
        one["inference_stats"]["success"]["count"] > 0 for one in stats if one["name"] in ("red", "blue")
    )


def test_health_tells_of_each_model(http: httpx.Client) -> None:
    health = ok(http.get("/health"))
    assert health["status"] == "ready"
    assert health["models"]["red"] == health["models"]["blue"] == "ready"


def test_the_start_says_what_is_served(server: ServerProcess) -> None:
    loaded = [line for line in server.output.splitlines() if "loaded" in line and "slots=" in line]
    assert any("model=red" in line for line in loaded)
    assert any("model=blue" in line and "context_tokens=512" in line for line in loaded)


# --- loading and unloading --------------------------------------------------------------------


def test_tritons_client_loads_and_unloads(http: httpx.Client, client: triton.InferenceServerClient) -> None:
    assert states(http)["slow"] == ("UNAVAILABLE", "")
    client.load_model("slow", headers=AUTH)
    try:
        assert states(http)["slow"] == ("READY", "")
        assert client.is_model_ready("slow", headers=AUTH)
        assert ok(http.post(CHAT, json=ask("slow", max_tokens=3)))["model"] == "slow"
        client.load_model("slow", headers=AUTH)
    finally:
        client.unload_model("slow", headers=AUTH)
    assert states(http)["slow"] == ("UNAVAILABLE", "unloaded")
    assert http.post(CHAT, json=ask("slow")).status_code == 404
    ready = client.get_model_repository_index(headers=AUTH)
    assert {"red", "blue"} <= {one["name"] for one in ready}
    only_ready = http.post("/v2/repository/index", json={"ready": True}).json()
    assert "slow" not in {one["name"] for one in only_ready}
    with pytest.raises(InferenceServerException, match="is loaded here"):
        client.unload_model("slow", headers=AUTH)
    with pytest.raises(InferenceServerException, match=r"'red'.*'blue'"):
        client.load_model("green", headers=AUTH)


def test_unloading_waits_for_the_models_requests(http: httpx.Client) -> None:
    assert http.post("/v2/repository/models/slow/load").status_code == 200
    body = ask("slow", max_tokens=60, stream=True)
    with ThreadPoolExecutor(1) as threads, http.stream("POST", CHAT, json=body) as response:
        lines = response.iter_text()
        begun = next(lines)
        unloading = threads.submit(http.post, "/v2/repository/models/slow/unload")
        wait_until(lambda: states(http)["slow"][0] == "UNLOADING", "the model is being unloaded")
        assert http.post(CHAT, json=ask("slow")).status_code == 404
        assert ok(http.post(CHAT, json=ask("red")))["model"] == "red"
        assert not unloading.done()
        chunks = chunks_of(begun + "".join(lines))
        assert finish_reasons(chunks) == {0: "length"}
        assert unloading.result(60).status_code == 200


def test_requests_that_take_too_long_do_not_keep_a_model(start_several: StartSeveral) -> None:
    models = [says("red", "I am red."), says("slow", "word " * 400, sim={"step_us": 10_000})]
    config = {"api_key": KEY, "drain_timeout_s": 0.05}
    with (
        start_several(models=models, server=config) as server,
        httpx.Client(base_url=server.base_url, headers=AUTH, timeout=60) as http,
    ):
        body = ask("slow", max_tokens=2000, stream=True)
        with http.stream("POST", CHAT, json=body) as response:
            lines = response.iter_text()
            next(lines)
            assert http.post("/v2/repository/models/slow/unload").status_code == 200
            assert '"code":"shutting_down"' in "".join(lines)
        assert ok(http.get("/health"))["models"] == {"red": "ready"}


def test_a_failed_engine_leaves_the_others_alone(http: httpx.Client) -> None:
    for _ in range(2):
        # Loading it again makes a new engine, which fails as the first one did.
        assert http.post("/v2/repository/models/weak/load").status_code == 200
        assert states(http)["weak"] == ("READY", "")
        error_of(http.post(CHAT, json=ask("weak")), 503)
        health = ok(http.get("/health"))
        assert health["models"]["weak"].startswith("failed")
        assert health["models"]["red"] == "ready"
        assert error_of(http.post(CHAT, json=ask("weak")), 503)["code"] == "engine_failed"
        assert http.get("/v2/models/weak/ready").status_code == 503
        assert states(http)["weak"][0] == "UNAVAILABLE"
        assert text_of(ok(http.post(CHAT, json=ask("red")))) == "I am red."
    assert http.post("/v2/repository/models/weak/unload").status_code == 200
    assert "weak" not in ok(http.get("/health"))["models"]


def test_the_process_ends_when_no_model_works_any_more(start_several: StartSeveral) -> None:
    weak = MODELS[3]
    with start_several(models=[{**weak, "load": True}, {**weak, "name": "also", "load": True}]) as server:
        for name in ("weak", "also"):
            assert server.process.poll() is None
            httpx.post(server.base_url + CHAT, json=ask(name), timeout=60)
        assert server.wait_exit() == EXIT_ENGINE_FAILED


def test_a_signal_drains_all_models(start_several: StartSeveral) -> None:
    models = [says(name, "word " * 40, sim={"step_us": 5_000}) for name in ("red", "blue")]
    with start_several(models=models) as server, ThreadPoolExecutor(2) as threads:
        url = server.base_url + CHAT
        asked = [
            threads.submit(httpx.post, url, json=ask(name, max_tokens=100), timeout=60)
            for name in ("red", "blue")
        ]
        for name in ("red", "blue"):
            metric = f'llgtrt_num_requests_running{{model="{name}"}}'
            wait_until(lambda metric=metric: server.metric(metric) == 1, f"{name} generates")  # type: ignore[misc]
        server.terminate()
        assert [finish.result().json()["choices"][0]["finish_reason"] for finish in asked] == ["length"] * 2
        assert server.wait_exit() == 0


def test_only_a_server_with_a_key_changes_its_models(start_several: StartSeveral, http: httpx.Client) -> None:
    with start_several(models=MODELS[:1]) as server:
        response = httpx.post(server.base_url + "/v2/repository/models/red/unload", timeout=60)
        assert (response.status_code, "API key" in response.text) == (403, True)
        assert text_of(ok(httpx.post(server.base_url + CHAT, json=ask("red"), timeout=60))) == "I am red."
    assert http.post("/v2/repository/models/red/unload", headers={"authorization": ""}).status_code == 401
    guest = {"authorization": "Bearer guest"}
    response = http.post("/v2/repository/models/red/unload", headers=guest)
    assert (response.status_code, "may not" in response.text) == (403, True)
    assert text_of(ok(http.post(CHAT, json=ask("red"), headers=guest))) == "I am red."
    response = http.post("/v2/repository/models/slow/load", json={"parameters": {"config": "{}"}})
    assert (response.status_code, "configuration" in response.text) == (400, True)


def test_a_model_that_memory_does_not_hold_is_not_loaded(start_several: StartSeveral, tmp_path: Path) -> None:
    file = write_gguf(
        tmp_path / "large.gguf",
        {
            "llama.block_count": 100,
            "llama.embedding_length": 8192,
            "llama.attention.head_count": 64,
            "llama.attention.head_count_kv": 8,
            "llama.context_length": 1 << 20,
        },
    )
    runtime = {"max_seq_len": 1 << 20, "max_batch_size": 1000}
    models = [
        says("red", "I am red."),
        {"name": "large", "engine": str(file), "runtime": runtime, "load": False},
        {"name": "no-model", "engine": str(file), "load": False},
    ]
    with (
        start_several(models=models, server={"api_key": KEY}) as server,
        httpx.Client(base_url=server.base_url, headers=AUTH, timeout=60) as http,
    ):
        # 2 * 8 heads * 128 numbers * 2 bytes * 100 layers * 2**20 tokens * 1000 slots
        megabytes = 2 * 8 * 128 * 2 * 100 * 1000
        response = http.post("/v2/repository/models/large/load")
        assert response.status_code == 503
        assert f"{megabytes} MB of KV cache" in response.json()["error"]
        assert f"{megabytes} MB" in states(http)["large"][1]
        # What fits and is no model that the engine can run.
        response = http.post("/v2/repository/models/no-model/load")
        assert (response.status_code, "no-model" in response.text) == (400, True)
        assert states(http)["no-model"][0] == "UNAVAILABLE"
        assert "no-model" in states(http)["no-model"][1]
        assert text_of(ok(http.post(CHAT, json=ask("red")))) == "I am red."


def test_one_hook_watches_all_models(start_several: StartSeveral, tmp_path: Path) -> None:
    (tmp_path / "hook.py").write_text(
        "from llgtrt.hooks import Refusal\n"
        "class Two:\n"
        "    count = 0\n"
        "    async def on_request(self, request):\n"
        "        self.count += 1\n"
        "        if self.count > 2:\n"
        "            raise Refusal('enough', status=429)\n"
    )
    hooks = {"hooks": f"{tmp_path / 'hook.py'}:Two"}
    models = [
        says("red", "I am red."),
        says("blue", "I am blue."),
        says("free", "I am free.", py={"hooks": None}),
    ]
    with start_several(models=models, py=hooks) as server:
        answers = [
            httpx.post(server.base_url + CHAT, json=ask(name), timeout=60).status_code
            for name in ("red", "blue", "red", "blue", "free")
        ]
    assert answers == [200, 200, 429, 429, 200]


def test_bench_measures_one_of_several(start_several: StartSeveral) -> None:
    models = [says("waits", "I wait.", load=False), says("my model?", "word " * 40)]
    with start_several(models=models) as server:
        for arguments in (("--api", "triton-generate"), ("--api", "chat")):
            command = [
                "bench",
                server.base_url,
                "-q",
                "--json",
                "-",
                "--token-norm-dist",
                "5,0,3,0",
                "-n",
                "2",
            ]
            run = run_llgtrt(*command, *arguments)
            assert run.returncode == 0, run.stderr
            assert (json.loads(run.stdout)["model"], json.loads(run.stdout)["completed"]) == ("my model?", 2)


# --- a folder of models -----------------------------------------------------------------------


def test_a_folder_of_models(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    for name in ("red", "blue"):
        (folder / name).mkdir(parents=True)
        (folder / name / "model.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
        script = {"sim": {"text": "script", "script": f"I am {name}."}}
        (folder / name / "llgtrt.json5").write_text(json.dumps(script))
    (folder / "single.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
    (folder / "llgtrt.json5").write_text(
        json.dumps({"runtime": {"max_seq_len": 300}, "server": {"api_key": KEY}})
    )
    arguments = (
        "--backend",
        "sim",
        "--models-dir",
        str(folder),
        "--load-model",
        "red",
        "--load-model",
        "single",
    )
    with (
        ServerProcess(*arguments) as server,
        httpx.Client(base_url=server.base_url, headers=AUTH, timeout=60) as http,
    ):
        listed = ok(http.get("/v1/models"))["data"]
        assert [(one["id"], one["max_model_len"]) for one in listed] == [("red", 300), ("single", 300)]
        assert states(http)["blue"] == ("UNAVAILABLE", "")
        assert http.post("/v2/repository/models/blue/load").status_code == 200
        assert text_of(ok(http.post(CHAT, json=ask("blue")))) == "I am blue."
        # One that comes later is found when it is asked for.
        (folder / "late.gguf").write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 0))
        assert states(http)["late"] == ("UNAVAILABLE", "")
        assert http.post("/v2/repository/models/late/load").status_code == 200
        assert ok(http.post(CHAT, json=ask("late")))["model"] == "late"


@pytest.mark.parametrize(
    ("config", "arguments", "message"),
    [
        ({"models": [MODELS[0], MODELS[0]]}, (), "two models are called red"),
        ({"models": [MODELS[0], says(["x", "red"], "Hi")]}, (), "are both called red"),
        ({"models": [says(["a", "*"], "Hi"), says(["b", "*"], "Hi")]}, (), "both take any name"),
        ({"models": [says("a", "", server={"port": 1})]}, (), "models[0].server.port: holds for the whole"),
        ({"models": [{"name": "a", "runtime": {"max_seq_len": 0}}]}, (), "models[0].runtime.max_seq_len"),
        ({"models": [{"name": "a", "engine": "nowhere.gguf"}]}, (), "nowhere.gguf: no such file"),
        (
            {"models": [MODELS[0]]},
            ("--load-model", "green"),
            "--load-model: there is no model green, only red",
        ),
        ({"models": [MODELS[0]]}, ("--served-model-name", "x"), "server.served_model_name"),
        ({"models": [MODELS[0]]}, ("--model-py", "several.json5"), "--model-py"),
        ({"models": [MODELS[0]]}, (".",), "ENGINE"),
        ({"models": [MODELS[0]]}, ("--print-chat-template",), "need a single model"),
        ({}, ("--backend", "sim", "--load-model", "green"), "--load-model is for a server of several"),
        ({}, ("--models-dir", "nowhere"), "nowhere: no such folder"),
    ],
)
def test_what_does_not_go_together_is_said(
    tmp_path: Path, config: dict[str, Any], arguments: tuple[str, ...], message: str
) -> None:
    file = tmp_path / "several.json5"
    file.write_text(json.dumps(config))
    run = run_llgtrt(*arguments, "-C", str(file), "--port", "0", cwd=tmp_path)
    assert (run.returncode, run.stdout) == (1, "")
    assert message in run.stderr
    assert "Traceback" not in run.stderr
