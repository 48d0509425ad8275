"""The command lines for TensorRT-LLM that we print or document, against what its tools take."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

PLACES = (
    "docs/trtllm.md",
    "rust/llgtrt-engine-trtllm/README.md",
    "rust/llgtrt-engine-trtllm/src/admission.rs",
    "rust/llgtrt-engine-trtllm/src/check.rs",
    "python/llgtrt/cli/health/trtllm.py",
    "docker/examples/slurm.sbatch",
)

TYPES = {"auto", "float16", "float32", "bfloat16", "int32", "disable"}
SWITCH = {"enable", "disable"}
TRTLLM_BUILD: dict[str, set[str] | None] = {
    "--checkpoint_dir": None,
    "--output_dir": None,
    "--max_batch_size": None,
    "--max_num_tokens": None,
    "--max_seq_len": None,
    "--max_input_len": None,
    "--max_prompt_embedding_table_size": None,
    "--kv_cache_type": {"continuous", "paged", "disabled"},
    "--logits_dtype": {"float16", "float32"},
    "--gather_context_logits": set(),
    "--lora_plugin": TYPES,
    "--lora_target_modules": None,
    "--max_lora_rank": None,
    "--speculative_decoding_mode": {
        "draft_tokens_external",
        "lookahead_decoding",
        "medusa",
        "explicit_draft_tokens",
        "eagle",
    },
    "--gemm_plugin": TYPES | {"fp8", "nvfp4"},
    "--use_paged_context_fmha": SWITCH,
}
"""Flags of trtllm-build that we name, each with the values that it takes; ``None``: any.

From ``commands/build.py`` and ``plugin/plugin.py`` of TensorRT-LLM 1.1 to 1.2."""


def text_of(place: str) -> str:
    """A file with continued lines made one, as a shell or Rust reads them."""
    return re.sub(r"\\\n\s*", " ", (ROOT / place).read_text())


def build_lines() -> list[list[str]]:
    """The documented calls of trtllm-build, as words."""
    lines = (line.split() for line in text_of("docs/trtllm.md").splitlines())
    return [words for words in lines if words[:1] == ["trtllm-build"]]


def test_whole_command_lines_are_understood() -> None:
    lines = build_lines()
    assert len(lines) >= 2
    for words in lines:
        for flag, value in zip(words[1:], [*words[2:], ""], strict=True):
            if flag.startswith("--"):
                takes = TRTLLM_BUILD[flag]
                assert takes is None or value in takes, f"{flag} {value}"


@pytest.mark.parametrize("place", PLACES)
def test_values_are_those_that_the_tool_takes(place: str) -> None:
    """Sentences as well: what an error message advises is typed by somebody."""
    text = text_of(place)
    for flag, takes in TRTLLM_BUILD.items():
        if takes is not None:
            named = set(re.findall(rf"{flag} ([a-z_0-9]+)`", text))
            assert named <= takes, f"{flag} {named - takes}"
    for sentence in re.findall(r"--logits_dtype [^\n;]*", text):
        assert set(re.findall(r"b?float\d+", sentence)) <= {"float16", "float32"}, sentence


def test_the_documented_engine_starts_on_a_small_gpu() -> None:
    """Built for a model's whole context, it would be refused where one such sequence does not fit."""
    whole = [words for words in build_lines() if "--checkpoint_dir" in words]
    assert whole
    assert all("--max_seq_len" in words for words in whole)


@pytest.mark.parametrize("place", PLACES)
def test_mpirun_binds_no_process_to_a_core(place: str) -> None:
    calls = re.findall(r"mpirun -n [^`]{0,40}", text_of(place))
    assert all("--bind-to none" in call for call in calls), calls
