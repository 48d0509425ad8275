"""From a file to a model."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from llgtrt.config import ConfigError, Truss, read_truss
from llgtrt.truss import ModelDefinitionError, Secrets, loader
from llgtrt.truss.loader import LazyDataResolver, load_model, load_model_class, make_model


@pytest.fixture(autouse=True)
def put_back() -> Iterator[None]:
    """Loading changes the working folder, the path and the environment, as the process is the model's."""
    folder, path, environment = Path.cwd(), list(sys.path), dict(os.environ)
    yield
    os.chdir(folder)
    sys.path[:] = path
    os.environ.clear()
    os.environ.update(environment)


def truss(folder: Path, source: str, config: str = "", file: str = "model/model.py") -> Truss:
    path = folder / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(source)
    (folder / "config.yaml").write_text(config)
    return read_truss(folder)


def made(one: Truss) -> Any:
    return make_model(load_model_class(one), one, "the engine")[0]


ALL = """
class Model:
    def __init__(self, **kwargs):
        self.given = kwargs
    def predict(self, x): ...
"""


def test_a_constructor_with_kwargs_gets_everything(tmp_path: Path) -> None:
    given = made(truss(tmp_path, ALL, "secrets: {a: b}\nmodel_name: x")).given
    assert set(given) == {"config", "data_dir", "secrets", "lazy_data_resolver", "environment", "trt_llm"}
    assert given["config"]["model_name"] == "x"
    assert given["config"]["model_class_name"] == "Model"
    assert given["data_dir"] == Path("data")
    assert isinstance(given["secrets"], Secrets)
    assert given["secrets"]["a"] == "b"
    assert given["environment"] is None
    assert given["trt_llm"] == {"engine": "the engine"}
    resolver = given["lazy_data_resolver"]
    assert isinstance(resolver, LazyDataResolver)
    assert resolver.block_until_download_complete() == ""


def test_a_constructor_gets_what_it_names(tmp_path: Path) -> None:
    source = ALL.replace("**kwargs", "trt_llm, config=5").replace("kwargs", "[trt_llm, config]")
    assert made(truss(tmp_path, source, "a: 1")).given[0] == {"engine": "the engine"}
    model = made(truss(tmp_path, "class Model:\n    def predict(self, x): ...\n"))
    assert vars(model) == {}


def test_names_of_config_yaml(tmp_path: Path) -> None:
    config = "model_module_dir: code\nmodel_class_filename: main.py\nmodel_class_name: Mine\n"
    one = truss(tmp_path, ALL.replace("Model", "Mine"), config, "code/main.py")
    kind = load_model_class(one)
    assert (kind.__name__, kind.__module__) == ("Mine", "main"), "the module has the file's stem"


def test_code_finds_its_files_and_packages(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KEPT", "mine")
    (tmp_path / "packages" / "bundled_one").mkdir(parents=True)
    (tmp_path / "packages" / "bundled_one" / "__init__.py").write_text("A = 1")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "external_one.py").write_text("B = 2")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "x").write_text("3")
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "beside.py").write_text("D = 4")
    source = (
        "import os, pathlib, bundled_one, external_one\nfrom model.beside import D\n"
        "DATA = pathlib.Path('data/x').read_text()\n"
        + ALL.replace("kwargs\n", "[A, B, DATA, D, SET, KEPT]\n")
    ).replace("[A, B", "[bundled_one.A, external_one.B")
    source = source.replace("SET, KEPT", "os.environ['SET'], os.environ['KEPT']")
    config = "external_package_dirs: [other]\nenvironment_variables: {SET: 5, KEPT: 6}"
    assert made(truss(tmp_path, source, config)).given == [1, 2, "3", 4, "5", "mine"]


def test_a_relative_import_is_explained(tmp_path: Path) -> None:
    one = truss(tmp_path, "import os\nfrom .beside import x\n")
    with pytest.raises(ConfigError, match=r"model\.py:2: ImportError: .*write absolute ones") as failure:
        load_model_class(one)
    assert isinstance(failure.value.__cause__, ImportError)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("import nothing_like_this\n", "1: ModuleNotFoundError: No module named 'nothing_like_this'"),
        ("raise ImportError('mine')\n", "1: ImportError: mine"),
        ("x = (\n", "1: '(' was never closed"),
        ("class Other: ...\n", "1: no class Model"),
        ("Model = 5\n", "1: no class Model"),
        ("import sys\nsys.exit(3)\n", "2: SystemExit: 3"),
    ],
)
def test_what_cannot_be_loaded_is_said_with_file_and_line(tmp_path: Path, source: str, message: str) -> None:
    with pytest.raises(ConfigError) as failure:
        load_model_class(truss(tmp_path, source))
    assert str(failure.value) == f"{tmp_path}/model/model.py:{message}"


def test_a_wrong_method_is_a_model_definition_error(tmp_path: Path) -> None:
    source = "class Model:\n    def predict(self, a, b, c): ...\n"
    with pytest.raises(ConfigError, match="`predict` method cannot have more than two") as failure:
        made(truss(tmp_path, source))
    assert isinstance(failure.value.__cause__, ModelDefinitionError)


def test_setup_environment_comes_before_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = (
        "class Model:\n    def predict(self, x): ...\n    calls = []\n"
        "    def setup_environment(self, environment): self.calls.append(environment)\n"
        "    def load(self): self.calls.append('load')\n"
    )
    one = truss(tmp_path, source)
    model, definition = make_model(load_model_class(one), one, None)
    assert model.calls == [None]  # type: ignore[attr-defined]
    assert definition.load is not None
    monkeypatch.setattr(loader, "ENVIRONMENT_FILE", tmp_path / "environment")
    (tmp_path / "environment").write_text('{"name": "staging"}')
    assert made(one).calls[-1] == {"name": "staging"}
    (tmp_path / "environment").write_text("{")
    with pytest.raises(ConfigError, match="environment:1:2"):
        made(one)


def test_setup_environment_may_be_a_coroutine(tmp_path: Path) -> None:
    source = (
        "import asyncio\n"
        "class Model:\n    def predict(self, x): ...\n    calls = []\n"
        "    async def setup_environment(self, environment):\n"
        "        await asyncio.sleep(0)\n"
        "        self.calls.append(environment)\n"
    )
    assert made(truss(tmp_path, source)).calls == [None]
    with pytest.raises(ConfigError, match=r"model\.py:5: ZeroDivisionError"):
        made(
            truss(tmp_path, source.replace("await asyncio.sleep(0)", "1 / 0").replace("import asyncio\n", ""))
        )


def test_load_is_tried_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loader, "LOAD_PAUSE_S", 0.0)
    one = truss(tmp_path, ALL)
    failures = [RuntimeError("first")]
    calls: list[int] = []

    def load() -> None:
        calls.append(1)
        if failures:
            raise failures.pop()

    load_model(one, load, threading.Event())
    assert len(calls) == 2
    calls.clear()
    failures[:] = [RuntimeError("second"), RuntimeError("first")]
    with pytest.raises(ConfigError, match="RuntimeError: second"):
        load_model(one, load, threading.Event())
    assert len(calls) == 2
    assert loader.LOAD_RETRIES == 1


def test_the_pause_before_the_second_try_is_a_second() -> None:
    assert loader.LOAD_PAUSE_S == 1.0
