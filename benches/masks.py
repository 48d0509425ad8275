"""Mask times of llgtrt beside the llguidance Python package, over the same tokens in one run.

Prints one table; `masks.md` says what its rows mean.
"""

from __future__ import annotations

import argparse
import base64
import importlib.util
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from llguidance import LLExecutor, LLMatcher, LLTokenizer

ROOT = Path(__file__).resolve().parent.parent
SPECIAL_TOKENS = 1000
VOCAB_SIZE = 131072
EOS = 2
SPARE_TOKENS = 200
WHITESPACE = r"\x20"
"""llgtrt's default, given to both sides so that the masks are the same."""


class Tekken:
    """The vocabulary in mistral-common's tekken.json: special tokens first, then the ranks."""

    def __init__(self, path: Path) -> None:
        data = json.loads(path.read_text(encoding="utf-8"))
        self.pattern: str = data["config"]["pattern"]
        self.ranks = {
            base64.b64decode(entry["token_bytes"]): entry["rank"] + SPECIAL_TOKENS
            for entry in data["vocab"][: VOCAB_SIZE - SPECIAL_TOKENS]
        }
        names = ["<unk>", "<s>", "</s>"] + [f"<SPECIAL_{index}>" for index in range(3, SPECIAL_TOKENS)]
        self.specials = {name: index for index, name in enumerate(names)}

    def tokenizer(self) -> LLTokenizer:
        """The same vocabulary for the Python package."""
        build = LLTokenizer.from_tiktoken  # type: ignore[attr-defined]  # missing in the package's stubs
        tokenizer: LLTokenizer = build(
            encoder=self.ranks, special_tokens=self.specials, pattern=self.pattern, eos_token=EOS
        )
        return tokenizer

    def write(self, path: Path) -> None:
        """The token table that the Rust example reads."""
        header = {"pattern": self.pattern, "eos": EOS, "vocab_size": VOCAB_SIZE}
        with path.open("w", encoding="utf-8") as out:
            out.write(json.dumps(header) + "\n")
            out.writelines(f"s {name}\n" for name in self.specials)
            out.writelines(f"n {token.hex()}\n" for token in self.ranks)


def tekken_path() -> Path:
    """The newest tekken.json of the installed mistral-common (its code is not imported)."""
    spec = importlib.util.find_spec("mistral_common")
    if spec is None or not spec.submodule_search_locations:
        raise SystemExit("mistral-common is not installed: run `make setup`")
    files = sorted(Path(spec.submodule_search_locations[0]).rglob("tekken*.json"))
    if not files:
        raise SystemExit("mistral-common holds no tekken.json")
    return files[-1]


def read_schemas(path: Path, limit: int) -> Iterator[tuple[str, list[Any]]]:
    """Schemas (as JSON text, with the shared whitespace) and their valid instances."""
    for line in path.read_text(encoding="utf-8").splitlines()[:limit]:
        entry = json.loads(line)
        schema = entry["schema"]
        valid = [test["data"] for test in entry["tests"] if test["valid"]]
        if isinstance(schema, dict) and valid:
            schema = {**schema, "x-guidance": {"whitespace_pattern": WHITESPACE}}
            yield json.dumps(schema, ensure_ascii=False), valid


Walks = list[tuple[LLMatcher, list[int]]]


def prepare(tokenizer: LLTokenizer, schemas: Path, out: Path, limit: int) -> list[Walks]:
    """Writes the schemas with the instances that llguidance accepts; returns both, by schema."""
    walks: list[Walks] = []
    with out.open("w", encoding="utf-8") as file:
        for schema, instances in read_schemas(schemas, limit):
            matcher = LLMatcher(tokenizer, LLMatcher.grammar_from_json_schema(schema), log_level=0)
            if matcher.is_error():
                continue
            accepted = []
            for instance in instances:
                text = json.dumps(instance, ensure_ascii=False, separators=(",", ":"))
                tokens = tokenizer.tokenize_str(text)
                probe = matcher.deep_copy()
                if probe.try_consume_tokens(tokens) == len(tokens) and probe.is_accepting():
                    accepted.append(tokens)
            if accepted:
                file.write(json.dumps({"schema": schema, "instances": accepted}) + "\n")
                walks.append([(matcher, tokens) for tokens in accepted])
    return walks


class Rust:
    """The Rust example, as a process that answers commands."""

    def __init__(self, binary: Path, vocabulary: Path, walks: Path) -> None:
        command = [str(binary), str(vocabulary), str(walks)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.ask("")

    def ask(self, command: str) -> Any:
        """Sends a command (none: waits for the start) and returns its answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        if command:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        line = self.process.stdout.readline().strip()
        if not line:
            raise SystemExit("the Rust example ended early")
        return line if line == "ready" else json.loads(line)

    def close(self) -> None:
        """Ends the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


def python_single(walks: Walks) -> list[float]:
    """Commit and mask of every token, in microseconds."""
    times: list[float] = []
    mask = np.zeros(VOCAB_SIZE // 32, dtype=np.int32)
    address, size = mask.ctypes.data, mask.nbytes
    clock = time.perf_counter_ns
    for grammar, tokens in walks:
        matcher = grammar.deep_copy()
        previous = None
        for token in tokens:
            started = clock()
            if previous is not None:
                matcher.consume_token(previous)
            matcher.unsafe_compute_mask_ptr(address, size)
            times.append((clock() - started) / 1e3)
            previous = token
        if matcher.is_error():
            raise SystemExit(matcher.get_error())
    return times


def python_batch(walks: Walks, executor: LLExecutor, size: int, steps: int) -> float:
    """Mean time of a step of the package's own parallel executor, in microseconds."""
    masks = np.zeros((size, VOCAB_SIZE // 32), dtype=np.int32)
    upcoming = 0
    lanes: list[tuple[LLMatcher, list[int], int]] = []
    for _ in range(size):
        grammar, tokens = walks[upcoming % len(walks)]
        lanes.append((grammar.deep_copy(), tokens, 0))
        upcoming += 1
    total = 0
    for _ in range(steps):
        jobs = [(matcher, row) for row, (matcher, _, _) in enumerate(lanes)]
        started = time.perf_counter_ns()
        for matcher, tokens, count in lanes:
            if count:
                matcher.consume_token(tokens[count - 1])
        executor.unsafe_compute_mask_ptr(jobs, masks.ctypes.data, masks.shape[1] * 4, size)
        total += time.perf_counter_ns() - started
        for row, (matcher, tokens, count) in enumerate(lanes):
            if count + 1 < len(tokens):
                lanes[row] = (matcher, tokens, count + 1)
            else:
                grammar, tokens = walks[upcoming % len(walks)]
                lanes[row] = (grammar.deep_copy(), tokens, 0)
                upcoming += 1
    return total / steps / 1e3


def single_rows(rust: Rust, walks: Walks, rounds: int) -> list[list[str]]:
    """Both sides single-threaded: the first round, then percentiles of each token's fastest round."""
    ours, theirs = [], []
    for _ in range(rounds + 1):
        theirs.append(python_single(walks))
        ours.append(rust.ask("single"))
    warm = [np.min(np.array(times[1:]), axis=0) for times in (ours, theirs)]
    pairs = [("first round, mean", [statistics.fmean(times[0]) for times in (ours, theirs)])]
    for name, quantile in (("p50", 50), ("p99", 99)):
        pairs.append((name, [float(np.percentile(times, quantile)) for times in warm]))
    pairs.append(("mean", [float(times.mean()) for times in warm]))
    return [[f"one sequence, {name}", f"{a:.2f}", f"{b:.2f}", f"{a / b:.3f}", ""] for name, (a, b) in pairs]


def batch_rows(rust: Rust, walks: Walks, rounds: int, sizes: list[int], tokens: int) -> list[list[str]]:
    """Mean step times: llgtrt in parallel and serially, llguidance's executor."""
    executor = LLExecutor()
    rows = []
    for size in sizes:
        steps = max(50, tokens // size)
        results = []
        for _ in range(rounds):
            step = python_batch(walks, executor, size, steps)
            ours = rust.ask(f"batch {size} {steps}")
            results.append((ours["parallel"], ours["serial"], step))
        parallel, theirs = (statistics.median(r[i] for r in results) for i in (0, 2))
        ratio = statistics.median(r[0] / r[2] for r in results)
        speedup = statistics.median(r[1] / r[0] for r in results)
        cells = [f"{parallel:.1f}", f"{theirs:.1f}", f"{ratio:.3f}", f"{speedup:.2f}"]
        rows.append([f"batch of {size}, step", *cells])
    return rows


def near_rows(rust: Rust, rounds: int, sizes: list[int], tokens: int) -> list[list[str]]:
    """What precedes a forward pass where every answer is near its limit, beside the same without limits."""
    rows = []
    for size in sizes:
        command = f"near {size} {max(50, tokens // size)} {SPARE_TOKENS}"
        results = [rust.ask(command) for _ in range(rounds)]
        near, far = (statistics.median(result[name] for result in results) for name in ("near", "far"))
        rows.append([f"batch of {size}, advance", f"{far:.1f}", "", "", ""])
        rows.append([f"batch of {size}, advance near limits", f"{near:.1f}", "", "", ""])
    return rows


def print_table(rows: list[list[str]]) -> None:
    """The one table."""
    header = ["time in us", "llgtrt", "llguidance", "ratio", "parallel/serial"]
    first, *widths = (max(len(row[i]) for row in [header, *rows]) for i in range(len(header)))
    for name, *cells in [header, *rows]:
        print(name.ljust(first), *(cell.rjust(w) for cell, w in zip(cells, widths, strict=True)), sep="  ")


def main() -> None:
    """Builds the example, prepares its input and prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--schemas", type=Path, default=ROOT / "benches" / "schemas.jsonl")
    parser.add_argument("--tekken", type=Path, help="a tekken.json; default: the one of mistral-common")
    parser.add_argument("--limit", type=int, default=250, help="schemas to use")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8, 32, 128])
    parser.add_argument("--batch-tokens", type=int, default=20000, help="tokens per batch size and round")
    options = parser.parse_args()
    build = "cargo build --release -q -p llgtrt-grammar --example mask_bench"
    subprocess.run(build.split(), cwd=ROOT, check=True)
    binary = ROOT / "target" / "release" / "examples" / "mask_bench"
    tekken = Tekken(options.tekken or tekken_path())
    tokenizer = tekken.tokenizer()
    with tempfile.TemporaryDirectory() as folder:
        vocabulary, walks_file = Path(folder, "vocabulary"), Path(folder, "walks")
        tekken.write(vocabulary)
        schemas = prepare(tokenizer, options.schemas, walks_file, options.limit)
        rust = Rust(binary, vocabulary, walks_file)
        refused = dict(rust.ask("refused"))
        for number, why in refused.items():
            print(f"llgtrt refuses schema {number}: {why}", file=sys.stderr)
        walks = [walk for number, schema in enumerate(schemas) if number not in refused for walk in schema]
        tokens = sum(len(walk[1]) for walk in walks)
        kept = len(schemas) - len(refused)
        print(f"{kept} schemas, {len(walks)} instances, {tokens} tokens", file=sys.stderr)
        rows = single_rows(rust, walks, options.rounds)
        rows += batch_rows(rust, walks, options.rounds, options.batches, options.batch_tokens)
        rows += near_rows(rust, options.rounds, options.batches, options.batch_tokens)
        rust.close()
    print_table(rows)


if __name__ == "__main__":
    main()
