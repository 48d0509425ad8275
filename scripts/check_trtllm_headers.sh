#!/usr/bin/env bash
# Compiles the TensorRT-LLM plugin's host code against real headers, without linking: does this version of the executor
# still have what the plugin uses?
#
#   scripts/check_trtllm_headers.sh --headers DIR [--cuda DIR]
#
#   --headers  the folder that holds tensorrt_llm/executor/executor.h
#   --cuda     the folder that holds cuda_runtime_api.h; by default what scripts/check_cuda.sh installed
set -euo pipefail
headers=""
cuda=""
while [[ $# -gt 0 ]]; do
    case "$1" in
        --headers) headers="$(realpath "$2")"; shift 2 ;;
        --cuda) cuda="$(realpath "$2")"; shift 2 ;;
        *) echo "usage: $0 --headers DIR [--cuda DIR]" >&2; exit 2 ;;
    esac
done
cd "$(dirname "$0")/.."
[[ -f "$headers/tensorrt_llm/executor/executor.h" ]] || { echo "$headers has no tensorrt_llm/executor/executor.h" >&2; exit 1; }
if [[ -z "$cuda" ]]; then
    cuda="$(find target/cuda -path '*/nvidia/cu13/include' -print -quit 2>/dev/null || true)"
    [[ -n "$cuda" ]] || { echo "name CUDA's headers with --cuda, or run scripts/check_cuda.sh first" >&2; exit 1; }
fi
plugin=rust/llgtrt-engine-trtllm/plugin
for source in "$plugin"/src/*.cpp; do
    [[ "$source" == *_host.cpp ]] && continue
    echo "$source"
    "${CXX:-c++}" -std=c++17 -fsyntax-only -Wall -Wextra -isystem "$headers" -isystem "$cuda" \
        -I "$plugin/include" -I "$plugin/src" "$source"
done
echo "The plugin's host code compiles against $headers"
