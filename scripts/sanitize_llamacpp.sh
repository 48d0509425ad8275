#!/usr/bin/env bash
# Builds llama.cpp and our own C++ beside it under AddressSanitizer, and runs the tests of the llama.cpp engine: the
# kernels, the buffers they read, and every call from Rust. Needs GCC or Clang; some ten minutes the first time.
#
# Rust's own code is not instrumented, but its memory is checked as well: the sanitizer's allocator serves both.
# ThreadSanitizer would take Rust's locks, which it cannot see, for races.
set -euo pipefail
cd "$(dirname "$0")/.."

build_env="$(.venv/bin/python build_backend/llgtrt_build.py --env)"
eval "$build_env"
triple="$(rustc -vV | sed -n 's/^host: //p')"
for language in CFLAGS CXXFLAGS; do
    export "${language}_${triple//-/_}=-fsanitize=address -fno-omit-frame-pointer -g1"
done
export CARGO_TARGET_DIR=target/sanitize-llamacpp
export RUSTFLAGS="-C target-cpu=native -C link-arg=-fsanitize=address"

# Rust links with `-nodefaultlibs`, which leaves out the sanitizer's library as well; and that has to be the first one loaded.
variable="CARGO_TARGET_$(tr a-z- A-Z_ <<<"$triple")"
mkdir -p "$CARGO_TARGET_DIR"
printf '#!/bin/sh\nexec cc "$@" -lasan\n' >"$CARGO_TARGET_DIR/linker"
chmod +x "$CARGO_TARGET_DIR/linker"
export "${variable}_LINKER=$PWD/$CARGO_TARGET_DIR/linker"
library="$(cc -print-file-name=libasan.so)"
export "${variable}_RUNNER=env LD_PRELOAD=$library"
# A test asks for more memory than there can be.
export ASAN_OPTIONS=detect_leaks=1:halt_on_error=1:check_initialization_order=1:allocator_may_return_null=1

# With a target named, build scripts and macros are built without the flags. What is left out asks how many passes guesses
# save: their length follows from what a pass costs, which is another thing here (on some machines none pays).
cargo test --release --locked --target "$triple" -p llgtrt-engine-llamacpp --lib --tests --no-fail-fast -- \
    --skip an_answer_takes_fewer_passes --skip a_grammar_is_asked_token_by_token
