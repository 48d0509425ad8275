"""The ``llgtrt`` command."""

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import json5
import pytest

from llgtrt.cli import command as command_module
from llgtrt.cli.actions import unknown_variables
from llgtrt.cli.command import run
from llgtrt.config import FLAGS, Arguments, ConfigError, environment_variable

Perform = Callable[[list[str]], Arguments]


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The environment of whoever runs the tests has no say."""
    for name in FLAGS:
        monkeypatch.delenv(environment_variable(name), raising=False)


@pytest.fixture
def parse(monkeypatch: pytest.MonkeyPatch) -> Perform:
    """Runs the command line and gives what it was understood as."""

    def perform(argv: list[str]) -> Arguments:
        seen: list[Arguments] = []

        def record(arguments: Arguments) -> int:
            seen.append(arguments)
            return 0

        monkeypatch.setattr(command_module, "perform", record)
        assert run(argv) == 0
        return seen[0]

    return perform


@pytest.mark.parametrize(
    "argv",
    [
        ["m.gguf"],
        ["serve", "m.gguf"],
        ["-E", "m.gguf"],
        ["serve", "-E", "m.gguf"],
        ["m.gguf", "--engine", "m.gguf"],
    ],
)
def test_ways_to_name_the_engine(parse: Perform, argv: list[str]) -> None:
    assert parse(argv).engine == Path("m.gguf")


def test_no_engine(parse: Perform) -> None:
    assert parse([]) == Arguments()
    assert parse(["serve"]) == Arguments()


def test_every_flag(parse: Perform) -> None:
    short = (
        "-H h -p 1 -E e -T t -C a -C b -d -D -q -a m -a n -c 1 -np 2 -b 3 -ngl 4 -t 5 -tb 6"
        " --ssl-key-file sk --ssl-cert-file sc"
    )
    like_vllm = "--model e --max-model-len 1 --max-num-seqs 2 --max-num-batched-tokens 3 --alias m --alias n"
    like_llama_server = "-m e --ctx-size 1 --parallel 2 --batch-size 3 --n-gpu-layers 4 --threads-batch 6"
    long = (
        "--host h --port 1 --engine e --tokenizer t --config a --config b --debug --debug-llg --quiet"
        " --backend sim --served-model-name m --api-key k --chat-template c --lora-root l"
        " --api-key l --api-key-file kf --ssl-keyfile sk --ssl-certfile sc --ssl-ca-certs ca --root-path /r"
        " --served-model-name n --max-seq-len 1 --max-batch-size 2 --max-num-tokens 3 --gpu-layers 4"
        " --threads 5 --batch-threads 6 --set a.b=1 --set c.d=[1,2]"
        " --print-config --print-complete-config --print-chat-template --test-py"
    )
    expected = Arguments(
        host="h",
        port=1,
        engine=Path("e"),
        tokenizer=Path("t"),
        config=(Path("a"), Path("b")),
        debug=True,
        debug_llg=True,
        quiet=True,
        served_model_name=("m", "n"),
        ssl_keyfile=Path("sk"),
        ssl_certfile=Path("sc"),
        max_seq_len=1,
        max_batch_size=2,
        max_num_tokens=3,
        gpu_layers=4,
        threads=5,
        batch_threads=6,
    )
    assert parse(short.split()) == expected
    known = Arguments(engine=Path("e"), max_seq_len=1, max_batch_size=2, max_num_tokens=3)
    assert parse(like_vllm.split()) == replace(known, served_model_name=("m", "n"))
    assert parse(like_llama_server.split()) == replace(known, gpu_layers=4, batch_threads=6)
    everything = parse(long.split())
    assert everything == Arguments(
        host="h",
        port=1,
        engine=Path("e"),
        tokenizer=Path("t"),
        config=(Path("a"), Path("b")),
        debug=True,
        debug_llg=True,
        quiet=True,
        backend="sim",
        served_model_name=("m", "n"),
        api_key=("k", "l"),
        api_key_file=Path("kf"),
        ssl_keyfile=Path("sk"),
        ssl_certfile=Path("sc"),
        ssl_ca_certs=Path("ca"),
        root_path="/r",
        max_seq_len=1,
        max_batch_size=2,
        max_num_tokens=3,
        gpu_layers=4,
        threads=5,
        batch_threads=6,
        set=("a.b=1", "c.d=[1,2]"),
        chat_template=Path("c"),
        lora_root=Path("l"),
        print_config=True,
        print_complete_config=True,
        print_chat_template=True,
        test_py=True,
    )


def test_every_flag_has_a_variable_and_the_command_line_wins(
    parse: Perform, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {
        "text": "x",
        "texts": "one, two\n\n  server.host='a b'\n",
        "number": "1",
        "path": "x",
        "port": "1",
        "paths": "a:b",
        "choice": "sim",
        "switch": "1",
    }
    for name, flag in FLAGS.items():
        monkeypatch.setenv(environment_variable(name), values[flag.kind])
    arguments = parse([])
    assert all(getattr(arguments, name) != getattr(Arguments(), name) for name in FLAGS)
    assert (arguments.config, arguments.port) == ((Path("a"), Path("b")), 1)
    assert arguments.set == arguments.api_key == ("one, two", "server.host='a b'")
    assert parse(["-p", "2"]).port == 2
    assert parse(["--api-key", "x"]).api_key == ("x",)
    assert parse(["other"]).engine == Path("other")


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--prot", "1"], "--port"),
        (["-p", "http"], "'http' is not a valid integer"),
        (["-p", "65536"], "65536"),
        (["--backend", "vllm"], "'vllm' is not one of"),
        (["a", "b"], "one ENGINE at most, got 2: a, b"),
        (["serve", "a", "b"], "one ENGINE at most"),
        (["a", "-E", "b"], "two engines given: a and --engine b"),
        (["-C"], "requires an argument"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(
    argv: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("llgtrt: error: ")
    assert words in captured.err
    assert captured.err.count("\n") == 1


def test_a_failed_start_is_one_line_and_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run(["-q", str(tmp_path / "missing.gguf")]) == 1
    assert capsys.readouterr().err == f"llgtrt: error: {tmp_path}/missing.gguf: no such file or folder\n"

    def fail(_: Arguments) -> int:
        raise ConfigError("two\nlines")

    monkeypatch.setattr(command_module, "perform", fail)
    assert run([]) == 1
    assert capsys.readouterr().err == "llgtrt: error: two lines\n"


@pytest.mark.parametrize("argv", [["-hf", "owner/name"], ["--hf-repo=owner/name"], ["serve", "-hf", "a/b"]])
def test_an_option_to_download_a_model_is_answered_with_how_to_get_one(
    argv: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(argv) == 2
    assert "hf download" in capsys.readouterr().err


def test_the_exit_code_of_the_server_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command_module, "perform", lambda _: 3)
    assert run([]) == 3


def test_printing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "tokenizer_config.json").write_text('{"bos_token": "<s>", "chat_template": "T\\n"}')
    (tmp_path / "llgtrt.json5").write_text("{runtime: {max_batch_size: 4}}")
    folder = str(tmp_path)

    assert run([folder, "--print-config", "-p", "8080", "--api-key", "secret"]) == 0
    printed = json5.loads(out := capsys.readouterr().out)
    assert printed["runtime"] == {"max_batch_size": 4}
    assert printed["server"] == {"port": 8080}, "a key does not belong in a file"
    assert printed["tokenizer"] == {}

    (tmp_path / "again.json5").write_text(out)
    assert run([folder, "-C", str(tmp_path / "again.json5"), "--print-config"]) == 0
    assert capsys.readouterr().out == out

    assert run([folder, "--print-complete-config"]) == 0
    assert json5.loads(capsys.readouterr().out)["tokenizer"] == {"bos_token": "<s>", "chat_template": "T\n"}

    assert run([folder, "--print-chat-template"]) == 0
    assert capsys.readouterr().out == "T\n"


def test_test_py_needs_an_input_processor(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--backend", "sim", "--test-py"]) == 1
    assert "no input processor" in capsys.readouterr().err


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_the_module_is_the_command() -> None:
    process = python("-m", "llgtrt", "--help")
    assert process.returncode == 0
    assert process.stdout.startswith("Usage: llgtrt ")
    assert all(flag.names[-1] in process.stdout for flag in FLAGS.values())
    assert python("-m", "llgtrt", "--version").stdout.startswith("llgtrt ")


def test_the_command_starts_without_the_server_and_the_core() -> None:
    process = python(
        "-c",
        "import sys, llgtrt.cli;"
        "heavy = ('fastapi', 'jinja2', 'uvicorn', 'llgtrt.app', 'llgtrt._native');"
        "print([name for name in heavy if name in sys.modules])",
    )
    assert process.stdout == "[]\n"


def test_a_port_of_kubernetes_is_not_ours(parse: Perform, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLGTRT_PORT", "tcp://10.0.0.1:80")
    assert parse([]).port is None
    assert parse(["-p", "5"]).port == 5
    monkeypatch.setenv("LLGTRT_PORT", "6")
    assert parse([]).port == 6


def test_misspelt_variables_are_named() -> None:
    environment = {
        "LLGTRT_HOST": "h",
        "LLGTRT_HOTS": "h",
        "LLGTRT_SERVICE_HOST": "10.0.0.1",
        "LLGTRT_SERVICE_PORT_HTTP": "80",
        "LLGTRT_PORT_80_TCP_ADDR": "10.0.0.1",
        "LLGTRT_TRTLLM_PLUGIN": "x",
        "OTHER": "x",
    }
    assert unknown_variables(environment) == ["LLGTRT_HOTS"]


def test_a_full_disk_is_one_line() -> None:
    with Path("/dev/full").open("wb") as full:
        process = subprocess.run(
            [sys.executable, "-m", "llgtrt", "--backend", "sim", "--print-config"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert process.returncode == 1
    assert process.stderr == "llgtrt: error: standard output: No space left on device\n"


def test_an_empty_folder_has_no_schemas(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert run(["check-schema", str(tmp_path)]) == 2
    assert ".jsonl" in capfd.readouterr().err
