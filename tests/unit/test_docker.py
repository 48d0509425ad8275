"""The scripts of docker/, with a docker that only writes down what it was asked for."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from support.server import wait_until

DOCKER = Path(__file__).parents[2] / "docker"
OPTIONS = ["--rm", "--init", "--interactive"]
GPUS = ["--gpus", "all", "--ipc=host", "--ulimit", "memlock=-1", "--ulimit", "stack=67108864"]
COMMON = [*OPTIONS, *GPUS]
IMAGE = "llgtrt/llgtrt:latest"

RunScript = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> RunScript:
    """Runs a script with commands on PATH that write their arguments down and say ``{config: 1}``."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("docker", "mpirun", "llgtrt", "srun", "scontrol"):
        command = bin_folder / name
        command.write_text(
            f'#!/bin/sh\nprintf "%s\\0" {name} "$@" > "{tmp_path}/called"\necho "{{config: 1}}"\n'
        )
        command.chmod(0o755)

    def run(script: str, *arguments: str, **variables: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [str(DOCKER / script), *arguments],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env={"PATH": f"{bin_folder}:{os.environ['PATH']}", **variables},
            cwd=tmp_path,
            check=False,
        )

    return run


@pytest.fixture
def called(tmp_path: Path) -> Callable[[], list[str]]:
    """What the last command was asked for; empty if none was called."""

    def read() -> list[str]:
        file = tmp_path / "called"
        return file.read_text().split("\0")[:-1] if file.exists() else []

    return read


@pytest.fixture
def engine(tmp_path: Path) -> Path:
    folder = tmp_path / "my engine's"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "rank0.engine").write_text("")
    return folder


def test_an_engine_is_served(run: RunScript, called: Callable[[], list[str]], engine: Path) -> None:
    process = run("run.sh", str(engine), PORT="3001")
    assert process.returncode == 0, process.stderr
    expected = [
        "docker",
        "run",
        *COMMON,
        "--mount",
        f"type=bind,source={engine},target=/engine,readonly",
        "--publish",
        "3001:3001",
        IMAGE,
        "/engine",
        "--port",
        "3001",
    ]
    assert called() == expected
    # The line on standard error is the command, ready for a shell.
    assert shlex.split(process.stderr) == expected
    assert process.stderr.count("\n") == 1


def test_flags_are_passed_on_and_output_stays_clean(
    run: RunScript, called: Callable[[], list[str]], engine: Path
) -> None:
    process = run("run.sh", engine.name, "--print-config", "-C", "/engine/my file.json5")
    assert process.stdout == "{config: 1}\n"
    assert called()[-6:] == ["/engine", "--port", "3000", "--print-config", "-C", "/engine/my file.json5"]
    assert f"type=bind,source={engine},target=/engine,readonly" in called(), (
        "a relative path becomes absolute"
    )
    assert "--tty" not in called()


def test_adapters_are_mounted(
    run: RunScript, called: Callable[[], list[str]], engine: Path, tmp_path: Path
) -> None:
    lora = tmp_path / 'a, "b" c'
    lora.mkdir()
    assert run("run.sh", str(engine), str(lora), "--debug").returncode == 0
    quoted = f'"source={lora}"'.replace('"b"', '""b""')
    assert f"type=bind,{quoted},target=/lora,readonly" in called()
    assert called()[-6:] == ["/engine", "--port", "3000", "--lora-root", "/lora", "--debug"]


def test_the_key_is_handed_on_unseen(run: RunScript, called: Callable[[], list[str]], engine: Path) -> None:
    process = run("run.sh", str(engine), LLGTRT_API_KEY="secret", GPUS="device=1", IMAGE="mine:1")
    assert "secret" not in process.stderr
    arguments = called()
    assert arguments[arguments.index("--env") + 1] == "LLGTRT_API_KEY"
    assert arguments[arguments.index("--gpus") + 1] == "device=1"
    assert "mine:1" in arguments


def test_a_gguf_file_is_served_without_a_gpu(
    run: RunScript, called: Callable[[], list[str]], tmp_path: Path
) -> None:
    folder = tmp_path / "models, [all]"
    folder.mkdir()
    (folder / "a.gguf").write_text("")
    (tmp_path / "link.gguf").symlink_to(folder / "a.gguf")
    source = f'"source={folder}"'
    for argument, mount, served in (
        ("models, [all]/a.gguf", f"type=bind,{source},target=/models,readonly", "/models/a.gguf"),
        ("models, [all]", f"type=bind,{source},target=/models,readonly", "/models"),
        (
            "link.gguf",
            f'type=bind,"source={folder}/a.gguf",target=/models/link.gguf,readonly',
            "/models/link.gguf",
        ),
    ):
        process = run("run.sh", argument, "--debug", PORT="3001")
        assert process.returncode == 0, process.stderr
        ends = ["--publish", "3001:3001", "llgtrt/llgtrt:cpu", served, "--port", "3001", "--debug"]
        assert called() == ["docker", "run", *OPTIONS, "--mount", mount, *ends]
    assert run("run.sh", "link.gguf", GPUS="all", IMAGE="llgtrt/llgtrt:cuda").returncode == 0
    assert called()[: 2 + len(COMMON)] == ["docker", "run", *COMMON]
    assert "llgtrt/llgtrt:cuda" in called()


@pytest.mark.parametrize(
    ("arguments", "variables", "message"),
    [
        (("gone.gguf",), {}, "Error: gone.gguf: no such file"),
        ((), {}, "Usage: "),
        (("nowhere",), {}, "Error: nowhere: no such folder"),
        (("empty",), {}, "Error: empty/config.json not found"),
        (("my engine's", "nowhere"), {}, "Error: nowhere: no such folder (LORA_DIR)"),
        (("my engine's",), {"PORT": "http"}, "Error: PORT is not a port: http"),
        (("my engine's",), {"PORT": "65536"}, "Error: PORT is not a port: 65536"),
    ],
)
def test_what_cannot_be_served(
    run: RunScript,
    called: Callable[[], list[str]],
    engine: Path,
    arguments: tuple[str, ...],
    variables: dict[str, str],
    message: str,
) -> None:
    engine.with_name("empty").mkdir()
    process = run("run.sh", *arguments, **variables)
    assert process.returncode == 1
    assert process.stderr.startswith(message)
    assert (process.stdout, called()) == ("", [])


def test_a_shell(run: RunScript, called: Callable[[], list[str]]) -> None:
    assert run("bash.sh", "--volume", "/my models:/models").returncode == 0
    arguments = called()
    assert arguments[: 2 + len(COMMON)] == ["docker", "run", *COMMON]
    assert arguments[-6:] == ["--entrypoint", "/bin/bash", "--volume", "/my models:/models", IMAGE, "--login"]
    assert f"{os.getuid()}:{os.getgid()}" in arguments
    # The image does not know the user, and PyTorch asks for a name.
    assert [one.split("=")[0] for one in arguments if one.startswith(("USER=", "LOGNAME="))] == [
        "USER",
        "LOGNAME",
    ]


def test_a_user_whom_nobody_knows_gets_a_name(
    run: RunScript, called: Callable[[], list[str]], tmp_path: Path
) -> None:
    """`id -un` fails for one, as for a number that a cluster's directory does not list."""
    unknown = tmp_path / "bin" / "id"
    unknown.write_text('#!/bin/sh\n[ "$1" = -un ] && exit 1\necho 12345\n')
    unknown.chmod(0o755)
    process = run("bash.sh")
    assert process.returncode == 0, process.stderr
    assert {"USER=user", "LOGNAME=user", "12345:12345"} <= set(called())


def test_the_image_is_built(run: RunScript, called: Callable[[], list[str]]) -> None:
    root = str(DOCKER.parent)
    assert run("build.sh").returncode == 0
    assert called() == ["docker", "build", "--tag", IMAGE, "--file", f"{root}/docker/Dockerfile", root]
    assert (
        run("build.sh", "--trtllm", "my/base:1", "--architectures", "90;100", "--", "--no-cache").returncode
        == 0
    )
    assert called()[2:7] == [
        "--build-arg",
        "BASE_IMAGE=my/base:1",
        "--build-arg",
        "GPU_ARCHITECTURES=90;100",
        "--no-cache",
    ]


@pytest.mark.parametrize("arguments", [["--trtllm"], ["--trtllm", "--dev"], ["--what"]])
def test_wrong_options_of_build(
    run: RunScript, called: Callable[[], list[str]], arguments: list[str]
) -> None:
    process = run("build.sh", *arguments)
    assert process.returncode == 1
    assert process.stderr.startswith("Error: ")
    assert called() == []


@pytest.mark.parametrize(
    ("ranks", "flags", "variables", "expected"),
    [
        (1, ["-p", "1"], {}, ["llgtrt", "serve"]),
        (3, ["-p", "1"], {}, ["mpirun", "-n", "3", "--bind-to", "none"]),
        (3, ["--print-config"], {}, ["llgtrt", "serve"]),
        (3, [], {"OMPI_COMM_WORLD_RANK": "0"}, ["llgtrt", "serve"]),
        (3, [], {"SLURM_PROCID": "2", "SLURM_STEP_NUM_TASKS": "3"}, ["llgtrt", "serve"]),
        (3, [], {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"}, ["mpirun", "-n", "3"]),
        (0, ["-q"], {}, ["llgtrt", "serve"]),
    ],
)
def test_one_process_for_each_rank(
    run: RunScript,
    called: Callable[[], list[str]],
    tmp_path: Path,
    ranks: int,
    flags: list[str],
    variables: dict[str, str],
    expected: list[str],
) -> None:
    folder = tmp_path / "an engine"
    folder.mkdir()
    for rank in range(ranks):
        (folder / f"rank{rank}.engine").touch()
    assert run("launch.sh", str(folder), *flags, **variables).returncode == 0
    assert called()[: len(expected)] == expected
    assert called()[-2 - len(flags) :] == ["serve", str(folder), *flags]


def test_the_example_for_slurm(run: RunScript, called: Callable[[], list[str]]) -> None:
    process = run(
        "../docker/examples/slurm.sbatch", ENGINE="/shared/engine", IMAGE="i.sqsh", SLURM_JOB_NODELIST="n"
    )
    assert process.returncode == 0, process.stderr
    assert called()[0] == "srun"
    assert called()[-5:] == ["llgtrt", "serve", "/engine", "--port", "3000"]
    assert "--container-mounts=/shared/engine:/engine:ro" in called()
    assert run("../docker/examples/slurm.sbatch", IMAGE="i.sqsh").returncode != 0, "there is no engine"


def test_the_example_for_compose_gives_what_run_gives() -> None:
    example = yaml.safe_load((DOCKER / "examples" / "compose.yaml").read_text())
    (service,) = example["services"].values()
    assert service["init"]
    assert service["ipc"] == "host"
    limits = [f"{name}={value}" for name, value in service["ulimits"].items()]
    assert limits == [COMMON[index + 1] for index, word in enumerate(COMMON) if word == "--ulimit"]
    (device,) = service["deploy"]["resources"]["reservations"]["devices"]
    assert (device["driver"], device["count"], device["capabilities"]) == ("nvidia", "all", ["gpu"])
    assert service["command"][0] == service["volumes"][0]["target"] == "/engine"
    assert service["volumes"][0]["read_only"]


def test_the_example_for_kubernetes_starts_a_process_for_each_gpu() -> None:
    group, service = yaml.safe_load_all((DOCKER / "examples" / "leaderworkerset.yaml").read_text())
    template = group["spec"]["leaderWorkerTemplate"]
    pods = [template[name]["spec"] for name in ("leaderTemplate", "workerTemplate")]
    (leader,), (worker,) = (pod["containers"] for pod in pods)
    gpus = [container["resources"]["limits"]["nvidia.com/gpu"] for container in (leader, worker)]
    command = leader["command"]
    assert int(command[command.index("-n") + 1]) == gpus[0] + (template["size"] - 1) * gpus[1]
    hosts = command[command.index("--host") + 1].split(",")
    assert [int(host.rpartition(":")[2]) for host in hosts] == gpus
    assert "--bind-to" in command
    port = int(command[-1])
    assert command[-5:-1] == ["llgtrt", "serve", "/engine", "--port"]
    probes = [leader[name]["httpGet"] for name in ("readinessProbe", "startupProbe")]
    assert probes == [{"path": f"/v1/health/{kind}", "port": port} for kind in ("ready", "live")]
    # One template of volumes for both, and shared memory for NCCL and MPI.
    assert pods[0]["volumes"] == pods[1]["volumes"]
    assert {mount["mountPath"] for mount in leader["volumeMounts"]} >= {"/engine", "/dev/shm"}
    labels = template["leaderTemplate"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["ports"][0]["targetPort"] == port


def test_only_what_is_copied_goes_to_the_build() -> None:
    ignored = (DOCKER.parent / ".dockerignore").read_text().splitlines()
    kept = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        word
        for line in (DOCKER / "Dockerfile").read_text().splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in line.split()[1:-1]
        if not word.startswith("--") and word != "."
    }
    assert copied <= kept
    assert all((DOCKER.parent / name).exists() for name in kept)


def test_the_pip_lines_name_no_package() -> None:
    """With --require-hashes pip takes only what a file pins: a name on the line ends the build."""
    text = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [part.split() for part in text.replace("&&", "\n").splitlines() if "--require-hashes" in part]
    assert len(lines) == 2
    for words in lines:
        arguments = words[words.index("install") + 1 :]
        assert arguments[0] == "--require-hashes"
        assert arguments[1] == "-r"
        assert len(arguments) == 3, f"{arguments[3:]} are not pinned"
        locked = (DOCKER.parent / arguments[2]).read_text()
        assert "--hash=sha256:" in locked


@pytest.mark.parametrize(
    ("machine", "asked", "flag"),
    [
        ("x86_64", "", "-C target-cpu=x86-64-v3"),
        ("aarch64", "", "-C target-feature=+neon"),
        ("x86_64", "native", "-C target-cpu=native"),
        ("x86_64", "znver4", "-C target-cpu=znver4"),
        ("aarch64", "native", "-C target-cpu=native"),
        ("aarch64", "neoverse-v2", ""),
    ],
)
def test_the_wheel_is_compiled_for_the_kind_of_machine(
    tmp_path: Path, machine: str, asked: str, flag: str
) -> None:
    """rustc on aarch64 refuses x86's names; llama.cpp's build takes ARM's for architectures."""
    text = (DOCKER / "Dockerfile").read_text().replace("\\\n", " ")
    (line,) = (line for line in text.splitlines() if line.startswith("RUN") and "TARGET_CPU" in line)
    before_the_build, mark, _ = line.removeprefix("RUN ").partition('&& eval "')
    assert mark, "the flags are set before the build"
    uname = tmp_path / "uname"
    uname.write_text(f"#!/bin/sh\necho {machine}\n")
    uname.chmod(0o755)
    process = subprocess.run(
        ["/bin/bash", "-euo", "pipefail", "-c", f'{before_the_build} && printf %s "$RUSTFLAGS"'],
        capture_output=True,
        text=True,
        env={"PATH": f"{tmp_path}:{os.environ['PATH']}", "TARGET_CPU": asked},
        check=False,
    )
    assert (process.stdout, process.returncode == 0) == (flag, flag != "")


def test_what_builds_the_image_is_locked_as_for_developers() -> None:
    pins = [
        {
            line.split()[0]
            for line in (DOCKER.parent / "requirements" / name).read_text().splitlines()
            if "==" in line
        }
        for name in ("build.txt", "dev.txt")
    ]
    assert pins[0] <= pins[1]


@pytest.fixture
def linker(tmp_path: Path) -> dict[str, str]:
    """A root of its own, an ldconfig that does nothing, an ldd that says what the test wants."""
    folder = tmp_path / "linker"
    folder.mkdir()
    for name, script in {"ldconfig": "exit 0", "ldd": 'cat "$1.ldd"'}.items():
        (folder / name).write_text(f"#!/bin/sh\n{script}\n")
        (folder / name).chmod(0o755)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "ROOT": str(tmp_path / "root")}


def link_libraries(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(DOCKER / "link_libraries.sh"), *arguments],
        capture_output=True,
        text=True,
        env=environment,
        check=False,
    )


def test_the_linker_finds_the_libraries_without_bash(tmp_path: Path, linker: dict[str, str]) -> None:
    root = Path(linker["ROOT"])
    for folder in ("app/tensorrt_llm/lib", "usr/local/tensorrt/lib"):
        (root / folder).mkdir(parents=True)
    process = link_libraries(linker)
    assert process.returncode == 0, process.stderr
    conf = (root / "etc/ld.so.conf.d/llgtrt-tensorrt-llm.conf").read_text().splitlines()
    assert conf == ["/app/tensorrt_llm/lib", "/usr/local/tensorrt/lib"]
    assert "there is no /usr/local/cuda/lib64" in process.stderr


@pytest.mark.parametrize(
    ("said", "missing"),
    [
        ("\tlibnvinfer.so.10 => /usr/local/tensorrt/lib/libnvinfer.so.10 (0x1)\n", None),
        ("\tlibcuda.so.1 => not found\n\tlibnvidia-ml.so.1 => not found\n", None),
        ("\tlibcuda.so.1 => not found\n\tlibnvinfer.so.10 => not found\n", "libnvinfer.so.10"),
    ],
)
def test_a_library_that_is_not_found_ends_the_build(
    tmp_path: Path, linker: dict[str, str], said: str, missing: str | None
) -> None:
    plugin = tmp_path / "plugin.so"
    plugin.with_name("plugin.so.ldd").write_text(said)
    process = link_libraries(linker, "--check", str(plugin))
    assert process.returncode == (0 if missing is None else 1)
    if missing is not None:
        assert missing in process.stderr
        assert "libcuda" not in process.stderr


def test_a_signal_reaches_every_process(tmp_path: Path, engine: Path) -> None:
    """The real mpirun would kill its processes a second after a signal, while the first one drains."""
    for rank in range(2):
        (engine / f"rank{rank}.engine").touch()
    folder = tmp_path / "fakes"
    folder.mkdir()
    process = """
import pathlib, signal, sys
def drain(*_):
    pathlib.Path(sys.argv[1] + ".drained").touch()
    sys.exit(0)
signal.signal(signal.SIGTERM, drain)
pathlib.Path(sys.argv[1] + ".runs").touch()
while True:
    signal.pause()
"""
    (folder / "process.py").write_text(process)
    start = " ".join(f'"{sys.executable}" "{folder}/process.py" "{tmp_path}/{rank}" &' for rank in range(2))
    (folder / "mpirun").write_text(f"#!/bin/bash\n{start}\nwait\nexit 7\n")
    (folder / "mpirun").chmod(0o755)
    launched = subprocess.Popen(
        [str(DOCKER / "launch.sh"), str(engine)], env={"PATH": f"{folder}:{os.environ['PATH']}"}
    )
    try:
        wait_until(lambda: len(list(tmp_path.glob("*.runs"))) == 2, "both processes run")
        launched.send_signal(signal.SIGTERM)
        assert launched.wait(30) == 7, "it ends as mpirun does"
        assert len(list(tmp_path.glob("*.drained"))) == 2
    finally:
        launched.kill()
