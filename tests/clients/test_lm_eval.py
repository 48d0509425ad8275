"""``lm-eval``: its own evaluator over local tasks; log-likelihoods, rolling ones, and text.

It finds by itself that the server tokenizes (``/tokenizer_info``, ``/tokenize``), so that it needs no
tokenizer of its own.
"""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from conftest import KEY
from judge import Judge

ROWS = [
    {"question": "The capital of France is", "choices": [" Paris", " a banana", " seven"], "right": 0},
    {"question": "The color of the sky is", "choices": [" seventeen", " blue", " Paris"], "right": 1},
    {"question": "One, two, three,", "choices": [" four", " France", " banana"], "right": 0},
]
KINDS: dict[str, dict[str, Any]] = {
    "multiple_choice": {
        "doc_to_text": "{{question}}",
        "doc_to_choice": "{{choices}}",
        "doc_to_target": "right",
        "target_delimiter": "",
        "metric_list": [{"metric": "acc"}],
    },
    "loglikelihood_rolling": {
        "doc_to_text": "",
        "doc_to_target": "{{question}}",
        "metric_list": [{"metric": "word_perplexity"}],
    },
    "generate_until": {
        "doc_to_text": "{{question}}",
        "doc_to_target": "{{choices[right]}}",
        "generation_kwargs": {"until": [",", "."], "max_gen_toks": 12},
        "metric_list": [{"metric": "exact_match"}],
    },
}


@pytest.fixture(scope="module")
def tasks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """One task of each kind, over rows in a file."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_DATASETS_CACHE", str(tmp_path_factory.mktemp("datasets")))
        # Seconds, and nothing that other tests need.
        from lm_eval.api.task import ConfigurableTask

        file = tmp_path_factory.mktemp("rows") / "rows.jsonl"
        file.write_text("\n".join(map(json.dumps, ROWS)))
        shared = {
            "dataset_path": "json",
            "dataset_kwargs": {"data_files": {"test": str(file)}},
            "test_split": "test",
        }
        return {
            kind: ConfigurableTask(config={**shared, "task": kind, "output_type": kind, **fields})
            for kind, fields in KINDS.items()
        }


def evaluate(judge: Judge, model: str, tasks: list[Any], monkeypatch: pytest.MonkeyPatch) -> Any:
    """What the evaluator finds; ``model`` is lm-eval's name of the client."""
    from lm_eval import simple_evaluate

    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    chat = model == "local-chat-completions"
    path = "/v1/chat/completions" if chat else "/v1/completions"
    arguments = {"model": "demo", "base_url": judge.url + path, "num_concurrent": 2, "max_retries": 1}
    if not chat:
        arguments["auth_token"] = KEY
    return simple_evaluate(
        model=model, model_args=arguments, tasks=tasks, bootstrap_iters=0, apply_chat_template=chat
    )


def test_completions(demo: Judge, tasks: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    found = evaluate(demo, "local-completions", list(tasks.values()), monkeypatch)
    # The demo model is small, but it knows that Paris is likelier than a banana.
    assert found["results"]["multiple_choice"]["acc,none"] == 1.0
    perplexity = found["results"]["loglikelihood_rolling"]["word_perplexity,none"]
    sums = [sample["resps"][0][0] for sample in found["samples"]["loglikelihood_rolling"]]
    words = sum(len(row["question"].split()) for row in ROWS)
    assert all(total < 0 for total in sums)
    assert math.isclose(perplexity, math.exp(-sum(sums) / words), rel_tol=1e-6)
    texts = [sample["resps"][0][0] for sample in found["samples"]["generate_until"]]
    assert all(text and "." not in text and "," not in text for text in texts)
    asked = {one.path for one in demo.exchanges}
    assert {"/tokenizer_info", "/tokenize", "/v1/completions"} <= asked


def test_chat(demo: Judge, tasks: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    found = evaluate(demo, "local-chat-completions", [tasks["generate_until"]], monkeypatch)
    texts = [sample["resps"][0][0] for sample in found["samples"]["generate_until"]]
    assert len(texts) == len(ROWS)
    assert all(text and "." not in text and "," not in text for text in texts)
