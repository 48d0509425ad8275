"""What wins over what, and what crosses to Rust."""

import json
from pathlib import Path
from typing import Any

import pytest

from llgtrt.config import Arguments, Config, ConfigError, Settings, load_settings, native_config

CONFIGS = Path(__file__).parents[3] / "configs"


def write(path: Path, content: Any) -> Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    """A folder with a file that looks like a model."""
    folder = tmp_path / "engine"
    folder.mkdir()
    (folder / "model.gguf").write_bytes(b"GGUF" + bytes(20))
    return folder


def test_defaults() -> None:
    settings = load_settings(Arguments(backend="sim"))
    server = settings.config.server
    assert (server.host, server.port, server.api_key) == ("0.0.0.0", 3000, None)
    assert settings.served_model_name == "sim"
    assert settings.config == Config()


def test_the_command_line_wins_over_files(engine: Path, tmp_path: Path) -> None:
    file = write(tmp_path / "a.json5", {"server": {"port": 1, "host": "h", "api_key": "k", "max_n": 5}})
    settings = load_settings(Arguments(engine=engine, config=(file,), port=2, served_model_name=("m",)))
    server = settings.config.server
    assert (server.port, server.host, server.api_key) == (2, "h", "k")
    assert settings.served_model_name == "m"
    assert settings.config.server.max_n == 5


def test_later_files_win(engine: Path, tmp_path: Path) -> None:
    first = write(tmp_path / "a.json5", {"runtime": {"max_batch_size": 1, "max_seq_len": 10}})
    second = write(tmp_path / "b.json5", {"runtime": {"max_batch_size": 2}})
    runtime = load_settings(Arguments(engine=engine, config=(first, second))).config.runtime
    assert (runtime.max_batch_size, runtime.max_seq_len) == (2, 10)


def test_the_default_file_lies_beside_the_model(engine: Path, tmp_path: Path) -> None:
    default = write(engine / "llgtrt.json5", {"runtime": {"max_batch_size": 7}})
    for path in (engine, engine / "model.gguf"):
        settings = load_settings(Arguments(engine=path))
        assert settings.config.runtime.max_batch_size == 7
        assert settings.config_files == (default,)
        assert settings.served_model_name == "model"
    other = write(tmp_path / "other.json5", {})
    assert load_settings(Arguments(engine=engine, config=(other,))).config.runtime.max_batch_size is None


def test_tokenizer_config_gives_the_defaults(engine: Path, tmp_path: Path) -> None:
    write(engine / "tokenizer_config.json", {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "x": 1})
    tokenizer = load_settings(Arguments(engine=engine)).config.tokenizer
    assert (tokenizer.bos_token, tokenizer.eos_token) == ("<s>", "</s>")
    file = write(tmp_path / "a.json5", "{tokenizer: {bos_token: null}}")
    tokenizer = load_settings(Arguments(engine=engine, config=(file,))).config.tokenizer
    assert (tokenizer.bos_token, tokenizer.eos_token) == (None, "</s>")


def test_chat_template_sources_in_their_order(engine: Path, tmp_path: Path) -> None:
    arguments = Arguments(engine=engine)
    assert load_settings(arguments).chat_template is None
    write(engine / "tokenizer_config.json", {"chat_template": "tokenizer"})
    assert load_settings(arguments).chat_template == "tokenizer"
    write(engine / "chat_template.jinja", "jinja")
    assert load_settings(arguments).chat_template == "jinja"
    write(engine / "chat_template.j2", "j2")
    assert load_settings(arguments).chat_template == "j2"
    write(engine / "llgtrt.json5", {"tokenizer": {"chat_template": "config"}})
    assert load_settings(arguments).chat_template == "config"
    flag = write(tmp_path / "flag.j2", "flag")
    settings = load_settings(Arguments(engine=engine, chat_template=flag))
    assert (settings.chat_template, settings.chat_template_source) == ("flag", str(flag))


def test_the_tokenizer_folder(engine: Path, tmp_path: Path) -> None:
    write(engine / "tokenizer.json", "{}")
    # The tokenizer inside a GGUF file is the one that fits it.
    assert load_settings(Arguments(engine=engine)).tokenizer_path is None
    assert load_settings(Arguments(engine=engine, backend="sim")).tokenizer_path == engine / "tokenizer.json"
    given = load_settings(Arguments(engine=engine, tokenizer=engine))
    assert given.tokenizer_path == engine / "tokenizer.json"
    with pytest.raises(ConfigError, match=r"holds no tokenizer\.json"):
        load_settings(Arguments(engine=engine, tokenizer=tmp_path))


def test_missing_files_are_errors(engine: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="No such file"):
        load_settings(Arguments(engine=engine, config=(tmp_path / "missing.json5",)))
    with pytest.raises(ConfigError, match="No such file"):
        load_settings(Arguments(engine=engine, chat_template=tmp_path / "missing.j2"))


def test_log_level() -> None:
    assert load_settings(Arguments(backend="sim")).log_level == "info"
    assert load_settings(Arguments(backend="sim", debug=True)).log_level == "debug"
    assert load_settings(Arguments(backend="sim", quiet=True)).log_level == "warning"
    assert load_settings(Arguments(backend="sim", debug_llg=True)).config.llguidance.log_level == 2


def test_log_levels_of_parts_stay_beside_the_flags(tmp_path: Path) -> None:
    file = write(tmp_path / "a.json5", {"server": {"log_level": "error,llgtrt.core.grammar=debug"}})
    levels = {
        name: load_settings(
            Arguments(backend="sim", config=(file,), debug=name == "-d", quiet=name == "-q")
        ).log_level
        for name in ("", "-d", "-q")
    }
    assert levels == {
        "": "error,llgtrt.core.grammar=debug",
        "-d": "debug,llgtrt.core.grammar=debug",
        "-q": "warning,llgtrt.core.grammar=debug",
    }
    wrong = write(tmp_path / "b.json5", {"server": {"log_level": "loud"}})
    with pytest.raises(ConfigError, match=r"server\.log_level.*'loud' is no level"):
        load_settings(Arguments(backend="sim", config=(wrong,)))


def test_the_key_is_in_no_representation() -> None:
    assert "secret" not in repr(load_settings(Arguments(backend="sim", api_key=("secret",))))


def test_native_config_has_exactly_what_rust_reads(
    engine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.delenv("LLGTRT_TRTLLM_PLUGIN", raising=False)
    native = json.loads(native_config(load_settings(Arguments(engine=engine))))
    config = Config()
    assert native == {
        "backend": "llamacpp",
        "model_path": str(engine / "model.gguf"),
        "tokenizer_path": None,
        "runtime": config.runtime.model_dump(),
        "tokenizer": {"n_vocab_override": None, "bos_token": None, "eos_token": None, "add_bos_token": None},
        "llguidance": config.llguidance.model_dump(),
        "llamacpp": config.llamacpp.model_dump(),
        "sim": config.sim.model_dump(),
        "embedding": config.embedding.model_dump(),
        "trtllm": config.trtllm.model_dump(),
        "lora_root": None,
    }


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ({}, None),
        ({"bos_token": "<s>"}, None),
        ({"bos_token": None}, False),
        ({"bos_token": None, "add_bos_token": True}, True),
    ],
)
def test_a_token_set_to_null_is_not_added(section: dict[str, Any], expected: bool | None) -> None:
    settings = Settings(config=Config.model_validate({"tokenizer": section}))
    assert json.loads(native_config(settings))["tokenizer"]["add_bos_token"] is expected


@pytest.mark.parametrize("folder", sorted(path.name for path in CONFIGS.iterdir()))
def test_the_configurations_of_model_families_load(folder: str, engine: Path) -> None:
    template = CONFIGS / folder / "chat_template.j2"
    settings = load_settings(
        Arguments(
            engine=engine,
            config=(CONFIGS / folder / "llgtrt.json5",),
            chat_template=template if template.exists() else None,
        )
    )
    assert settings.config.tokenizer.model_fields_set


def test_phi_3(engine: Path) -> None:
    write(engine / "tokenizer_config.json", {"bos_token": "<s>"})
    settings = load_settings(Arguments(engine=engine, config=(CONFIGS / "phi-3" / "llgtrt.json5",)))
    tokenizer = json.loads(native_config(settings))["tokenizer"]
    assert tokenizer == {
        "n_vocab_override": 32064,
        "bos_token": None,
        "eos_token": None,
        "add_bos_token": False,
    }


STRAY = {
    "chat_template.j2": "j2",
    "chat_template.jinja": "jinja",
    "tokenizer_config.json": '{"chat_template": "tokenizer", "bos_token": "<s>"}',
    "input_processor.py": "raise SystemExit",
}


def test_what_lies_beside_a_model_file_is_not_read_and_not_run(
    engine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for name, text in STRAY.items():
        write(engine / name, text)
    settings = load_settings(Arguments(engine=engine / "model.gguf"))
    assert settings.chat_template is None
    assert settings.input_processor is None
    assert settings.config.tokenizer.bos_token is None
    assert all(str(engine / name) in caplog.text for name in STRAY)
    # The folder was named: its files are meant.
    settings = load_settings(Arguments(engine=engine))
    assert (settings.chat_template, settings.input_processor) == ("j2", engine / "input_processor.py")
    assert settings.config.tokenizer.bos_token == "<s>"


def test_a_configuration_that_nobody_named_cannot_name_code(engine: Path) -> None:
    write(engine / "input_processor.py", "")
    file = write(engine / "llgtrt.json5", {"py": {"input_processor": "input_processor.py"}})
    with pytest.raises(ConfigError, match=r"llgtrt\.json5: py\.input_processor"):
        load_settings(Arguments(engine=engine / "model.gguf"))
    for arguments in (Arguments(engine=engine), Arguments(engine=engine / "model.gguf", config=(file,))):
        assert load_settings(arguments).input_processor == engine / "input_processor.py"


def test_a_configuration_that_nobody_named_cannot_name_a_hook(engine: Path) -> None:
    write(engine / "llgtrt.json5", {"py": {"hooks": "hook.py:Hook"}})
    with pytest.raises(ConfigError, match=r"llgtrt\.json5: py\.hooks: what it names would be run"):
        load_settings(Arguments(engine=engine / "model.gguf"))
    assert load_settings(Arguments(engine=engine)).config.py.hooks == f"{engine}/hook.py:Hook"


def test_empty_files_that_nobody_named_are_absent(engine: Path, tmp_path: Path) -> None:
    write(engine / "llgtrt.json5", "")
    write(engine / "chat_template.j2", "\n")
    write(engine / "chat_template.jinja", "")
    settings = load_settings(Arguments(engine=engine))
    assert (settings.config_files, settings.chat_template) == ((), None)
    for arguments in (
        Arguments(engine=engine, config=(engine / "llgtrt.json5",)),
        Arguments(engine=engine, chat_template=engine / "chat_template.j2"),
    ):
        with pytest.raises(ConfigError, match="is empty"):
            load_settings(arguments)


def test_the_template_beside_a_named_configuration_is_found(engine: Path, tmp_path: Path) -> None:
    write(engine / "chat_template.j2", "engine")
    family = tmp_path / "family"
    family.mkdir()
    write(family / "chat_template.j2", "family")
    file = write(family / "llgtrt.json5", {})
    settings = load_settings(Arguments(engine=engine, config=(file,)))
    assert (settings.chat_template, settings.chat_template_source) == (
        "family",
        str(family / "chat_template.j2"),
    )


def test_relative_paths_count_from_the_file(engine: Path, tmp_path: Path) -> None:
    content = {
        "server": {"uds": "run/llgtrt.sock"},
        "trtllm": {"plugin_path": "../plugin.so", "encoder_dir": "/encoder"},
    }
    config = load_settings(Arguments(engine=engine, config=(write(tmp_path / "a.json5", content),))).config
    assert config.server.uds == str(tmp_path / "run/llgtrt.sock")
    assert config.trtllm.plugin_path == str(tmp_path.parent / "plugin.so")
    assert config.trtllm.encoder_dir == "/encoder"


def test_options_that_a_gguf_model_overrules_are_named(
    engine: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(engine / "llgtrt.json5", {"tokenizer": {"eos_token": "nonesuch", "n_vocab_override": 5}})
    load_settings(Arguments(engine=engine))
    assert "tokenizer.eos_token has no effect" in caplog.text
    assert "tokenizer.n_vocab_override has no effect" in caplog.text
