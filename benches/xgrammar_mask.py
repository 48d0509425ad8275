"""xgrammar's kernel for applying bitmasks, timed as mask_kernel.py times ours, which runs this.

Runs in an environment of its own that has torch and xgrammar. Reads lines `DTYPE VOCAB BATCH`, answers each
with the microseconds of one call.
"""

from __future__ import annotations

import importlib
import statistics
import sys
from typing import Any

WARM_UP = 3
RUNS = 31


def time_case(torch: Any, xgrammar: Any, dtype: str, vocab: int, batch: int) -> float:
    kind = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}[dtype]
    torch.manual_seed(20)
    logits_bytes = batch * vocab * kind.itemsize
    # In turn over enough copies of the logits that they do not stay in the cache.
    copies = max(4, min(1024, 4 * torch.cuda.get_device_properties(0).L2_cache_size // logits_bytes + 1))
    logits = [torch.randn(batch, vocab, device="cuda").to(kind) for _ in range(copies)]
    words = (vocab + 31) // 32
    mask = torch.randint(-(2**31), 2**31 - 1, (batch, words), dtype=torch.int32, device="cuda")
    for _ in range(WARM_UP):  # compiles
        xgrammar.apply_token_bitmask_inplace(logits[0], mask)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for each in logits:
            xgrammar.apply_token_bitmask_inplace(each, mask)
    times: list[float] = []
    for run in range(-WARM_UP, RUNS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        if run >= 0:
            times.append(float(begin.elapsed_time(end)))
    per_call = 1000 / float(copies)
    return statistics.median(times) * per_call


def main() -> None:
    torch, xgrammar = (importlib.import_module(name) for name in ("torch", "xgrammar"))
    for line in sys.stdin:
        dtype, vocab, batch = line.split()
        print(f"{time_case(torch, xgrammar, dtype, int(vocab), int(batch)):.3f}", flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
