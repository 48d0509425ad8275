"""The tokenizer of the demo model as Hugging Face's file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from llgtrt.config import ConfigError, gguf_values, native_config
from llgtrt.config.arguments import Arguments
from llgtrt.config.engine import demo_model
from llgtrt.config.settings import load_settings
from llgtrt.dynamo.model_folder import SAMPLES, write_model_folder
from llgtrt.dynamo.tokenizer_json import GGML, byte_names, gguf_tokenizer
from llgtrt.engine import AsyncEngine, tokenize_with


async def test_the_demo_models_folder_tokenizes_as_the_engine(tmp_path: Path) -> None:
    settings = load_settings(Arguments(set=("runtime.max_seq_len=512", "runtime.max_batch_size=1")))
    engine = await AsyncEngine.load(native_config(settings))
    try:
        folder, ends = write_model_folder(tmp_path, settings, engine, "{{ messages }}")
        assert ends == (2,)
        text = "\n".join(SAMPLES) * 3
        assert tokenize_with(str(folder / "tokenizer.json"), [text]) == [engine.encode(text, False)]
    finally:
        await engine.shutdown()
    config = json.loads((folder / "tokenizer_config.json").read_text())
    assert (config["bos_token"], config["eos_token"]) == ("<|im_start|>", "<|im_end|>")


def test_metadata_is_read_by_prefix() -> None:
    file = demo_model()
    assert file is not None
    values = gguf_values(file, (GGML, "general.architecture"))
    assert values["general.architecture"] == "llama"
    assert (values[f"{GGML}model"], values[f"{GGML}pre"]) == ("gpt2", "smollm")
    assert len(values[f"{GGML}tokens"]) == len(values[f"{GGML}token_type"]) == 49152
    assert all(key.startswith((GGML, "general.")) for key in values)


def test_every_byte_has_a_name_of_its_own() -> None:
    names = byte_names()
    assert len(set(names)) == 256
    assert (names[ord("a")], names[ord(" ")], names[0]) == ("a", "Ġ", "Ā")


def test_a_tokenizer_that_splits_otherwise_is_refused() -> None:
    for changes in ({f"{GGML}model": "llama"}, {f"{GGML}pre": "tekken"}, {}):
        values = {f"{GGML}tokens": ["a"], f"{GGML}merges": [], **changes}
        with pytest.raises(ConfigError, match="--model-folder"):
            gguf_tokenizer(values)


def test_a_begin_token_is_put_before_texts() -> None:
    values = {
        f"{GGML}model": "gpt2",
        f"{GGML}pre": "llama-bpe",
        f"{GGML}tokens": ["<s>", "a", "b", "ab", "gone"],
        f"{GGML}token_type": [3, 1, 1, 1, 5],
        f"{GGML}merges": ["a b"],
        f"{GGML}bos_token_id": 0,
        f"{GGML}add_bos_token": True,
    }
    content = gguf_tokenizer(values)
    assert content["model"]["vocab"] == {"<s>": 0, "a": 1, "b": 2, "ab": 3}
    assert content["model"]["merges"] == [["a", "b"]]
    assert content["model"]["ignore_merges"] is True
    assert content["added_tokens"][0]["content"] == "<s>"
    assert content["post_processor"]["special_tokens"]["<s>"]["ids"] == [0]
