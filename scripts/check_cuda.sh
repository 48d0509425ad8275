#!/usr/bin/env bash
# Compiles the mask kernel for every supported GPU, without a GPU and without a CUDA installation: the compiler comes
# from the Python package registry (about 350 MB, once) into a virtual environment of its own.
#
#   scripts/check_cuda.sh [FOLDER]    the environment's folder; target/cuda by default
#   scripts/check_cuda.sh --gpu-test OUTPUT ARCHITECTURE [FOLDER]
#                                     only builds the program that tests and times the kernel on a GPU, which has to
#                                     be of this architecture, such as 90: see benches/mask_kernel.py
#
# A CUDA installation whose nvcc is on PATH, or named by NVCC, is used instead.
set -euo pipefail
cd "$(dirname "$0")/.."
plugin=rust/llgtrt-engine-trtllm/plugin
architectures=(80 86 89 90 100 120)
gpu_test=""
if [[ "${1:-}" == --gpu-test ]]; then
    gpu_test="${2:?name the output}"
    architectures=("${3:?name the architecture}")
    shift 3
fi
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

# The program OUTPUT for the architectures that follow it.
build_gpu_test() {
    local output="$1" codes=() architecture libraries
    shift
    for architecture in "$@"; do
        codes+=(-gencode "arch=compute_$architecture,code=sm_$architecture")
    done
    # Where the packages keep the runtime; nvcc looks in lib64 by itself.
    libraries="$(dirname "$nvcc")/../lib"
    "$nvcc" -std=c++17 -O3 -Werror all-warnings "${codes[@]}" -I "$plugin/src" -I "$plugin/tests" -L "$libraries" \
        "$plugin/tests/mask_kernel_gpu.cu" "$plugin/tests/mask_cases.cpp" \
        "$plugin/src/mask_kernel.cu" "$plugin/src/mask_kernel_host.cpp" -o "$output"
}

if [[ -n "$gpu_test" ]]; then
    build_gpu_test "$gpu_test" "${architectures[@]}"
    exit
fi

out="$(mktemp -d)"
trap 'rm -rf "$out"' EXIT
codes=()
for architecture in "${architectures[@]}"; do
    codes+=(-gencode "arch=compute_$architecture,code=sm_$architecture")
done
"$nvcc" -std=c++17 -O3 -Werror all-warnings "${codes[@]}" -I "$plugin/src" \
    -c "$plugin/src/mask_kernel.cu" -o "$out/mask_kernel.o"
# The plugin's host code is plain C++ over CUDA's runtime and the executor's headers, of which the stand-in has the names.
CXXFLAGS=-Werror scripts/check_trtllm_headers.sh --cuda "$(dirname "$nvcc")/../include" "$plugin/tests/standin/include"
echo "The mask kernel compiles for sm_${architectures[*]}"
build_gpu_test "$out/mask_kernel_gpu" 80 90
# It is linked, and starts: without a GPU it only says so, with 77.
status=0
said="$(CUDA_VISIBLE_DEVICES='' "$out/mask_kernel_gpu" check 2>&1)" || status=$?
[[ $status -eq 77 ]] || { echo "it ended with $status: $said" >&2; exit 1; }
echo "The kernel's test for GPUs compiles for sm_80 and sm_90"

# The kernel's logic, emulated on the host: launches become calls.
sed -E 's/(mask_rows<[a-z_0-9]+>)<<<grid, kThreads, 0, queue>>>\(/emulated::launch(\1, grid, kThreads, queue, /' \
    "$plugin/src/mask_kernel.cu" >"$out/mask_kernel.cpp"
"${CXX:-c++}" -std=c++17 -O1 -I "$plugin/tests/emulated" -I "$plugin/src" -I "$plugin/tests" \
    "$out/mask_kernel.cpp" -x c++ "$plugin/tests/mask_kernel_gpu.cu" \
    "$plugin/tests/mask_cases.cpp" "$plugin/src/mask_kernel_host.cpp" -o "$out/mask_kernel_emulated"
echo "The kernel, emulated, against the host implementation:"
"$out/mask_kernel_emulated" narrow
