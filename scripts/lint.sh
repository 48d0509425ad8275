#!/usr/bin/env bash
# Formatting, lints, types, and the native module against its stub. Stops at the first failure.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=.venv/bin

step() { printf '\n== %s\n' "$*"; }

# A cargo component: present, or installed by rustup, or skipped with a word about it.
have_component() {
    cargo "$1" --version >/dev/null 2>&1 && return 0
    rustup component add "$2" >/dev/null 2>&1 && return 0
    echo "SKIPPED: $2 is not installed and rustup could not add it"
    return 1
}

step "ruff"
$bin/ruff check .
$bin/ruff format --check .

step "rustfmt"
if have_component fmt rustfmt; then
    cargo fmt --all --check
fi

step "mypy"
$bin/mypy

step "clippy"
if have_component clippy clippy; then
    build_env="$($bin/python build_backend/llgtrt_build.py --env)"
    eval "$build_env"
    PYO3_PYTHON="$PWD/$bin/python" cargo clippy --release --locked --workspace --all-targets -- -D warnings
fi

step "stubtest"
$bin/python -m mypy.stubtest --concise --allowlist scripts/stubtest-allowlist.txt llgtrt._native

step "shellcheck"
git ls-files -z -- '*.sh' .ci/run | xargs -0 $bin/shellcheck

step "lint passed"
