"""What the engine does, in the figures of Dynamo's forward-pass metrics, which its planner goes by.

The engine tells of each pass what took part and how long it took. What waits is read off the requests, and
while no pass has ended, so is what runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from llgtrt.dynamo.answer import AnswerWriter

if TYPE_CHECKING:
    from llgtrt.engine import ForwardPass


@dataclass(frozen=True, slots=True, eq=False)
class LiveRequest:
    """A request that waits or generates.

    Attributes:
        prompt: tokens of its prompt.
        sequences: how many answers it wants.
        writer: knows how far these are.
    """

    prompt: int
    sequences: int
    writer: AnswerWriter


def pass_figures(one: ForwardPass, waiting: Mapping[str, float]) -> dict[str, float]:
    """A pass in the arguments of ``FpmDirectPublisher.publish``.

    Args:
        one: the pass.
        waiting: what :func:`request_figures` gives, of which only what waits is taken.
    """
    return {
        **waiting,
        "scheduled_num_prefill_requests": one.prefill_sequences,
        "scheduled_sum_prefill_tokens": one.prefill_tokens,
        "scheduled_sum_prefill_kv_tokens": one.prefill_context_tokens,
        "scheduled_num_decode_requests": one.decode_sequences,
        "scheduled_sum_decode_kv_tokens": one.decode_context_tokens,
        "wall_time_secs": one.duration_s,
    }


def request_figures(live: Iterable[LiveRequest], slots: int) -> dict[str, float]:
    """The requests in the arguments of ``FpmDirectPublisher.publish``, without a duration: the planner learns
    none from a 0.

    Args:
        live: the requests, the oldest first: so they get their slots.
        slots: how many sequences the engine has in one forward pass.
    """
    decoding = kv_tokens = 0
    unbegun: list[LiveRequest] = []
    for one in live:
        last = one.writer.last
        if last is None:
            unbegun.append(one)
            continue
        left = one.sequences - one.writer.finished
        decoding += left
        kv_tokens += left * one.prompt + last.so_far.completion_tokens * left // one.sequences
    free = max(slots - decoding, 0)
    prefilling = queued = queued_tokens = 0
    for one in unbegun:
        placed = min(one.sequences, free)
        free -= placed
        prefilling += placed
        queued += one.sequences - placed
        queued_tokens += (one.sequences - placed) * one.prompt
    return {
        "scheduled_num_prefill_requests": prefilling,
        "scheduled_sum_prefill_tokens": 0,
        "scheduled_sum_prefill_kv_tokens": 0,
        "scheduled_num_decode_requests": decoding,
        "scheduled_sum_decode_kv_tokens": kv_tokens,
        "queued_num_prefill_requests": queued,
        "queued_sum_prefill_tokens": queued_tokens,
        # No engine interrupts a sequence and takes it up again later.
        "queued_num_decode_requests": 0,
        "queued_sum_decode_kv_tokens": 0,
        "wall_time_secs": 0.0,
    }
