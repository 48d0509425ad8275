"""llgtrt: an LLM inference server whose constrained answers are always valid."""

import os

# llama.cpp's threads meet at a barrier several hundred times per token, and OpenMP lets them spin there for
# milliseconds. Without cores to spare, a thread that another one has pushed aside (a mask, the event loop)
# then waits for one that only spins. This count is some tens of microseconds: long enough for the usual wait
# between two operations, after which the thread sleeps and gives way. OpenMP reads it when the native module
# is loaded. Tokens/s with 8 clients on 2 cores, plain and schema, medians of 4 rounds in one run: 802 and 728
# with 300, 802 and 783 with 3000, 822 and 811 with 100000; on a busy machine the default (about 300000) had
# 183 under a schema where 2000 had 209, with slower kernels.
if (os.cpu_count() or 1) <= 8:
    os.environ.setdefault("GOMP_SPINCOUNT", "3000")
