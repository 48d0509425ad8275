#!/usr/bin/env bash
# The image's entry point: serves ENGINE_DIR with one process for each rankN.engine in it.
#
#   llgtrt-launch ENGINE_DIR [flags of llgtrt]
set -euo pipefail

if (($# == 0)); then
    exec llgtrt --help
fi

engine="$1"
ranks=0
while [[ -f "$engine/rank$ranks.engine" ]]; do
    ranks=$((ranks + 1))
done

# What only prints needs one process, and so does one that mpirun or Slurm has started already.
for flag in "$@"; do
    case "$flag" in
        --print-* | --test-py | --help | --version) ranks=1 ;;
    esac
done
if [[ -n "${OMPI_COMM_WORLD_RANK:-}${PMI_RANK:-}${PMIX_RANK:-}" ]] || ((${SLURM_STEP_NUM_TASKS:-1} > 1)); then
    ranks=1
fi

if ((ranks < 2)); then
    exec llgtrt serve "$@"
fi
root_option=()
if ((EUID == 0)); then
    root_option=(--allow-run-as-root)
fi
# Open MPI would bind each of one or two processes to a single core, where masks and compilation share it.
mpirun -n "$ranks" --bind-to none "${root_option[@]}" llgtrt serve "$@" &
mpirun=$!

# mpirun would kill its processes a second after a signal. They get it here instead: the first one drains, and the
# others end with it.
forward() {
    signalled=true
    local children
    children="$(cat "/proc/$mpirun/task/"*/children 2>/dev/null || true)"
    for child in $children; do
        kill -"$1" "$child" 2>/dev/null || true
    done
}
trap 'forward TERM' TERM
trap 'forward INT' INT

# A signal ends the wait, not what is waited for.
while true; do
    signalled=false
    code=0
    wait "$mpirun" || code=$?
    "$signalled" || exit "$code"
done
