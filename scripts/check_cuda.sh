#!/usr/bin/env bash
# Compiles the mask kernel for every supported GPU, without a GPU and without a CUDA installation: the compiler comes
# from the Python package registry (about 350 MB, once) into a virtual environment of its own.
#
#   scripts/check_cuda.sh [FOLDER]    the environment's folder; target/cuda by default
#   scripts/check_cuda.sh --gpu-tests OUTPUT ARCHITECTURE [FOLDER]
#                                     only builds the programs that test and time the kernel and its caller on a GPU, which
#                                     has to be of this architecture, such as 90, into a folder: see benches/mask_kernel.py
#
# A CUDA installation whose nvcc is on PATH, or named by NVCC, is used instead.
set -euo pipefail
cd "$(dirname "$0")/.."
plugin=rust/llgtrt-engine-trtllm/plugin
architectures=(80 86 89 90 100 120)
gpu_tests=""
if [[ "${1:-}" == --gpu-tests ]]; then
    gpu_tests="${2:?name the output}"
    architectures=("${3:?name the architecture}")
    shift 3
fi
folder="${1:-target/cuda}"

# Pinned: a compiler that changes by itself would make this check fail by itself.
# One place for the versions. cuBLAS is not needed here.
mapfile -t packages < <(grep '^nvidia-' requirements/cuda.in | grep -v cublas)

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

# The programs mask_kernel_gpu and post_processor_gpu in the folder OUTPUT, for the architectures that follow it.
build_gpu_tests() {
    local output="$1" flags=() architecture
    shift
    for architecture in "$@"; do
        flags+=(-gencode "arch=compute_$architecture,code=sm_$architecture")
    done
    # Where the packages keep the runtime; nvcc looks in lib64 by itself.
    flags+=(-std=c++17 -O3 -Werror all-warnings -L "$(dirname "$nvcc")/../lib")
    flags+=(-I "$plugin/src" -I "$plugin/tests" -I "$plugin/include" -I "$plugin/tests/gpu/include" -I "$plugin/tests/standin/include")
    local kernel=("$plugin/src/mask_kernel.cu" "$plugin/src/mask_kernel_host.cpp" "$plugin/tests/mask_cases.cpp")
    "$nvcc" "${flags[@]}" "$plugin/tests/gpu/mask_kernel_gpu.cu" "${kernel[@]}" -o "$output/mask_kernel_gpu" &
    "$nvcc" "${flags[@]}" "$plugin/tests/gpu/post_processor_gpu.cu" "${kernel[@]}" \
        "$plugin"/src/{device_cuda,places,plain,post_processor,row_results}.cpp "$plugin/tests/standin/src/tensor.cpp" \
        -o "$output/post_processor_gpu"
    wait $!
}

if [[ -n "$gpu_tests" ]]; then
    mkdir -p "$gpu_tests"
    build_gpu_tests "$gpu_tests" "${architectures[@]}"
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
build_gpu_tests "$out" 80 90
# They are linked, and start: without a GPU they only say so, with 77.
for program in mask_kernel_gpu post_processor_gpu; do
    status=0
    said="$(CUDA_VISIBLE_DEVICES='' "$out/$program" check 2>&1)" || status=$?
    [[ $status -eq 77 ]] || { echo "$program ended with $status: $said" >&2; exit 1; }
done
echo "The tests for GPUs compile for sm_80 and sm_90"

# The kernel's logic, emulated on the host: launches become calls.
sed -E 's/([a-z_]+<[A-Za-z, ]+>)<<<([a-z]+), kThreads, 0, queue>>>\(/emulated::launch(\1, \2, kThreads, queue, /' \
    "$plugin/src/mask_kernel.cu" >"$out/mask_kernel.cpp"
"${CXX:-c++}" -std=c++17 -O1 -I "$plugin/tests/emulated" -I "$plugin/src" -I "$plugin/tests" \
    "$out/mask_kernel.cpp" -x c++ "$plugin/tests/gpu/mask_kernel_gpu.cu" \
    "$plugin/tests/mask_cases.cpp" "$plugin/src/mask_kernel_host.cpp" -o "$out/mask_kernel_emulated"
echo "The kernel, emulated, against the host implementation:"
"$out/mask_kernel_emulated" narrow
