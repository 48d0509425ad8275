"""TensorRT-LLM outside of a running server: the plugin's sources, and processes that work for a leader."""

from __future__ import annotations

import logging
import signal

from llgtrt import _native

logger = logging.getLogger("llgtrt.engine")


def plugin_sources() -> list[tuple[str, str]]:
    """Path and text of every file that the plugin is built from."""
    return _native.trtllm_plugin_sources()


def process_rank() -> int:
    """This process's rank among those that mpirun or Slurm started; 0 leads, and so does a process alone."""
    return _native.mpi_rank()[0]


def work_for_leader(config: str) -> int:
    """Runs a part of the engine until the leader ends, and gives the exit code. Opens no port.

    Signals are ignored: the leader's end is what ends it.

    Raises:
        ConfigurationError: the configuration or the engine is unusable.
    """
    # mpirun and Slurm send signals to every process. The leader drains then and needs this one to the end.
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    rank, size = _native.mpi_rank()
    logger.info("process %d of %d: the first one serves, this one works for it", rank + 1, size)
    _native.run_trtllm_worker(config)
    logger.info("the leader has ended")
    return 0
