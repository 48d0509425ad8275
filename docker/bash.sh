#!/usr/bin/env bash
# A shell in the image, to make engines with trtllm-build. Options go to `docker run`.
#
#   docker/bash.sh --volume /path/to/models:/models
set -euo pipefail
# shellcheck source=docker/common.sh
source "$(dirname "${BASH_SOURCE[0]}")/common.sh"

container_options
# As the caller, who owns what is made in the mounted folders.
run_docker run "${options[@]}" --user "$(id -u):$(id -g)" --env HOME=/tmp --workdir /tmp \
    --entrypoint /bin/bash "$@" "$image" --login
