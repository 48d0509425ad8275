"""TensorRT-LLM engine folders, served through the plugin built with the stand-in of the executor."""

from __future__ import annotations

import contextlib
import json
import math
import shutil
import signal
import struct
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import zmq

from llgtrt.config import Arguments, load_settings, native_config
from llgtrt.config.trtllm import PLUGIN_NAME, PLUGIN_VARIABLE
from llgtrt.engine import AsyncEngine
from llgtrt.serving.errors import RequestError
from support.dynamo import answer, worker
from support.dynamo import text_of as text_of_chunks
from support.orchestrator import Orchestrator
from support.server import (
    ServerProcess,
    clean_environment,
    free_port,
    llgtrt_executable,
    run_llgtrt,
    wait_until,
)

# The first test compiles the plugin, which takes minutes on a busy machine.
pytestmark = pytest.mark.timeout(600)

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = {
    "type": "object",
    "properties": {
        "color": {"enum": ["red", "green", "blue"]},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "ready": {"type": "boolean"},
    },
    "required": ["color", "count", "ready"],
    "additionalProperties": False,
}
VOCABULARY = [chr(code) for code in range(32, 127)]


@pytest.fixture(scope="session")
def plugin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugin, built as `llgtrt build-trtllm` does, but with the stand-in."""
    cmake = shutil.which("cmake") or shutil.which("cmake", path=sysconfig.get_path("scripts"))
    if cmake is None:
        pytest.fail("CMake is missing: run `make setup`")
    folder = tmp_path_factory.mktemp("plugin")
    source = ROOT / "rust/llgtrt-engine-trtllm/plugin"
    for arguments in (
        # Without optimization: it is compiled in a third of the time, which a busy machine needs.
        ["-S", str(source), "-B", str(folder), "-DLLGTRT_STANDIN=ON", "-DCMAKE_BUILD_TYPE=Debug"],
        ["--build", str(folder), "--parallel", "2"],
    ):
        subprocess.run([cmake, *arguments], check=True, stdout=subprocess.DEVNULL)
    return folder / PLUGIN_NAME


def make_engine(folder: Path, switches: str = "") -> Path:
    """An engine folder as trtllm-build and the user leave it, for the stand-in."""
    folder.mkdir(exist_ok=True)
    vocabulary = {token: index for index, token in enumerate(VOCABULARY)}
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    special = {"id": len(VOCABULARY), "content": "</s>", "special": True, **flags}
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": False,
    }
    tokenizer = {
        "version": "1.0",
        "added_tokens": [special],
        "pre_tokenizer": byte_level,
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "vocab": {"\u0120" if token == " " else token: index for token, index in vocabulary.items()},
            "merges": [],
        },
    }
    config = {
        "version": "1.2.1",
        "pretrained_config": {
            "architecture": "LlamaForCausalLM",
            "dtype": "float16",
            "logits_dtype": "float32",
            "num_hidden_layers": 4,
            "vocab_size": 128,
            "mapping": {"world_size": 1, "tp_size": 1, "pp_size": 1},
        },
        "build_config": {
            "max_batch_size": 4,
            "max_seq_len": 512,
            "max_num_tokens": 256,
            "max_prompt_embedding_table_size": 64,
            "plugin_config": {"lora_plugin": "auto", "use_paged_context_fmha": True, "tokens_per_block": 16},
        },
    }
    (folder / "rank0.engine").write_bytes(b"")
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": "</s>"}))
    (folder / "standin.conf").write_text(switches)
    return folder


def write_adapter(file: Path) -> None:
    """A LoRA adapter in the form that the engine reads."""
    header = json.dumps(
        {
            "weights": {"dtype": "F16", "shape": [1, 8], "data_offsets": [0, 16]},
            "config": {"dtype": "I32", "shape": [1, 3], "data_offsets": [16, 28]},
        }
    ).encode()
    # Module 0 (attn_qkv), layer 0, rank 8.
    row = struct.pack("<3i", 0, 0, 8)
    file.write_bytes(struct.pack("<Q", len(header)) + header + bytes(16) + row)


@pytest.fixture(scope="module")
def trtllm(plugin: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server with two adapters."""
    root = tmp_path_factory.mktemp("served")
    engine = make_engine(root / "engine", "chunk_tokens=20\n")
    adapters = root / "adapters"
    adapters.mkdir()
    for name in ("first", "second"):
        write_adapter(adapters / f"{name}.safetensors")
    with ServerProcess(
        "serve",
        str(engine),
        "--lora-root",
        str(adapters),
        "--served-model-name",
        "base",
        env={PLUGIN_VARIABLE: str(plugin)},
    ) as process:
        yield process


def complete(server: ServerProcess, **body: object) -> httpx.Response:
    """One completion."""
    request = {"prompt": "Hello", "max_tokens": 64, "temperature": 0, **body}
    return httpx.post(f"{server.base_url}/v1/completions", json=request, timeout=30)


def text_of(response: httpx.Response) -> str:
    """The text of the first choice."""
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


@pytest.mark.parametrize("temperature", [0, 1])
def test_an_answer_satisfies_its_schema(trtllm: ServerProcess, temperature: float) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    response = httpx.post(
        f"{trtllm.base_url}/v1/chat/completions",
        json={
            "messages": [{"role": "user", "content": "A color, please. " * 4}],
            "response_format": schema,
            "max_tokens": 200,
            "temperature": temperature,
            "seed": 3,
        },
        timeout=30,
    )
    assert response.status_code == 200, response.text
    choice = response.json()["choices"][0]
    assert choice["finish_reason"] == "stop"
    answer = json.loads(choice["message"]["content"])
    assert answer["color"] in ("red", "green", "blue")
    assert 0 <= answer["count"] <= 99
    assert isinstance(answer["ready"], bool)


def test_a_streamed_answer_is_the_same_text(trtllm: ServerProcess) -> None:
    whole = text_of(complete(trtllm))
    request = {"prompt": "Hello", "max_tokens": 64, "temperature": 0, "stream": True}
    pieces = []
    with httpx.stream("POST", f"{trtllm.base_url}/v1/completions", json=request, timeout=30) as stream:
        for line in stream.iter_lines():
            if line.startswith("data: {"):
                pieces += [choice["text"] for choice in json.loads(line[6:])["choices"]]
    assert "".join(pieces) == whole
    assert whole


def test_adapters_are_models(trtllm: ServerProcess) -> None:
    names = [model["id"] for model in trtllm.get("/v1/models").json()["data"]]
    assert names == ["base", "first", "second"]
    assert trtllm.get("/v1/models/second").json()["parent"] == "base"
    base = text_of(complete(trtllm))
    first = text_of(complete(trtllm, model="first"))
    assert first != base
    assert text_of(complete(trtllm, lora_model="first", load_lora_weights="always")) == first
    assert text_of(complete(trtllm, model="second")) not in (base, first)


def test_adapters_that_do_not_exist(trtllm: ServerProcess) -> None:
    assert complete(trtllm, model="third").status_code == 404
    for name in ("third", "../first", "/etc/passwd", ""):
        response = complete(trtllm, lora_model=name)
        assert response.status_code == 400, response.text
        assert response.json()["error"]["param"] == "lora_model"
    both = complete(trtllm, model="first", lora_model="second")
    assert (both.status_code, both.json()["error"]["param"]) == (400, "lora_model")


def test_bad_words_are_not_generated(trtllm: ServerProcess) -> None:
    free = text_of(complete(trtllm))
    word = next(character for character in free if not character.isspace())
    assert word not in text_of(complete(trtllm, bad_words=[word]))
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    both = complete(trtllm, bad_words=[word], response_format=schema)
    assert (both.status_code, both.json()["error"]["param"]) == (400, "bad_words")
    blank = complete(trtllm, bad_words=[" "])
    assert (blank.status_code, blank.json()["error"]["param"]) == (400, "bad_words")


def test_no_run_of_tokens_comes_twice(trtllm: ServerProcess) -> None:
    def repeats(**options: int) -> bool:
        text = "Hel" + text_of(complete(trtllm, prompt="Hel", ignore_eos=True, **options))
        return len(set(text)) < len(text)

    assert repeats()
    assert not repeats(no_repeat_ngram_size=1)
    both = complete(trtllm, response_format={"type": "json_object"}, no_repeat_ngram_size=1)
    assert (both.status_code, both.json()["error"]["param"]) == (400, "no_repeat_ngram_size")


def test_top_p_shrinks(trtllm: ServerProcess) -> None:
    def tokens(**options: float) -> tuple[list[str], list[str]]:
        """The answer's tokens, and the best one at each place."""
        fixed = {"max_tokens": 20, "ignore_eos": True, "temperature": 1, "seed": 3, "logprobs": 1}
        response = complete(trtllm, **fixed, **options)
        assert response.status_code == 200, response.text
        logprobs = response.json()["choices"][0]["logprobs"]
        return logprobs["tokens"], [max(top, key=top.get) for top in logprobs["top_logprobs"]]

    free, best = tokens()
    assert free[1:] != best[1:]
    shrunk, best = tokens(top_p_decay=1e-6)
    assert shrunk[0] == free[0]
    assert shrunk[1:] == best[1:]
    assert tokens(top_p_decay=1e-6, top_p_min=1.0)[0] == free


def test_a_request_that_takes_too_long_fails(trtllm: ServerProcess) -> None:
    response = complete(trtllm, max_tokens=400, ignore_eos=True, allotted_time_ms=1)
    assert response.status_code == 503, response.text
    assert "longer" in response.json()["error"]["message"]


def test_prefixes_are_shared_within_a_salt(trtllm: ServerProcess) -> None:
    def cached(salt: str) -> int:
        response = complete(trtllm, prompt="A prompt of several blocks. " * 2, cache_salt=salt, max_tokens=2)
        assert response.status_code == 200, response.text
        return int(response.json()["usage"]["prompt_tokens_details"]["cached_tokens"])

    assert cached("one") == 0
    assert cached("one") == 48
    assert cached("two") == 0


def test_retention_changes_no_answer(trtllm: ServerProcess) -> None:
    ranges = [{"token_start": 0, "token_end": 3, "priority": 90, "duration_ms": 1000}]
    retention = {"token_range_retention_configs": ranges, "decode_retention_priority": 10}
    assert text_of(complete(trtllm, kv_cache_retention=retention)) == text_of(complete(trtllm))
    ranges[0]["token_start"] = 3
    refused = complete(trtllm, kv_cache_retention=retention)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "kv_cache_retention")


def test_a_priority_changes_no_answer(trtllm: ServerProcess) -> None:
    assert text_of(complete(trtllm, priority=0.9)) == text_of(complete(trtllm))


def test_the_removed_probability_is_reported(trtllm: ServerProcess) -> None:
    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    request = {
        "messages": [{"role": "user", "content": "A color"}],
        "response_format": schema,
        "max_tokens": 60,
        "logprobs": True,
        "return_removed_mass": True,
    }
    response = httpx.post(f"{trtllm.base_url}/v1/chat/completions", json=request, timeout=30)
    assert response.status_code == 200, response.text
    masses = [entry["removed_mass"] for entry in response.json()["choices"][0]["logprobs"]["content"]]
    assert len(masses) > 10
    assert all(0 <= mass <= 1 for mass in masses)
    assert max(masses) > 0.5, "a schema allows few tokens"
    body = complete(trtllm, logprobs=0, return_removed_mass=True, max_tokens=5).json()
    assert body["choices"][0]["logprobs"]["removed_mass"] == [0.0] * 5, "nothing is removed from free text"
    plain = complete(trtllm, logprobs=0, max_tokens=5).json()
    assert "removed_mass" not in plain["choices"][0]["logprobs"]


def test_beams_are_searched_above_the_engine(trtllm: ServerProcess) -> None:
    asked = {"use_beam_search": True, "n": 3, "max_tokens": 5, "logprobs": 0, "return_token_ids": True}
    choices = complete(trtllm, **asked).json()["choices"]
    sums = [sum(choice["logprobs"]["token_logprobs"]) for choice in choices]
    assert sums == sorted(sums, reverse=True)
    assert len({tuple(choice["token_ids"]) for choice in choices}) == 3
    refused = complete(trtllm, **asked, guided_regex="[a-z]+")
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "use_beam_search"
    assert "trtllm" in refused.json()["error"]["message"]


def test_logits_of_the_answer_and_not_of_the_prompt(trtllm: ServerProcess) -> None:
    body = {"text_input": "Hello", "max_tokens": 3, "return_log_probs": True}
    url = f"{trtllm.base_url}/v2/models/base/generate"
    answer = httpx.post(url, json={**body, "return_generation_logits": True}, timeout=30).json()
    count = len(answer["output_log_probs"])
    rows = answer["generation_logits"]
    width = len(rows) // count
    assert width > len(VOCABULARY)
    for index, logprob in enumerate(answer["output_log_probs"]):
        row = rows[index * width : (index + 1) * width]
        top = max(row)
        assert top - (top + math.log(sum(math.exp(one - top) for one in row))) == pytest.approx(
            logprob, abs=1e-3
        )
    refused = httpx.post(url, json={**body, "return_context_logits": True}, timeout=30)
    assert refused.status_code == 400
    assert "return_context_logits" in refused.json()["error"]
    assert "--gather_context_logits" in refused.json()["error"]


def test_logits_processors_have_no_logits_here(trtllm: ServerProcess) -> None:
    refused = complete(trtllm, prompt="Hello", logits_processors=["any"])
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert (error["param"], "stay on the GPU" in error["message"]) == ("logits_processors", True)


def test_a_client_that_leaves_frees_its_place(trtllm: ServerProcess) -> None:
    request = {"prompt": "Hello", "max_tokens": 400, "ignore_eos": True, "stream": True}
    for _ in range(8):
        with httpx.stream("POST", f"{trtllm.base_url}/v1/completions", json=request, timeout=30) as stream:
            next(stream.iter_lines())
    wait_until(trtllm.is_idle, "nothing runs")
    assert text_of(complete(trtllm))


PROCESSOR = '''
from array import array

from llgtrt.hooks import InputProcessor, InputRequest, PreparedInput


class Images(InputProcessor):
    """An image is a number: rows of one embedding table."""

    def process(self, request: InputRequest) -> PreparedInput:
        value, rows = request.messages[-1]["content"]
        table = memoryview(array("f", [value] * rows)).cast("B").cast("f", (rows, 1))
        tokens = [5, *range(self.context.vocab_size, self.context.vocab_size + rows)]
        return PreparedInput(
            tokens=tokens,
            prompt_table=table,
            prompt_table_extra_ids=[0] + [7] * rows,
            position_ids=[0] + [1] * rows,
        )
'''


def test_the_tensors_of_an_input_processor_reach_the_engine(plugin: Path, tmp_path: Path) -> None:
    engine = make_engine(tmp_path / "engine")
    (engine / "input_processor.py").write_text(PROCESSOR)
    with ServerProcess("serve", str(engine), env={PLUGIN_VARIABLE: str(plugin)}) as server:

        def answer(value: float, rows: int) -> httpx.Response:
            request = {
                "messages": [{"role": "user", "content": [value, rows]}],
                "max_tokens": 40,
                "temperature": 0,
            }
            return httpx.post(f"{server.base_url}/v1/chat/completions", json=request, timeout=30)

        def text(value: float, rows: int = 3) -> str:
            response = answer(value, rows)
            assert response.status_code == 200, response.text
            return str(response.json()["choices"][0]["message"]["content"])

        first = text(1.5)
        assert first
        assert text(1.5) == first
        assert text(2.5) != first, "the embeddings are part of the prompt"
        large = answer(1.5, 65)
        assert (large.status_code, large.json()["error"]["param"]) == (400, "prompt_table")
        assert "max_prompt_embedding_table_size" in large.json()["error"]["message"]


def test_a_dead_executor_ends_the_process(plugin: Path, tmp_path: Path) -> None:
    engine = make_engine(tmp_path / "engine", "fatal_iteration=3\n")
    with ServerProcess("serve", str(engine), env={PLUGIN_VARIABLE: str(plugin)}) as server:
        with contextlib.suppress(httpx.TransportError):
            assert complete(server).status_code >= 500
        assert server.wait_exit() != 0


def test_what_does_not_fit_is_said_before_a_port_opens(plugin: Path, tmp_path: Path) -> None:
    engine = make_engine(tmp_path / "engine")
    missing = run_llgtrt("serve", str(engine), env={PLUGIN_VARIABLE: str(tmp_path / "none.so")})
    assert missing.returncode == 1
    assert "llgtrt build-trtllm" in missing.stderr
    (engine / "llgtrt.json5").write_text("{runtime: {max_batch_size: 64}}")
    conflict = run_llgtrt("serve", str(engine), env={PLUGIN_VARIABLE: str(plugin)})
    assert conflict.returncode == 1
    assert "runtime.max_batch_size" in conflict.stderr


def test_workers_end_with_their_leader(plugin: Path, tmp_path: Path) -> None:
    """Without MPI: the stand-in's processes find each other through a lock in the engine folder."""
    engine = make_engine(tmp_path / "engine", "group=1\n")
    config = json.loads((engine / "config.json").read_text())
    config["pretrained_config"]["mapping"] = {"world_size": 2, "tp_size": 2, "pp_size": 1}
    (engine / "config.json").write_text(json.dumps(config))
    (engine / "rank1.engine").write_bytes(b"")

    def environment(rank: int) -> dict[str, str]:
        size = {"OMPI_COMM_WORLD_RANK": str(rank), "OMPI_COMM_WORLD_SIZE": "2"}
        return {PLUGIN_VARIABLE: str(plugin), **size}

    with ServerProcess("serve", str(engine), env=environment(0)) as leader:
        worker = subprocess.Popen(
            [llgtrt_executable(), "serve", str(engine), "--port", str(leader.port)],
            env={**clean_environment(), **environment(1)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert worker.stderr is not None
            assert any("works for it" in line for line in worker.stderr)
            # mpirun and Slurm send it to all; the leader decides when it is over.
            worker.send_signal(signal.SIGTERM)
            assert text_of(complete(leader))
            assert worker.poll() is None
            leader.process.send_signal(signal.SIGKILL)
            leader.wait_exit()
            assert worker.wait(30) == 0
        finally:
            worker.kill()
            worker.communicate()


def replayed(port: int) -> list[list[Any]]:
    """The events that a server has published, as arrays of vLLM's form."""
    context: zmq.Context[Any] = zmq.Context()
    try:
        asking = context.socket(zmq.DEALER)
        asking.setsockopt(zmq.RCVTIMEO, 20_000)
        asking.connect(f"tcp://127.0.0.1:{port}")
        asking.send_multipart([b"", bytes(8)])
        events: list[list[Any]] = []
        while True:
            _, number, payload = asking.recv_multipart()
            if number == (-1).to_bytes(8, "big", signed=True):
                return events
            events += msgspec.msgpack.decode(payload)[1]
    finally:
        context.destroy(linger=0)


def test_routers_learn_what_the_executor_caches(plugin: Path, tmp_path: Path) -> None:
    engine = make_engine(tmp_path / "engine")
    live, past = free_port(), free_port()
    prompt = "Two blocks of sixteen tokens, and so on"
    with ServerProcess(
        "serve",
        str(engine),
        "--kv-events",
        f"zmq://*:{live}",
        "--set",
        f'kv_events.replay_endpoint="tcp://*:{past}"',
        env={PLUGIN_VARIABLE: str(plugin)},
    ) as server:
        assert complete(server, prompt=prompt, max_tokens=2).status_code == 200
        # The server is idle by now: what is behind the last answer comes as well.
        wait_until(lambda: bool(replayed(past)), "the blocks of the prompt")
        (stored,) = replayed(past)
    assert stored[0] == "BlockStored"
    assert stored[2:5] == [None, [VOCABULARY.index(character) for character in prompt[:32]], 16]
    assert len(stored[1]) == 2


async def test_dynamos_worker_takes_adapters_by_name(
    plugin: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(PLUGIN_VARIABLE, str(plugin))
    adapters = tmp_path / "adapters"
    adapters.mkdir()
    write_adapter(adapters / "own.safetensors")
    path = make_engine(tmp_path / "engine")
    settings = load_settings(Arguments(engine=path, lora_root=adapters))
    engine = await AsyncEngine.load(native_config(settings, kv_block_size=16))
    try:
        one = worker(engine)
        asked = {
            "token_ids": engine.encode("Hello", True),
            "stop_conditions": {"max_tokens": 20},
            "sampling_options": {"temperature": 0.0},
        }
        base = text_of_chunks(await answer(one, asked))
        own = text_of_chunks(await answer(one, {**asked, "routing": {"lora_name": "own"}}))
        assert own != base
        # A model of that name is the adapter, which is how the frontend lists it.
        assert text_of_chunks(await answer(one, {**asked, "model": "own"})) == own
        with pytest.raises(RequestError) as refused:
            await answer(one, {**asked, "routing": {"lora_name": "other"}})
        assert refused.value.param == "routing.lora_name"
    finally:
        await engine.shutdown()


def test_a_context_and_a_generation_server_answer_as_one(
    plugin: Path, trtllm: ServerProcess, tmp_path: Path
) -> None:
    key = {"LLGTRT_DISAGGREGATION_KEY": "a key that both servers have"}

    def start(role: str) -> ServerProcess:
        engine = make_engine(tmp_path / role, "chunk_tokens=20\n")
        options = {"disaggregation.role": role, "trtllm.cache_transceiver_backend": "nixl"}
        settings = [part for name, value in options.items() for part in ("--set", f'{name}="{value}"')]
        arguments = ["serve", str(engine), "--served-model-name", "base", *settings]
        return ServerProcess(*arguments, env={PLUGIN_VARIABLE: str(plugin), **key}, wait=False)

    schema = {"type": "json_schema", "json_schema": {"name": "answer", "schema": SCHEMA}}
    asked: list[dict[str, Any]] = [
        {"prompt": "Hello, which is more than one block of tokens", "max_tokens": 40},
        {"prompt": "Hello", "max_tokens": 1},
        {"prompt": "Hello", "max_tokens": 40, "temperature": 1, "seed": 4, "stop": ["a", "e"]},
        {"prompt": "Hello", "max_tokens": 200, "response_format": schema, "temperature": 1, "seed": 3},
    ]
    with start("context") as context, start("generation") as generation:
        for server in (context, generation):
            server.wait_ready()
        with Orchestrator(context.base_url, generation.base_url) as router:
            for body in asked:
                request = {"model": "base", "temperature": 0, **body}
                one, two = (
                    httpx.post(f"{base}/v1/completions", json=request, timeout=60)
                    for base in (trtllm.base_url, router.base_url)
                )
                assert text_of(two) == text_of(one)
                assert two.json()["choices"][0]["finish_reason"] == one.json()["choices"][0]["finish_reason"]
            assert set(router.finished) <= {"not_finished", "stop"}
            assert "not_finished" in router.finished


def test_a_role_needs_a_cache_transceiver(plugin: Path, tmp_path: Path) -> None:
    engine = make_engine(tmp_path / "engine")
    environment = {PLUGIN_VARIABLE: str(plugin), "LLGTRT_DISAGGREGATION_KEY": "k" * 16}
    ended = run_llgtrt("serve", str(engine), "--set", 'disaggregation.role="both"', env=environment)
    assert ended.returncode != 0
    assert "trtllm.cache_transceiver_backend" in ended.stderr
