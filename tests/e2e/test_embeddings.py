"""Vectors of the real model, by the stock client, alone and beside generations."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
from openai import OpenAI

from support.server import ServerProcess

CATS = ["The cat sleeps on the sofa.", "A kitten is napping on the couch."]
OTHER = "The central bank raised interest rates by half a point."


def test_texts_that_mean_the_same_are_closer(client: OpenAI) -> None:
    answer = client.embeddings.create(model="smollm2", input=[*CATS, OTHER])
    first, second, other = (np.array(one.embedding) for one in answer.data)
    assert abs(np.linalg.norm(first) - 1) < 1e-5
    assert first @ second > first @ other
    assert first @ second > second @ other
    [alone] = client.embeddings.create(model="smollm2", input=CATS[0]).data
    assert first @ np.array(alone.embedding) > 0.9999
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 20


def test_generations_go_on_beside_a_large_request(client: OpenAI) -> None:
    def ask() -> str:
        return (
            client.completions.create(
                model="smollm2", prompt="The capital of France is", max_tokens=12, temperature=0
            )
            .choices[0]
            .text
        )

    alone = ask()
    texts = [f"{index}: " + "once upon a time " * 40 for index in range(60)]
    with ThreadPoolExecutor(1) as pool:
        embedding = pool.submit(client.embeddings.create, model="smollm2", input=texts)
        beside = [ask() for _ in range(2)]
        assert not embedding.done(), "the large request came first"
        assert beside == [alone, alone]
        assert len(embedding.result(110).data) == 60


def test_the_same_file_beside_itself(model_file: Path, one_thread: Path) -> None:
    arguments = ("serve", str(model_file), "-C", str(one_thread), "--served-model-name", "chat")
    with (
        ServerProcess(*arguments, "--embedding-model", str(model_file)) as server,
        OpenAI(base_url=f"{server.base_url}/v1", api_key="unused", max_retries=0, timeout=60) as client,
    ):
        [one] = client.embeddings.create(model=model_file.stem, input=CATS[0], dimensions=16).data
        assert len(one.embedding) == 16
        assert {model.id for model in client.models.list()} == {"chat", model_file.stem}
