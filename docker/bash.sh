#!/usr/bin/env bash
# A shell in the image, to make engines with trtllm-build. Options go to `docker run`.
#
#   docker/bash.sh --volume /path/to/models:/models
set -euo pipefail
# shellcheck source=docker/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

container_options
gpu_options
# As the caller, who owns what is made in the mounted folders. The image does not know that user; what asks for a name
# (PyTorch does, for its cache) finds it in the environment.
name="$(id -un 2>/dev/null || echo user)"
run_docker run "${options[@]}" --user "$(id -u):$(id -g)" --env HOME=/tmp --env "USER=$name" --env "LOGNAME=$name" \
    --workdir /tmp \
    --entrypoint /bin/bash "$@" "$image" --login
