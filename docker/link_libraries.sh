#!/usr/bin/env bash
# Tells the dynamic linker where TensorRT-LLM's libraries are. NVIDIA's image says it in LD_LIBRARY_PATH only, which bash
# sets when it starts: `docker exec`, a Kubernetes command and srun start programs without bash. Runs as root.
#
#   link_libraries.sh                writes the linker's configuration and its cache
#   link_libraries.sh --check FILE   fails if a library that FILE needs is not found; the driver's may be missing,
#                                    which come with the GPU
#
# ROOT is put before every path (tests).
set -euo pipefail
root="${ROOT:-}"

if [[ "${1:-}" == --check ]]; then
    file="${2:?name the file}"
    missing="$(env -u LD_LIBRARY_PATH ldd "$file" | grep 'not found' | grep -vE '^\s*(libcuda|libnvidia-ml)\.so' || true)"
    if [[ -n "$missing" ]]; then
        echo "$file needs what the dynamic linker does not find:" >&2
        echo "$missing" >&2
        exit 1
    fi
    exit
fi

folders=(/app/tensorrt_llm/lib /usr/local/tensorrt/lib /usr/local/cuda/lib64)
# Found without importing it, which takes long and may want a GPU.
torch="$(python3 -c 'import importlib.util as u
spec = u.find_spec("torch")
print(spec.submodule_search_locations[0] if spec else "")')"
[[ -z "$torch" ]] || folders+=("$torch/lib")

conf="$root/etc/ld.so.conf.d/llgtrt-tensorrt-llm.conf"
mkdir -p "$(dirname "$conf")"
: >"$conf"
for folder in "${folders[@]}"; do
    if [[ -d "$root$folder" ]]; then
        echo "$folder" >>"$conf"
    else
        echo "Warning: there is no $folder" >&2
    fi
done
ldconfig
