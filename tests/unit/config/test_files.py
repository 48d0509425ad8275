"""Configuration files: what they may hold, and how errors name the place."""

import json
from pathlib import Path
from typing import Any

import pytest

from llgtrt.config import Config, ConfigError
from llgtrt.config.files import option_paths, read_config_file, read_tokenizer_config


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_json5_is_read(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json5", "// note\n{tokenizer: {bos_token: null, n_vocab_override: 32064,},}")
    assert read_config_file(file) == {"tokenizer": {"bos_token": None, "n_vocab_override": 32064}}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "{runtime: {max_batchsize: 3}}",
            "runtime.max_batchsize: unknown option, did you mean 'runtime.max_batch_size'?",
        ),
        ("{runtime: {port: 3}}", "runtime.port: unknown option, did you mean 'server.port'?"),
        ("{max_num_tokens: 3}", "max_num_tokens: unknown option, did you mean 'runtime.max_num_tokens'?"),
        ("{'run-time': {}}", "run-time: unknown option, did you mean 'runtime'?"),
        ("{zebra: 1}", "zebra: unknown option"),
        (
            "{llguidance: {limits: {maxgrammarsize: 1}}}",
            "llguidance.limits.maxgrammarsize: unknown option, did you mean"
            " 'llguidance.limits.max_grammar_size'?",
        ),
        ("{runtime: {max_batch_size: '8'}}", "runtime.max_batch_size: should be a valid integer"),
        ("{runtime: {max_batch_size: true}}", "runtime.max_batch_size: should be a valid integer"),
        ("{runtime: {max_batch_size: 0}}", "runtime.max_batch_size: should be greater than or equal to 1"),
        (
            "{runtime: {kv_cache_free_gpu_mem_fraction: NaN}}",
            "runtime.kv_cache_free_gpu_mem_fraction: should be",
        ),
        ("{tokenizer: {eos_token: {text: 'x'}}}", "tokenizer.eos_token: a token is a text or an object"),
        ("{runtime: null}", "runtime: should be"),
        ("{server: {cors_origins: ['a', 1]}}", "server.cors_origins[1]: should be a valid string"),
        ("{runtime: {zebra: 1, max_batch_size: 0}}", "runtime.zebra: unknown option (and 1 more)"),
        ("{sim: {faults: [{kind: 'hang', at: 3}]}}", "sim.faults[0].at: unknown option"),
        ("[1]", "a configuration file holds one object"),
    ],
)
def test_a_wrong_option_is_named(tmp_path: Path, text: str, message: str) -> None:
    file = write(tmp_path / "a.json5", text)
    with pytest.raises(ConfigError) as caught:
        read_config_file(file)
    assert str(caught.value).startswith(f"{file}: {message}")


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("{a:\n  b c}", ":2:3: unexpected"),
        ("{", ":1"),
        ("{a: 1, a: 2}", ": "),
        ("[" * 100_000, ": nested too deeply"),
    ],
)
def test_a_syntax_error_names_the_place(tmp_path: Path, text: str, place: str) -> None:
    file = write(tmp_path / "a.json5", text)
    with pytest.raises(ConfigError) as caught:
        read_config_file(file)
    assert str(caught.value).startswith(f"{file}{place}")
    assert "\n" not in str(caught.value)


def test_surrogate_pairs_are_joined(tmp_path: Path) -> None:
    path = tmp_path / "pair.json5"
    path.write_text(r'{sim: {script: "\ud83d\udc69"}}')
    assert read_config_file(path) == {"sim": {"script": "\U0001f469"}}
    path.write_text(r'{sim: {script: "\ud83d"}}')
    with pytest.raises(ConfigError, match="surrogate"):
        read_config_file(path)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        read_config_file(tmp_path / "missing.json5")
    binary = tmp_path / "binary.json5"
    binary.write_bytes(b"\xff\xfe{}")
    with pytest.raises(ConfigError, match="not UTF-8"):
        read_config_file(binary)
    with pytest.raises(ConfigError, match="directory"):
        read_config_file(tmp_path)


def test_relative_paths_count_from_the_file(tmp_path: Path) -> None:
    text = "{py: {input_processor: '../p.py', hf_model_dir: '/abs', arguments: {path: 'kept'}}}"
    folder = tmp_path / "folder"
    folder.mkdir()
    section = read_config_file(write(folder / "a.json5", text))["py"]
    assert section == {
        "input_processor": str(tmp_path / "p.py"),
        "hf_model_dir": "/abs",
        "arguments": {"path": "kept"},
    }


def test_tokenizer_config_of_hugging_face(tmp_path: Path) -> None:
    content: dict[str, Any] = {
        "added_tokens_decoder": {"0": {}},
        "bos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": False},
        "eos_token": "</s>",
        "pad_token": None,
        "chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}],
        "model_max_length": 1e30,
    }
    file = write(tmp_path / "tokenizer_config.json", json.dumps(content))
    assert read_tokenizer_config(file) == {
        "bos_token": "<s>",
        "eos_token": "</s>",
        "pad_token": None,
        "chat_template": "D",
    }


@pytest.mark.parametrize("text", ["[]", "{", '{"eos_token": 3}', '{"chat_template": [1]}'])
def test_a_broken_tokenizer_config_is_an_error(tmp_path: Path, text: str) -> None:
    file = write(tmp_path / "tokenizer_config.json", text)
    with pytest.raises(ConfigError, match=r"tokenizer_config\.json"):
        read_tokenizer_config(file)


def test_every_option_of_the_original_exists() -> None:
    original = {
        "runtime": "guaranteed_no_evict max_batch_size max_num_tokens max_queue_size enable_chunked_context"
        " enable_kv_cache_reuse kv_cache_free_gpu_mem_fraction kv_cache_host_memory_megabytes"
        " kv_cache_onboard_blocks cross_kv_cache_fraction secondary_offload_min_priority"
        " event_buffer_max_size enable_batch_size_tuning enable_max_num_tokens_tuning",
        "tokenizer": "chat_template clean_up_tokenization_spaces eos_token bos_token unk_token sep_token"
        " pad_token cls_token mask_token n_vocab_override",
        "llguidance": "limits log_level",
        "llguidance.limits": "max_items_in_row initial_lexer_fuel step_lexer_fuel step_max_items"
        " max_lexer_states max_grammar_size precompute_large_lexemes verbose_errors",
        "py": "input_processor hf_model_dir visual_engine_dir arguments",
    }
    ours = {".".join(path) for path in option_paths(Config)}
    assert {f"{section}.{name}" for section, names in original.items() for name in names.split()} <= ours


def test_every_option_has_a_description() -> None:
    for path in option_paths(Config):
        model: Any = Config
        for name in path[:-1]:
            model = model.model_fields[name].annotation
        field = model.model_fields[path[-1]]
        assert field.description or field.annotation.__doc__, path
