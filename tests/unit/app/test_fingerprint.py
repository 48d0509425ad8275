"""What changes the fingerprint, and what does not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from llgtrt.app import fingerprint
from llgtrt.app.fingerprint import BLOCK_BYTES, BLOCKS, system_fingerprint
from llgtrt.config import Config, Settings
from llgtrt.config.generation import SamplingDefaults
from llgtrt.engine import ModelInfo
from llgtrt.serving import TokenLimits
from support.fake_engine import MODEL_INFO


def of(
    model: Path | None = None,
    template: str = "{{ messages }}",
    defaults: SamplingDefaults = SamplingDefaults(),  # noqa: B008
    limits: TokenLimits = TokenLimits(4),  # noqa: B008
    info: dict[str, Any] | None = None,
    **sections: Any,
) -> str:
    settings = Settings(config=Config.model_validate(sections), model_path=model, backend="llamacpp")
    return system_fingerprint(
        settings, ModelInfo.parse(json.dumps({**MODEL_INFO, **(info or {})})), template, defaults, limits
    )


@pytest.mark.parametrize(
    "changed",
    [
        {"template": "{{ messages }} "},
        {"defaults": SamplingDefaults(temperature=0.5)},
        {"limits": TokenLimits(4, default_max_tokens=7)},
        {"info": {"backend": "other"}},
        {"info": {"max_sequence_tokens": 1001}},
        {"info": {"metadata": {"general.name": "x"}}},
        {"runtime": {"seed": 5}},
        {"llamacpp": {"flash_attention": "off"}},
        {"llguidance": {"whitespace_flexible": False}},
        {"tools": {"parser": "json"}},
    ],
    ids=str,
)
def test_what_answers_depend_on_changes_it(changed: dict[str, Any]) -> None:
    assert of(**changed) != of()
    assert of(**changed) == of(**changed)


def test_what_they_do_not_depend_on_leaves_it() -> None:
    assert of(server={"port": 4000}, sim={"step_us": 5}, limits=TokenLimits(9)) == of()


def test_another_version_is_another(monkeypatch: pytest.MonkeyPatch) -> None:
    before = of()
    monkeypatch.setattr(fingerprint, "__version__", "0.0.0")
    assert of() != before


def test_a_model_is_its_files_wherever_they_are(tmp_path: Path) -> None:
    size = BLOCKS * BLOCK_BYTES * 3
    content = bytes(number % 251 for number in range(size))

    def model(folder: str, content: bytes) -> Path:
        path = tmp_path / folder / "model.gguf"
        path.parent.mkdir()
        path.write_bytes(content)
        return path

    one = of(model("one", content))
    assert of(model("copy", content)) == one
    assert of(model("longer", content + b"x")) != one
    assert of(model("other", bytes(len(content)))) != one
    # The last block, where a file differs in its end alone.
    assert of(model("end", content[:-1] + b"\xff")) != one
    assert of(model("short", b"x")) != of(model("short2", b"y"))
    assert of() != one


def test_all_shards_of_a_model_count(tmp_path: Path) -> None:
    first = tmp_path / "m-00001-of-00002.gguf"
    first.write_bytes(b"first")
    second = tmp_path / "m-00002-of-00002.gguf"
    second.write_bytes(b"second")
    (tmp_path / "n-00002-of-00002.gguf").write_bytes(b"of another model")
    before = of(first)
    (tmp_path / "n-00002-of-00002.gguf").unlink()
    assert of(first) == before
    second.write_bytes(b"changed")
    assert of(first) != before


def test_the_files_of_a_folder_count_by_their_names(tmp_path: Path) -> None:
    folder = tmp_path / "engine"
    (folder / "tables").mkdir(parents=True)
    (folder / "config.json").write_text("{}")
    before = of(folder)
    (folder / "tables" / "more").write_text("x")
    more = of(folder)
    assert more != before
    (folder / "tables" / "more").rename(folder / "more")
    assert of(folder) not in (before, more)
