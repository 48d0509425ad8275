#!/usr/bin/env bash
# Builds the TensorRT-LLM plugin with the stand-in of the executor under the sanitizers and runs its C++ tests:
# AddressSanitizer with UndefinedBehaviorSanitizer, then ThreadSanitizer. Needs CMake and a C++ compiler.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake="${CMAKE:-cmake}"
if ! command -v "$cmake" >/dev/null; then
    cmake=.venv/bin/cmake
fi

run() {
    local name="$1" sanitizers="$2" folder="target/sanitize-trtllm/$1"
    echo "== $name"
    "$cmake" -S rust/llgtrt-engine-trtllm/plugin -B "$folder" -DLLGTRT_STANDIN=ON -DLLGTRT_TESTS=ON \
        -DCMAKE_BUILD_TYPE=RelWithDebInfo "-DLLGTRT_SANITIZE=$sanitizers" >/dev/null
    "$cmake" --build "$folder" --target driver --parallel "$(nproc)" >/dev/null
    "$folder/driver"
}

export ASAN_OPTIONS=detect_leaks=1:halt_on_error=1:check_initialization_order=1
export UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
export TSAN_OPTIONS=halt_on_error=1:second_deadlock_stack=1

run asan address,undefined
run tsan thread
