#!/usr/bin/env bash
# Serves an engine folder, or a GGUF file or a folder with one; the server's flags come last.
#
#   PORT=3001 docker/run.sh ENGINE_DIR [LORA_DIR] [flags of llgtrt]
#   docker/run.sh ENGINE_DIR --print-config > llgtrt.json5
#   docker/run.sh MODEL.gguf [LORA_DIR] [flags of llgtrt]
#
# PORT (3000) is the port, inside and outside; GPUS is docker's --gpus (all for an engine, none for a GGUF file); IMAGE the
# image: llgtrt/llgtrt:latest of docker/build.sh, for a GGUF file llgtrt/llgtrt:cpu of deploy/Dockerfile.
# LLGTRT_API_KEY is handed on. The docker line goes to standard error, without the key.
set -euo pipefail
# shellcheck source=docker/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

port="${PORT:-3000}"

if (($# == 0)) || [[ "$1" == -h || "$1" == --help ]]; then
    echo "Usage: PORT=3000 docker/run.sh ENGINE_DIR|MODEL.gguf [LORA_DIR] [flags of llgtrt]" >&2
    exit $(($# == 0))
fi
if [[ ! "$port" =~ ^[0-9]+$ ]] || ((10#$port < 1 || 10#$port > 65535)); then
    fail "PORT is not a port: $port"
fi

engine="$1"
shift
container_options
shopt -s nullglob
gguf_files=("$engine"/*.gguf)
if [[ "$engine" == *.gguf || ${#gguf_files[@]} -gt 0 ]]; then
    [[ -e "$engine" ]] || fail "$engine: no such file"
    image="${IMAGE:-llgtrt/llgtrt:cpu}"
    served="/models/$(basename "$engine")"
    if [[ -d "$engine" ]]; then
        served=/models
        mount_of "$engine" /models readonly
    elif [[ -L "$engine" ]]; then
        # As in the cache of Hugging Face: what it points to is in another folder.
        mount_of "$engine" "$served" readonly
    else
        # The whole folder: a model may be split, and have a projector beside it.
        mount_of "$(dirname "$engine")" /models readonly
    fi
    if [[ -n "${GPUS:-}" ]]; then
        gpu_options
    fi
else
    [[ -d "$engine" ]] || fail "$engine: no such folder"
    for file in config.json rank0.engine; do
        [[ -f "$engine/$file" ]] || fail "$engine/$file not found: this is not an engine folder of trtllm-build"
    done
    gpu_options
    mount_of "$engine" /engine readonly
    served=/engine
fi
options+=(--mount "$mount" --publish "$port:$port")
flags=(--port "$port")

if (($# > 0)) && [[ "$1" != -* ]]; then
    [[ -d "$1" ]] || fail "$1: no such folder (LORA_DIR)"
    mount_of "$1" /lora readonly
    options+=(--mount "$mount")
    flags+=(--lora-root /lora)
    shift
fi
if [[ -n "${LLGTRT_API_KEY:-}" ]]; then
    options+=(--env LLGTRT_API_KEY)
fi

run_docker run "${options[@]}" "$image" "$served" "${flags[@]}" "$@"
