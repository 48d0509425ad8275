#!/usr/bin/env bash
# The first thing to run on a machine that has TensorRT-LLM's headers: compiles the plugin's host code against them without
# linking, and, given the libraries too, looks for every function of theirs that the plugin calls.
#
#   scripts/check_trtllm_headers.sh [--cuda DIR] [--libs DIR] DIR
#
#   DIR       the folder that holds tensorrt_llm/executor/executor.h
#   --cuda    the folder that holds cuda_runtime_api.h; by default CUDA's own, else headers from the Python package
#             registry (some 100 MB, once) in target/cuda-headers
#   --libs    the folder that holds libtensorrt_llm.so and libnvinfer_plugin_tensorrt_llm.so
#
# CXX is the compiler, c++ unless it is set; CXXFLAGS are further options for it.
set -euo pipefail
usage() {
    echo "usage: $0 [--cuda DIR] [--libs DIR] DIR" >&2
    exit 2
}
headers=""
cuda=""
libs=""
while [[ $# -gt 0 ]]; do
    case "$1" in
        --cuda | --libs)
            [[ -d "${2:-}" ]] || { echo "$1: no such folder: ${2:-}" >&2; exit 2; }
            if [[ "$1" == --cuda ]]; then cuda="$(realpath "$2")"; else libs="$(realpath "$2")"; fi
            shift 2
            ;;
        -*) usage ;;
        *)
            [[ -z "$headers" ]] || usage
            headers="$1"
            shift
            ;;
    esac
done
[[ -n "$headers" ]] || usage
[[ -f "$headers/tensorrt_llm/executor/executor.h" ]] || { echo "$headers has no tensorrt_llm/executor/executor.h" >&2; exit 1; }
headers="$(realpath "$headers")"
cd "$(dirname "$0")/.."
plugin=rust/llgtrt-engine-trtllm/plugin
compiler="${CXX:-c++}"

# cudaStream.h needs cuBLAS's types as well.
mapfile -t packages < <(grep -E '^nvidia-(cuda-(runtime|cccl|crt)|cublas)==' requirements/cuda.in)
if [[ -z "$cuda" ]]; then
    if [[ -f /usr/local/cuda/include/cuda_runtime_api.h ]]; then
        cuda=/usr/local/cuda/include
    else
        folder="target/cuda-headers"
        stamp="$folder/.done-$(printf '%s\n' "${packages[@]}" | cksum | cut -d ' ' -f 1)"
        if [[ ! -e "$stamp" ]]; then
            python3 -m venv "$folder"
            "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "${packages[@]}"
            touch "$stamp"
        fi
        cuda="$(dirname "$(find "$folder" -name cuda_runtime_api.h -print -quit)")"
    fi
fi
[[ -f "$cuda/cuda_runtime_api.h" ]] || { echo "$cuda has no cuda_runtime_api.h" >&2; exit 1; }

sources=()
for source in "$plugin"/src/*.cpp; do
    [[ "$source" == *_host.cpp ]] || sources+=("$source")
done
read -ra more <<<"${CXXFLAGS:-}"
flags=(-std=c++17 -Wall -Wextra -fPIC "${more[@]}" -isystem "$headers" -isystem "$cuda" -I "$plugin/include" -I "$plugin/src")
status=0
for source in "${sources[@]}"; do
    echo "$source"
    "$compiler" "${flags[@]}" -fsyntax-only "$source" || status=1
done
((status == 0)) || { echo "The plugin does not compile against $headers" >&2; exit 1; }
echo "The plugin's host code compiles against $headers"
[[ -n "$libs" ]] || exit 0

out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
libraries=("$libs/libtensorrt_llm.so" "$libs/libnvinfer_plugin_tensorrt_llm.so")
nm -D --defined-only "${libraries[@]}" | awk 'NF == 3 { sub(/@.*/, "", $3); print $3 }' | sort -u >"$out/offered"
# The layout of std::string that the library was built with shows in the names.
abi=1
grep -q __cxx11 "$out/offered" || abi=0
for source in "${sources[@]}"; do
    "$compiler" "${flags[@]}" "-D_GLIBCXX_USE_CXX11_ABI=$abi" -c "$source" -o "$out/$(basename "$source").o"
done
nm --undefined-only "$out"/*.o | awk '$1 == "U" { print $2 }' | grep -E 'tensorrt_llm|initTrtLlmPlugins' | sort -u >"$out/used" || true
comm -23 "$out/used" "$out/offered" >"$out/missing"
# What the plugin defines itself is not the library's to offer.
nm --defined-only "$out"/*.o | awk 'NF == 3 { print $3 }' | sort -u >"$out/own"
comm -23 "$out/missing" "$out/own" >"$out/really_missing"
if [[ -s "$out/really_missing" ]]; then
    echo "The libraries in $libs lack what the plugin calls:" >&2
    c++filt <"$out/really_missing" >&2
    exit 1
fi
echo "The libraries in $libs have all $(wc -l <"$out/used") names of theirs that the plugin uses"
