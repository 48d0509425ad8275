#!/usr/bin/env bash
# Tests the kernels for ARM on a machine of another kind: cross-compiled, and run by qemu with all instructions that it knows.
# Needs Debian's g++-aarch64-linux-gnu and qemu-user-static, and rustup. llama.cpp is compiled anew, which takes 15 minutes on
# 2 cores the first time; the tests take 4. Arguments go to cargo: `-p llgtrt-engine-llamacpp --test constrained`.
set -euo pipefail
cd "$(dirname "$0")/.."

target=aarch64-unknown-linux-gnu
for tool in aarch64-linux-gnu-g++ qemu-aarch64-static rustup; do
    command -v "$tool" > /dev/null || { echo "$tool is missing: install g++-aarch64-linux-gnu, qemu-user-static, rustup" >&2; exit 1; }
done
rustup target add "$target"
eval "$(.venv/bin/python build_backend/llgtrt_build.py --env)"
unset PYO3_PYTHON
export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
export CXX_aarch64_unknown_linux_gnu=aarch64-linux-gnu-g++
export AR_aarch64_unknown_linux_gnu=aarch64-linux-gnu-ar
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64-static -cpu max -L /usr/aarch64-linux-gnu"
export BINDGEN_EXTRA_CLANG_ARGS="${BINDGEN_EXTRA_CLANG_ARGS:-} --target=aarch64-linux-gnu -I/usr/aarch64-linux-gnu/include"
# Not for the processor of this machine.
export RUSTFLAGS="-C target-feature=+neon"
if [[ $# -eq 0 ]]; then
    set -- -p llgtrt-engine-llamacpp --lib repack
fi
cargo test --release --locked --target "$target" "$@"
