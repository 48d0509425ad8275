"""Answers that two servers make, through a router that does what trtllm-serve's orchestrator does."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI

from support.api import CHAT, COMPLETIONS, PERSON, chat, error_of, json_schema_format, ok
from support.orchestrator import Orchestrator, check_form, context_request, generation_request
from support.server import ServerProcess
from support.sim import StartServer, sim_arguments
from support.wait import wait_until

KEY = "a key that both servers have"
OTHER_KEY = "a key that others may have"
ON = {"disaggregation": {"role": "both"}}
STATE = "disaggregated_params.encoded_opaque_state"

COMPLETION = {"model": "sim-model", "prompt": "Once upon a time", "max_tokens": 40, "seed": 11}
ASKED: dict[str, tuple[str, dict[str, Any]]] = {
    "completion": (COMPLETIONS, COMPLETION),
    "one token": (COMPLETIONS, {**COMPLETION, "max_tokens": 1}),
    "tokens": (COMPLETIONS, {**COMPLETION, "prompt": [72, 101, 108, 108, 111]}),
    "greedy": (COMPLETIONS, {**COMPLETION, "temperature": 0}),
    "stop": (COMPLETIONS, {**COMPLETION, "stop": ["e", "a"]}),
    "chat": (CHAT, chat(max_tokens=40)),
    "schema": (CHAT, chat(response_format=json_schema_format(PERSON))),
    "schema of a completion": (COMPLETIONS, {**COMPLETION, "guided_json": PERSON, "max_tokens": 80}),
    "closed at the limit": (CHAT, chat(response_format=json_schema_format(PERSON), max_tokens=30)),
    "regex": (COMPLETIONS, {**COMPLETION, "guided_regex": "[a-z]{5}-[0-9]{3}"}),
    "verified": (
        COMPLETIONS,
        {
            **COMPLETION,
            "max_tokens": 200,
            "structured_outputs": {
                "json": {"type": "array", "items": {"enum": [1, 2, 3]}, "maxItems": 3, "uniqueItems": True},
            },
        },
    ),
    "tools": (
        CHAT,
        chat(
            tools=[{"type": "function", "function": {"name": "look_up", "parameters": PERSON}}],
            tool_choice="required",
        ),
    ),
}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[ServerProcess, ServerProcess]]:
    """A context and a generation server."""
    folder = tmp_path_factory.mktemp("two")
    (folder / "context").mkdir()
    (folder / "generation").mkdir()
    environment = {"LLGTRT_DISAGGREGATION_KEY": KEY}
    (folder / "key").write_text(f"{KEY}\n")
    context = {"disaggregation": {"role": "context", "key_file": str(folder / "key")}}
    generation = {"disaggregation": {"role": "generation", "max_state_bytes": 1024}}
    with (
        ServerProcess(*sim_arguments(folder / "context", context)) as one,
        ServerProcess(*sim_arguments(folder / "generation", generation), env=environment) as other,
    ):
        yield one, other


@pytest.fixture(scope="module")
def router(two: tuple[ServerProcess, ServerProcess]) -> Iterator[Orchestrator]:
    """In front of both."""
    with Orchestrator(two[0].base_url, two[1].base_url) as orchestrator:
        yield orchestrator


def openai_client(base_url: str) -> OpenAI:
    """The stock client; it must not hide failures behind retries."""
    return OpenAI(base_url=f"{base_url}/v1", api_key="unused", max_retries=0, timeout=60)


def without_ids(answer: Any) -> Any:
    """What a client makes of an answer, without what differs from one call to the next."""
    calls = answer.message.tool_calls if hasattr(answer, "message") else None
    said = [(call.function.name, call.function.arguments) for call in calls or ()]
    text = answer.message.content if hasattr(answer, "message") else answer.text
    return text, said, answer.finish_reason


def asked_of(client: OpenAI, path: str, body: dict[str, Any]) -> Any:
    """The first choice and the counts of tokens of an answer that comes at once."""
    known = ("model", "prompt", "messages")
    named = {name: body[name] for name in known if name in body}
    create = client.chat.completions.create if path == CHAT else client.completions.create
    extra = {name: value for name, value in body.items() if name not in known}
    answer = create(**named, extra_body=extra)
    return without_ids(answer.choices[0]), answer.usage.completion_tokens, answer.usage.prompt_tokens


def streamed_of(base_url: str, path: str, body: dict[str, Any]) -> Any:
    """The texts of calls, of the answer and its end, from a stream."""
    with openai_client(base_url) as client:
        create = client.chat.completions.create if path == CHAT else client.completions.create
        named = {name: body[name] for name in ("model", "prompt", "messages") if name in body}
        extra = {name: value for name, value in body.items() if name not in named}
        text, arguments, reason = "", "", None
        for chunk in create(**named, stream=True, extra_body=extra):
            for choice in chunk.choices:
                delta = choice.delta if path == CHAT else choice
                text += (delta.content if path == CHAT else delta.text) or ""
                for call in (delta.tool_calls or ()) if path == CHAT else ():
                    arguments += call.function.arguments or ""
                reason = choice.finish_reason or reason
    return text, arguments, reason


@pytest.mark.parametrize("name", ASKED)
def test_two_servers_answer_as_one(server: ServerProcess, router: Orchestrator, name: str) -> None:
    path, body = ASKED[name]
    with openai_client(server.base_url) as one, openai_client(router.base_url) as two:
        for seed in range(3):
            seeded = {**body, "seed": seed}
            assert asked_of(two, path, seeded) == asked_of(one, path, seeded)


@pytest.mark.parametrize("name", ASKED)
def test_two_servers_stream_as_one(server: ServerProcess, router: Orchestrator, name: str) -> None:
    path, body = ASKED[name]
    before = len(router.finished)
    theirs = streamed_of(router.base_url, path, body)
    # An answer that its first token ends comes at once from the context server.
    if router.finished[before] == "not_finished":
        assert theirs == streamed_of(server.base_url, path, body)


def context_of(two: tuple[ServerProcess, ServerProcess], path: str, body: dict[str, Any]) -> dict[str, Any]:
    """The answer of the context server."""
    answer = ok(httpx.post(two[0].base_url + path, json=context_request(body), timeout=60))
    check_form(answer)
    return answer


def test_the_variable_of_the_key_is_no_unknown_option(two: tuple[ServerProcess, ServerProcess]) -> None:
    assert "LLGTRT_DISAGGREGATION_KEY" not in two[1].output


def test_the_context_server_says_what_trtllm_serve_says(two: tuple[ServerProcess, ServerProcess]) -> None:
    answer = context_of(two, COMPLETIONS, COMPLETION)
    (choice,) = answer["choices"]
    params = choice["disaggregated_params"]
    assert choice["finish_reason"] == "not_finished"
    assert params["request_type"] == "context_only"
    assert len(params["first_gen_tokens"]) == 1
    assert isinstance(params["ctx_request_id"], int)
    assert params["draft_tokens"] is None
    assert len(base64.b64decode(params["encoded_opaque_state"])) > 32
    assert answer["usage"]["completion_tokens"] == 1
    ((*_, last),) = answer["prompt_token_ids"]
    assert last == ord("e")
    of_chat = context_of(two, CHAT, chat())
    assert all(isinstance(token, int) for token in of_chat["prompt_token_ids"])
    finished = two[0].metric('llgtrt_request_success_total{finished_reason="handed_over"}')
    assert finished >= 2


def test_an_answer_that_its_first_token_ends_is_whole(
    two: tuple[ServerProcess, ServerProcess], router: Orchestrator
) -> None:
    body = {**COMPLETION, "guided_choice": ["x"]}
    answer = ok(httpx.post(router.base_url + COMPLETIONS, json=body, timeout=60))
    assert (answer["choices"][0]["text"], answer["choices"][0]["finish_reason"]) == ("x", "stop")
    params = context_of(two, COMPLETIONS, body)["choices"][0]["disaggregated_params"]
    assert params["ctx_request_id"] == 0
    assert "encoded_opaque_state" not in params


def refused(two: tuple[ServerProcess, ServerProcess], changed: dict[str, Any], **fields: Any) -> str | None:
    """The field that the generation server names for a request with changed params or fields."""
    context = context_of(two, COMPLETIONS, COMPLETION)
    asked = generation_request(COMPLETION, context)
    asked["disaggregated_params"] |= changed
    asked |= fields
    param: str | None = error_of(httpx.post(two[1].base_url + COMPLETIONS, json=asked, timeout=60))["param"]
    return param


def test_only_what_was_sealed_is_taken(two: tuple[ServerProcess, ServerProcess]) -> None:
    sealed = context_of(two, COMPLETIONS, COMPLETION)["choices"][0]["disaggregated_params"]
    state = base64.b64decode(sealed["encoded_opaque_state"])
    unsealed = base64.b64encode(state[32:]).decode()
    flipped = base64.b64encode(bytes([state[0] ^ 1]) + state[1:]).decode()
    for wrong in (unsealed, flipped, "", "not base64!", "é", base64.b64encode(bytes(1100)).decode()):
        assert refused(two, {"encoded_opaque_state": wrong}) == STATE
    assert refused(two, {"encoded_opaque_state": None}) == STATE
    # Sealed, but for other tokens.
    assert refused(two, {"first_gen_tokens": [7]}) == STATE
    assert refused(two, {"draft_tokens": [7]}) == STATE
    assert refused(two, {"ctx_request_id": 12345678}) == STATE
    assert refused(two, {}, prompt=[72, 105]) == STATE
    assert refused(two, {"first_gen_tokens": []}) == "disaggregated_params.first_gen_tokens"
    assert refused(two, {"ctx_request_id": None}) == "disaggregated_params.ctx_request_id"


def test_a_state_with_another_key_or_of_another_model_is_refused(
    two: tuple[ServerProcess, ServerProcess], start_server: StartServer, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(OTHER_KEY)
    asked = generation_request(COMPLETION, context_of(two, COMPLETIONS, COMPLETION))
    other_key = start_server(disaggregation={"role": "both", "key_file": str(tmp_path / "key")})
    *arguments, _ = sim_arguments(tmp_path, ON)
    with ServerProcess(*arguments, "other-model", env={"LLGTRT_DISAGGREGATION_KEY": KEY}) as other_model:
        for other, name in ((other_key, "sim-model"), (other_model, "other-model")):
            body = {**asked, "model": name}
            error = error_of(httpx.post(other.base_url + COMPLETIONS, json=body, timeout=60))
            assert error["param"] == STATE


def test_a_constraint_that_the_first_tokens_break_is_refused(
    two: tuple[ServerProcess, ServerProcess],
) -> None:
    assert refused(two, {}, guided_regex="[0-9]{30}") == "disaggregated_params.first_gen_tokens"


@pytest.mark.parametrize(
    ("changed", "param"),
    [
        ({"n": 2}, "n"),
        ({"best_of": 2}, "best_of"),
        ({"logprobs": 0}, "logprobs"),
        ({"prompt_logprobs": 0}, "prompt_logprobs"),
        ({"echo": True}, "echo"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"stream": True}, "stream"),
        ({"prompt": ["a", "b"]}, "prompt"),
    ],
)
def test_what_cannot_be_divided_is_named(
    two: tuple[ServerProcess, ServerProcess], changed: dict[str, Any], param: str
) -> None:
    body = {**context_request(COMPLETION), **changed}
    assert error_of(httpx.post(two[0].base_url + COMPLETIONS, json=body, timeout=60))["param"] == param


def test_each_server_does_its_own_phase(two: tuple[ServerProcess, ServerProcess], http: httpx.Client) -> None:
    context, generation = two
    body = context_request(COMPLETION)
    field = "disaggregated_params.request_type"
    assert error_of(httpx.post(generation.base_url + COMPLETIONS, json=body, timeout=60))["param"] == field
    asked = generation_request(COMPLETION, context_of(two, COMPLETIONS, COMPLETION))
    assert error_of(httpx.post(context.base_url + COMPLETIONS, json=asked, timeout=60))["param"] == field
    late = {**asked, "disaggregated_params": {**asked["disaggregated_params"], "schedule_style": 1}}
    error = error_of(httpx.post(generation.base_url + COMPLETIONS, json=late, timeout=60))
    assert error["param"] == "disaggregated_params.schedule_style"
    # A server that was not told to divides nothing; the whole of an answer it gives.
    for given in (body, asked):
        assert error_of(http.post(COMPLETIONS, json=given))["param"] == "disaggregated_params"
    whole = {**COMPLETION, "disaggregated_params": {"request_type": "context_and_generation"}}
    assert ok(http.post(COMPLETIONS, json=whole))["choices"][0]["text"]


def test_generation_wants_the_prompts_tokens(two: tuple[ServerProcess, ServerProcess]) -> None:
    assert refused(two, {}, prompt="Once upon a time") == "prompt"
    asked = generation_request(chat(), context_of(two, CHAT, chat()))
    generation = two[1].base_url + CHAT
    for tokens in (None, "text", [], [-1], [10**6]):
        error = error_of(httpx.post(generation, json={**asked, "prompt_token_ids": tokens}, timeout=60))
        assert error["param"].startswith("prompt_token_ids")
    error = error_of(httpx.post(two[0].base_url + CHAT, json={**chat(), "prompt_token_ids": [1]}, timeout=60))
    assert error["param"] == "prompt_token_ids"


def test_cancellation_frees_both(start_server: StartServer, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY)
    section = {"role": "both", "key_file": str(tmp_path / "key")}
    sim = {"step_us": 20_000, "min_answer_tokens": 2000, "max_answer_tokens": 2000, "prefill_chunk_tokens": 1}
    two = (start_server(disaggregation=section, sim=sim), start_server(disaggregation=section, sim=sim))
    body = {**COMPLETION, "max_tokens": 2000}
    with Orchestrator(two[0].base_url, two[1].base_url) as router, openai_client(router.base_url) as client:
        stream = client.completions.create(model="sim-model", prompt="Go", max_tokens=2000, stream=True)
        next(iter(stream))
        assert two[1].metric("llgtrt_num_requests_running") == 1
        assert two[0].is_idle()
        stream.close()
        wait_until(two[1].is_idle, "the generation server is idle")
    # While the prompt is evaluated.
    long = {**context_request(body), "prompt": "x" * 1000}
    with httpx.Client() as client, pytest.raises(httpx.TimeoutException):
        client.post(two[0].base_url + COMPLETIONS, json=long, timeout=0.5)
    wait_until(two[0].is_idle, "the context server is idle")


@pytest.mark.parametrize(
    ("section", "environment", "said"),
    [
        ({"role": "both"}, {}, "disaggregation.role needs a key"),
        ({"role": "both"}, {"LLGTRT_DISAGGREGATION_KEY": "short"}, "fewer than 16 bytes"),
        ({"role": "both", "key_file": "/nowhere/key"}, {}, "/nowhere/key"),
    ],
)
def test_a_role_needs_a_key(
    tmp_path: Path, section: dict[str, Any], environment: dict[str, str], said: str
) -> None:
    arguments = sim_arguments(tmp_path, {"disaggregation": section})
    with ServerProcess(*arguments, env=environment, wait=False) as process:
        assert process.wait_exit() != 0
        assert said in process.output
        assert "short" not in process.output
