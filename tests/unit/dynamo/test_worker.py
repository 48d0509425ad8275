"""The worker over the sim engine, without Dynamo: requests and contexts have their shape."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import jsonschema
import pytest

from llgtrt.config import Settings
from llgtrt.dynamo.model_folder import check_tokenizer, model_end_tokens, write_model_folder
from llgtrt.engine import AsyncEngine, LlgtrtError
from llgtrt.serving.errors import RequestError
from support.core import engine_config
from support.dynamo import Context, answer, collect, request, text_of, worker

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 12},
        "tags": {
            "type": "array",
            "minItems": 2,
            "maxItems": 4,
            "uniqueItems": True,
            "items": {"enum": [1, 2, 3, 4]},
        },
    },
    "required": ["name", "tags"],
    "additionalProperties": False,
}


@pytest.fixture
async def engine() -> AsyncIterator[AsyncEngine]:
    loaded = await AsyncEngine.load(engine_config(runtime={"max_seq_len": 1024}))
    yield loaded
    await loaded.shutdown()


async def test_chunks_hold_tokens_and_their_text(engine: AsyncEngine) -> None:
    chunks = await answer(worker(engine), request(sampling_options__seed=1))
    for chunk in chunks:
        assert bytes(chunk["token_ids"]).decode() == chunk["text"]
    last = chunks[-1]
    assert last["finish_reason"] in ("stop", "length")
    usage = last["completion_usage"]
    assert usage["prompt_tokens"] == 5
    assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]
    assert "cached_tokens" in usage["prompt_tokens_details"]
    assert all("completion_usage" not in chunk for chunk in chunks[:-1])


async def test_several_choices(engine: AsyncEngine) -> None:
    chunks = await answer(worker(engine), request(sampling_options__n=3, sampling_options__seed=2))
    assert {chunk["index"] for chunk in chunks} == {0, 1, 2}
    assert len({text_of(chunks, index) for index in range(3)}) == 3
    assert sum("finish_reason" in chunk for chunk in chunks) == 3
    with pytest.raises(RequestError) as caught:
        await answer(worker(engine), request(sampling_options__n=5))
    assert caught.value.param == "sampling_options.n"


async def test_log_probabilities_belong_to_the_tokens(engine: AsyncEngine) -> None:
    chunks = await answer(worker(engine), request(output_options__logprobs=2))
    for chunk in chunks:
        count = len(chunk["token_ids"])
        if not count:
            continue
        assert len(chunk["log_probs"]) == len(chunk["top_logprobs"]) == len(chunk["tokens"]) == count
        for top in chunk["top_logprobs"]:
            assert [entry["rank"] for entry in top] == [1, 2]
            assert all(entry["logprob"] <= 0 and isinstance(entry["token_id"], int) for entry in top)


@pytest.mark.parametrize(
    "guided",
    [
        {"json": SCHEMA},
        {"json": json.dumps(SCHEMA)},
        {"regex": "[a-f]{3}-[0-9]{4}"},
        {"choice": ["red", "green"]},
        {"grammar": 'start: "a" ("b" | "c")+ "d"'},
        {
            "structural_tag": {
                "type": "structural_tag",
                "format": {
                    "type": "tags_with_separator",
                    "separator": "\n",
                    "at_least_one": True,
                    "tags": [
                        {
                            "type": "tag",
                            "begin": "<f=x>",
                            "content": {"type": "json_schema", "json_schema": {"enum": [1, 22]}},
                            "end": "</f>",
                        }
                    ],
                },
            }
        },
    ],
    ids=lambda guided: next(iter(guided)),
)
async def test_constraints_are_enforced(engine: AsyncEngine, guided: dict[str, Any]) -> None:
    chunks = await answer(worker(engine), request(sampling_options__guided_decoding=guided))
    text = text_of(chunks)
    if "json" in guided:
        jsonschema.validate(json.loads(text), SCHEMA)
    elif "regex" in guided:
        assert len(text) == 8
        assert text[3] == "-"
    elif "choice" in guided:
        assert text in ("red", "green")
    elif "grammar" in guided:
        assert text.strip("bc") == "ad" or (text[0] == "a" and text[-1] == "d")
    else:
        assert re.fullmatch("<f=x>(1|22)</f>(\n<f=x>(1|22)</f>)*", text)


async def test_a_tag_that_text_triggers_follows_its_schema() -> None:
    tags = {
        "type": "triggered_tags",
        "triggers": ["<f="],
        "tags": [{"begin": "<f=x>", "content": {"type": "regex", "pattern": "[0-9]{3}"}, "end": "</f>"}],
    }
    guided = {"structural_tag": {"type": "structural_tag", "format": tags}}
    older = {
        "structural_tag": {
            "triggers": ["<f="],
            "structures": [{"begin": "<f=x>", "schema": {"const": 111}, "end": "</f>"}],
        }
    }
    script = engine_config(sim={"text": "script", "script": "So: <f=y>12345</f>, and <f=x>1</g> it is."})
    own = await AsyncEngine.load(script)
    try:
        for one in (guided, older):
            text = text_of(await answer(worker(own), request(sampling_options__guided_decoding=one)))
            found = re.findall("<f=x>(.*?)</f>", text)
            assert text.startswith("So: ")
            assert found
            assert text.count("<f=") == len(found)
            assert all(re.fullmatch("[0-9]{3}", number) for number in found)
        free = text_of(await answer(worker(own), request()))
        assert free == "So: <f=y>12345</f>, and <f=x>1</g> it is."
    finally:
        await own.shutdown()


@pytest.mark.parametrize(
    ("members", "param"),
    [
        ({"guided_decoding": {"json": {"type": "stsring"}}}, "sampling_options.guided_decoding.json"),
        (
            {"guided_decoding": {"json": {"properties": {"a": {"minimum": "x"}}}}},
            "sampling_options.guided_decoding.json.properties.a",
        ),
        ({"guided_decoding": {"regex": "("}}, "sampling_options.guided_decoding.regex"),
        (
            {
                "guided_decoding": {
                    "structural_tag": {"format": {"type": "json_schema", "json_schema": {"type": "x"}}}
                }
            },
            "sampling_options.guided_decoding.structural_tag.format.json_schema",
        ),
    ],
)
async def test_a_grammar_that_is_refused_names_its_path(
    engine: AsyncEngine, members: dict[str, Any], param: str
) -> None:
    with pytest.raises(LlgtrtError) as caught:
        await answer(worker(engine), {**request(), "sampling_options": members})
    assert caught.value.kind == "grammar"
    assert (caught.value.param or "").startswith(param)


async def test_a_prompt_over_the_context_is_refused(engine: AsyncEngine) -> None:
    for length in (1023, 1024, 5000):
        with pytest.raises((RequestError, LlgtrtError), match="maximum context length is 1024"):
            await answer(worker(engine), request("x" * length))
    with pytest.raises(RequestError) as caught:
        await answer(worker(engine), {"token_ids": [5, 260]})
    assert caught.value.param == "token_ids[1]"


async def test_stop_strings_and_tokens(engine: AsyncEngine) -> None:
    script = engine_config(sim={"text": "script", "script": "one two three four"})
    own = await AsyncEngine.load(script)
    try:
        chunks = await answer(worker(own), request(stop_conditions__stop=["three"]))
        assert text_of(chunks) == "one two "
        assert (chunks[-1]["finish_reason"], chunks[-1]["stop_reason"]) == ("stop", "three")
        included: dict[str, Any] = {
            "stop_conditions__stop": ["three"],
            "sampling_options__include_stop_str_in_output": True,
        }
        assert text_of(await answer(worker(own), request(**included))) == "one two three"
        chunks = await answer(worker(own), request(stop_conditions__stop_token_ids=[ord("w")]))
        assert text_of(chunks) == "one t"
        assert chunks[-1]["stop_reason"] == ord("w")
    finally:
        await own.shutdown()


async def test_cancellation_frees_the_place_at_once() -> None:
    slow = await AsyncEngine.load(
        engine_config(runtime={"max_batch_size": 1, "max_queue_size": 1}, sim={"step_us": 2000})
    )
    try:
        one = worker(slow)
        endless = request(stop_conditions__ignore_eos=True)
        del endless["stop_conditions"]["max_tokens"]
        running, queued = Context(), Context()
        first = one.generate(endless, running)
        assert (await anext(first))["text"]
        waiting = asyncio.ensure_future(collect(one.generate(endless, queued)))
        while slow.active_requests() < 2:  # noqa: ASYNC110 (the core tells nobody)
            await asyncio.sleep(0)
        assert one.requests == 2
        # The one that waits for a place has no output that would wake it.
        queued.stopped.set_result(True)
        assert [chunk["finish_reason"] for chunk in await waiting] == ["cancelled"]
        running.stopped.set_result(True)
        rest = await collect(first)
        assert rest[-1]["finish_reason"] == "cancelled"
        assert one.requests == 0
        assert slow.active_requests() == 0
    finally:
        await slow.shutdown()


async def test_a_constrained_answer_goes_on_at_another_worker(engine: AsyncEngine) -> None:
    """As the frontend's migration sends it: what was generated stands behind the prompt."""
    one = worker(engine)
    annotation = "llgtrt:" + json.dumps({"guided_decoding": {"json": SCHEMA}, "max_tokens": 200})
    asked = request(annotations=[annotation])
    whole = await answer(one, asked)
    for cut in range(1, len(whole)):
        before = whole[:cut]
        tokens = [token for chunk in before for token in chunk["token_ids"]]
        moved = request(annotations=[annotation], stop_conditions__max_tokens=200 - len(tokens))
        moved["token_ids"] += tokens
        text = text_of(before) + text_of(await answer(one, moved))
        jsonschema.validate(json.loads(text), SCHEMA)


async def test_thinking_comes_before_a_constrained_answer() -> None:
    script = engine_config(sim={"text": "script", "script": "<think>so</think>"})
    own = await AsyncEngine.load(script)
    try:
        one = worker(own, "{{ messages }}<think>\n</think>")
        guided: dict[str, Any] = {"sampling_options__guided_decoding": {"choice": ["red", "green"]}}
        text = text_of(await answer(one, request(require_reasoning=True, **guided)))
        assert text.startswith("<think>")
        assert text.rpartition("</think>")[2].strip() in ("red", "green")
        # Who does not ask for it gets the answer alone.
        assert text_of(await answer(one, request(**guided))) in ("red", "green")
        with pytest.raises(RequestError) as caught:
            await answer(worker(own), request(stop_conditions__max_thinking_tokens=5))
        assert caught.value.param == "stop_conditions.max_thinking_tokens"
    finally:
        await own.shutdown()


async def test_the_model_folder_holds_the_engines_tokenizer(engine: AsyncEngine, tmp_path: Any) -> None:
    folder, ends = write_model_folder(tmp_path, Settings(), engine, "{{ messages }}")
    assert ends == (257,)
    # Another worker has the same, under the same path.
    assert write_model_folder(tmp_path, Settings(), engine, "{{ messages }}") == (folder, ends)
    assert write_model_folder(tmp_path, Settings(), engine, "{{ other }}")[0] != folder
    assert len(list(tmp_path.iterdir())) == 2
    assert model_end_tokens(folder, engine) == (257,)
    config = json.loads((folder / "config.json").read_text())
    assert (config["eos_token_id"], config["vocab_size"], config["max_position_embeddings"]) == (
        257,
        260,
        1024,
    )
    written = json.loads((folder / "tokenizer_config.json").read_text())
    assert (written["chat_template"], written["eos_token"]) == ("{{ messages }}", "</s>")
    file = folder / "tokenizer.json"
    content = json.loads(file.read_text())
    vocabulary = content["model"]["vocab"]
    vocabulary["a"], vocabulary["b"] = vocabulary["b"], vocabulary["a"]
    file.write_text(json.dumps(content))
    with pytest.raises(Exception, match="otherwise than the engine"):
        check_tokenizer(file, engine)
    with pytest.raises(Exception, match="was changed"):
        write_model_folder(tmp_path, Settings(), engine, "{{ messages }}")
