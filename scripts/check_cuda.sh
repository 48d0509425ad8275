#!/usr/bin/env bash
# Compiles the mask kernel for every supported GPU, without a GPU and without a CUDA installation: the compiler comes
# from the Python package registry (about 350 MB, once) into a virtual environment of its own.
#
#   scripts/check_cuda.sh [FOLDER]    the environment's folder; target/cuda by default
#
# A CUDA installation whose nvcc is on PATH, or named by NVCC, is used instead.
set -euo pipefail
cd "$(dirname "$0")/.."
plugin=rust/llgtrt-engine-trtllm/plugin
architectures=(80 86 89 90 100 120)
folder="${1:-target/cuda}"

# Pinned: a compiler that changes by itself would make this check fail by itself.
packages=(
    nvidia-cuda-nvcc==13.0.88
    nvidia-cuda-runtime==13.0.96
    nvidia-cuda-cccl==13.0.85
    nvidia-cuda-crt==13.0.88
    nvidia-nvvm==13.0.88
)

nvcc="${NVCC:-$(command -v nvcc || true)}"
if [[ -z "$nvcc" ]]; then
    stamp="$folder/.done-$(printf '%s\n' "${packages[@]}" | cksum | cut -d ' ' -f 1)"
    if [[ ! -e "$stamp" ]]; then
        python3 -m venv "$folder"
        "$folder/bin/python" -m pip install --quiet --disable-pip-version-check --no-deps "${packages[@]}"
        touch "$stamp"
    fi
    nvcc="$(find "$folder" -path '*/nvidia/cu13/bin/nvcc' -print -quit)"
    [[ -n "$nvcc" ]] || { echo "the packages hold no nvcc" >&2; exit 1; }
fi

out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
codes=()
for architecture in "${architectures[@]}"; do
    codes+=(-gencode "arch=compute_$architecture,code=sm_$architecture")
done
"$nvcc" -std=c++17 -O3 -Werror all-warnings "${codes[@]}" -I "$plugin/src" \
    -c "$plugin/src/mask_kernel.cu" -o "$out/mask_kernel.o"
# The device's memory functions are plain C++ over CUDA's runtime; the stand-in has the executor's headers.
include="$(dirname "$nvcc")/../include"
"${CXX:-c++}" -std=c++17 -fsyntax-only -Wall -Wextra -Werror \
    -isystem "$include" -isystem "$plugin/tests/standin/include" -I "$plugin/src" -I "$plugin/include" \
    "$plugin/src/device_cuda.cpp"
echo "The mask kernel compiles for sm_${architectures[*]}"
