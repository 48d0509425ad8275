#!/usr/bin/env bash
# Builds the image. Options after `--` go to `docker build`.
#
#   docker/build.sh [--trtllm IMAGE] [--architectures "90;100"] [-- DOCKER_OPTIONS...]
#
# IMAGE (llgtrt/llgtrt:latest) names the result.
set -euo pipefail
# shellcheck source=docker/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

usage() {
    echo "Usage: docker/build.sh [--trtllm IMAGE] [--architectures LIST] [-- DOCKER_OPTIONS...]"
}

options=()
while (($# > 0)); do
    case "$1" in
        --trtllm | --architectures)
            if [[ -z "${2:-}" || "$2" == -* ]]; then
                fail "$1 needs a value"
            fi
            if [[ "$1" == --trtllm ]]; then
                options+=(--build-arg "BASE_IMAGE=$2")
            else
                options+=(--build-arg "GPU_ARCHITECTURES=$2")
            fi
            shift 2
            ;;
        --)
            shift
            options+=("$@")
            break
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *)
            fail "unknown option: $1 ($(usage))"
            ;;
    esac
done

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
run_docker build "${options[@]}" --tag "$image" --file "$root/docker/Dockerfile" "$root"
