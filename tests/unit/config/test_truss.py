"""What config.yaml of a Truss means for our configuration."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import json5
import pytest

from llgtrt.cli.command import run
from llgtrt.config import Arguments, ConfigError, find_engine, is_truss, load_settings, read_truss
from llgtrt.config.truss import truss_options


def folder(tmp_path: Path, config: str | None = "", file: str = "model/model.py") -> Path:
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("class Model: ...\n")
    if config is not None:
        (tmp_path / "config.yaml").write_text(config)
    return tmp_path


@pytest.mark.parametrize(
    ("config", "file", "named"),
    [
        ("", "model/model.py", "."),
        (None, "model/model.py", "."),
        (None, "model.py", "."),
        (None, "mine.py", "mine.py"),
        ("model_module_dir: src\nmodel_class_filename: m.py", "src/m.py", "."),
    ],
)
def test_where_the_class_may_be(tmp_path: Path, config: str | None, file: str, named: str) -> None:
    one = read_truss(folder(tmp_path, config, file) / named)
    assert one.file == tmp_path / file
    assert one.folder == tmp_path
    assert one.class_name == "Model"
    assert one.predict_concurrency == 1
    assert is_truss(tmp_path) == (config is not None)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ("a: [", ":1:5: "),
        ("[]", ": expected an object"),
        ("secrets: 5", ": secrets: expected an object"),
        ("external_package_dirs: 5", ": external_package_dirs: expected a list"),
        ("model_class_name: 5", ": model_class_name: expected a text"),
        ("runtime: {predict_concurrency: 0}", ": runtime.predict_concurrency: should be an integer above 0"),
        ("runtime: {predict_concurrency: true}", ": runtime.predict_concurrency: should be"),
    ],
)
def test_what_is_wrong_is_said_with_the_file(tmp_path: Path, config: str, message: str) -> None:
    with pytest.raises(ConfigError) as failure:
        read_truss(folder(tmp_path, config))
    assert str(failure.value).startswith(f"{tmp_path}/config.yaml{message}")


def test_what_is_no_truss(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file or folder"):
        read_truss(tmp_path / "nowhere")
    with pytest.raises(ConfigError, match="is no Truss"):
        read_truss(tmp_path)


TRT_LLM = """
requirements: [torch]
resources: {accelerator: H100}
trt_llm:
  inference_stack: v1
  build:
    base_model: decoder
    checkpoint_repository: {source: HF, repo: a/b}
    max_seq_len: 1000
    max_batch_size: 17
    max_num_tokens: 4000
    max_beam_width: 1
    quantization_type: fp8
    tensor_parallel_count: 2
    speculator:
      speculative_decoding_mode: LOOKAHEAD_DECODING
      lookahead_windows_size: 5
      lookahead_ngram_size: 4
      lookahead_verification_set_size: 3
    lora_adapters: {x: {source: HF, repo: c/d}}
  runtime:
    kv_cache_free_gpu_mem_fraction: 0.62
    kv_cache_host_memory_bytes: 1048577
    enable_chunked_context: false
    batch_scheduler_policy: guaranteed_no_evict
    request_default_max_tokens: 33
    served_model_name: mine
    total_token_limit: 500000
"""


def test_the_trt_llm_section(tmp_path: Path) -> None:
    options, unused = truss_options(read_truss(folder(tmp_path, TRT_LLM)), "trtllm")
    assert options == {
        "runtime": {
            "max_seq_len": 1000,
            "max_batch_size": 17,
            "max_num_tokens": 4000,
            "kv_cache_free_gpu_mem_fraction": 0.62,
            "kv_cache_host_memory_megabytes": 2,
            "enable_chunked_context": False,
            "guaranteed_no_evict": True,
        },
        "server": {"default_max_tokens": 33, "served_model_name": "mine"},
        "trtllm": {"max_beam_width": 1, "decoding_mode": "lookahead", "lookahead": [5, 4, 3]},
    }
    assert unused == [
        "requirements",
        "trt_llm.build.quantization_type",
        "trt_llm.build.tensor_parallel_count",
        "trt_llm.build.lora_adapters",
        "trt_llm.runtime.total_token_limit",
    ]


def test_sizes_of_a_gpu_are_not_for_the_embedded_engine(tmp_path: Path) -> None:
    options, unused = truss_options(read_truss(folder(tmp_path, TRT_LLM)), "llamacpp")
    assert "max_batch_size" not in options["runtime"]
    assert options["runtime"]["max_seq_len"] == 1000
    assert {"trt_llm.build.max_batch_size", "trt_llm.build.max_num_tokens"} <= set(unused)


@pytest.mark.parametrize(
    ("runtime", "options"),
    [
        ("batch_scheduler_policy: max_utilization", {"runtime": {"guaranteed_no_evict": False}}),
        ("enable_chunked_prefill: true", {"runtime": {"enable_chunked_context": True}}),
        ("max_seq_len: 5", {"runtime": {"max_seq_len": 5}}),
        ("served_model_name: null", {}),
    ],
)
def test_the_runtime_section(tmp_path: Path, runtime: str, options: dict[str, Any]) -> None:
    one = read_truss(folder(tmp_path, "trt_llm: {runtime: {" + runtime + "}}"))
    assert truss_options(one, "sim") == (options, [])


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ("trt_llm: 5", "trt_llm: expected an object"),
        ("trt_llm: {build: 5}", "trt_llm.build: expected an object"),
        (
            "trt_llm: {runtime: {batch_scheduler_policy: x}}",
            "trt_llm.runtime.batch_scheduler_policy: cannot read 'x'",
        ),
    ],
)
def test_a_value_that_cannot_be_read(tmp_path: Path, section: str, message: str) -> None:
    with pytest.raises(ConfigError) as failure:
        truss_options(read_truss(folder(tmp_path, section)), "sim")
    assert str(failure.value) == f"{tmp_path}/config.yaml: {message}"


def test_everything_else_wins_over_config_yaml(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "c.json5").write_text("{runtime: {max_seq_len: 5}}")
    arguments = Arguments(backend="sim", model_py=folder(tmp_path, TRT_LLM), config=(tmp_path / "c.json5",))
    settings = load_settings(arguments)
    assert settings.config.runtime.max_seq_len == 5
    assert settings.config.runtime.max_batch_size == 17
    assert settings.served_model_name == "mine"
    assert load_settings(replace(arguments, served_model_name=("x",))).served_model_name == "x"
    named = [record for record in caplog.records if "not used of" in record.getMessage()]
    assert len(named) == 2, "one line for each start"
    assert "trt_llm.runtime.total_token_limit" in named[0].getMessage()
    (tmp_path / "config.yaml").write_text("trt_llm: {build: {max_seq_len: -1}}")
    with pytest.raises(ConfigError, match=r"config\.yaml: trt_llm sets: runtime\.max_seq_len: "):
        load_settings(arguments)


def test_the_model_of_a_truss(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = "trt_llm: {build: {checkpoint_repository: {source: LOCAL, repo: weights}}}"
    arguments = Arguments(model_py=folder(tmp_path, config))
    monkeypatch.setattr("llgtrt.config.truss.demo_model", lambda: None)
    with pytest.raises(ConfigError, match="the checkpoint weights is not fetched here: name a model"):
        find_engine(arguments)
    assert find_engine(replace(arguments, backend="sim")).engine is None
    monkeypatch.setattr("llgtrt.config.truss.demo_model", lambda: tmp_path / "demo.gguf")
    assert find_engine(arguments).engine is None
    for place in ("data", ".", "weights"):
        (tmp_path / place).mkdir(exist_ok=True)
        (tmp_path / place / "m.gguf").write_bytes(b"GGUF")
        assert find_engine(arguments).engine == tmp_path / place
    assert find_engine(replace(arguments, engine=Path("x"))).engine == Path("x")


def test_the_printed_configuration_has_it(tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    assert run(["serve", str(folder(tmp_path, TRT_LLM)), "--backend", "sim", "--print-config"]) == 0
    printed = capfdbinary.readouterr().out.decode()
    config = json5.loads(printed)
    assert config["runtime"]["max_seq_len"] == 1000
    assert config["server"]["served_model_name"] == "mine"
