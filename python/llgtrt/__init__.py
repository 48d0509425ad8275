"""llgtrt: an LLM inference server whose constrained answers are always valid."""

import os

# llama.cpp's threads meet at a barrier several hundred times per token, and OpenMP lets them spin there for
# milliseconds. Without cores to spare, a thread that another one has pushed aside (a mask, the event loop)
# then waits for one that only spins. This count is some tens of microseconds: long enough for the usual wait
# between two operations, after which the thread sleeps and gives way. OpenMP reads it when the native module
# is loaded. Tokens/s of the server with 1 and 8 clients on 2 cores, plain, medians of 3 rounds in one run:
# quiet 187 and 520 with 3000, 164 and 535 with 1000, 117 and 484 with 500 (rounds differ by a third);
# beside one other busy process 26 and 152, 35 and 202, 51 and 244.
if (os.cpu_count() or 1) <= 8:
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
