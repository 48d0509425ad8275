"""What the engine has to do, in the figures of Dynamo's forward-pass metrics, which its planner goes by.

They are read off the requests between forward passes. What only the engine knows of a single pass is left
out: its duration, and the prompt tokens evaluated in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from llgtrt.dynamo.answer import AnswerWriter


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


def forward_pass_figures(live: Iterable[LiveRequest], slots: int) -> dict[str, int]:
    """Counts of sequences and tokens, named as the arguments of ``FpmDirectPublisher.publish``.

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
        "scheduled_num_decode_requests": decoding,
        "scheduled_sum_decode_kv_tokens": kv_tokens,
        "queued_num_prefill_requests": queued,
        "queued_sum_prefill_tokens": queued_tokens,
    }
