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
exec mpirun -n "$ranks" "${root_option[@]}" llgtrt serve "$@"
