#!/usr/bin/env bash
# Runs the pip lines of docker/Dockerfile up to the point of writing files (--dry-run), in fresh virtual environments, with an
# old pip and with the newest: what a plain machine can know of whether the image builds. Needs the package registry.
#
#   scripts/check_docker_pip.sh [PIP_VERSION...]
set -euo pipefail
cd "$(dirname "$0")/.."
versions=("$@")
# 24.0 came with Python 3.12; NVIDIA's image has a version between it and the newest.
((${#versions[@]} > 0)) || versions=(24.0 newest)

# A RUN line with its continuations becomes one line; of it, what starts with `python3 -m pip` up to the next &&.
mapfile -t lines < <(sed -e ':join' -e '/\\$/{N;s/\\\n//;b join}' docker/Dockerfile | grep -E '^RUN ' |
    grep -oE 'python3 -m pip [^&]*' | grep -F -- --require-hashes)
((${#lines[@]} >= 2)) || { echo "docker/Dockerfile has no pip lines any more: this script looks for them" >&2; exit 1; }

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
for version in "${versions[@]}"; do
    python3 -m venv "$work/$version"
    pip=(pip)
    [[ "$version" == newest ]] || pip=("pip==$version")
    "$work/$version/bin/python" -m pip install --quiet --disable-pip-version-check --upgrade "${pip[@]}"
    for line in "${lines[@]}"; do
        target="$work/$version-target"
        rm -rf "$target"
        python3 -m venv --without-pip "$target"
        read -ra words <<<"$line"
        # python3 -m pip --python /opt/.../bin/python install ...
        [[ "${words[3]}" == --python && "${words[5]}" == install ]] || { echo "not understood: $line" >&2; exit 1; }
        echo "pip $version: install ${words[*]:6}"
        PIP_CONSTRAINT='' "$work/$version/bin/python" -m pip --disable-pip-version-check \
            --python "$target/bin/python" install --dry-run --quiet "${words[@]:6}"
    done
done
echo "The pip lines of docker/Dockerfile work with pip ${versions[*]}"
