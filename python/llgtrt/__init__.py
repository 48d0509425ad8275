"""llgtrt: an LLM inference server whose constrained answers are always valid."""

import os

# llama.cpp's threads meet at a barrier several hundred times per token, and OpenMP lets them spin there for
# milliseconds. Without cores to spare, a thread that another one has pushed aside (a mask, the event loop)
# then waits for one that only spins. With a short spin the waiting thread sleeps and gives way. Tokens/s with
# 8 clients under a schema on 2 cores: 183 by default and 209 with a count of 2000 in one run, 198 with 2000
# and 210 with 300 in another. OpenMP reads it when the native module is loaded.
if (os.cpu_count() or 1) <= 8:
    os.environ.setdefault("GOMP_SPINCOUNT", "300")
