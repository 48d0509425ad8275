# Sourced by the other scripts of this folder.
# shellcheck shell=bash
# shellcheck disable=SC2034 # used by those

image="${IMAGE:-llgtrt/llgtrt:latest}"

fail() {
    echo "Error: $*" >&2
    exit 1
}

# Prints the line on standard error, ready to be used again, and becomes it.
run_docker() {
    local line
    printf -v line '%q ' docker "$@"
    echo "${line% }" >&2
    exec docker "$@"
}

# Options of every container. --init passes signals on.
container_options() {
    options=(--rm --init --interactive)
    # A terminal would mix standard error into what is printed to a file.
    if [[ -t 0 && -t 1 ]]; then
        options+=(--tty)
    fi
}

# --ipc=host and the limits are what NVIDIA asks for.
gpu_options() {
    options+=(--gpus "${GPUS:-all}" --ipc=host --ulimit memlock=-1 --ulimit stack=67108864)
}

# A --mount of the file or folder $1 at $2; further fields may follow. Its form is CSV, so a comma has to be in quotes.
mount_of() {
    local source
    if [[ -d "$1" ]]; then
        source="source=$(cd "$1" && pwd)"
    else
        source="source=$(realpath "$1")"
    fi
    shift
    if [[ "$source" == *[,\"]* ]]; then
        source="\"${source//\"/\"\"}\""
    fi
    local IFS=,
    mount="type=bind,$source,target=$*"
}
