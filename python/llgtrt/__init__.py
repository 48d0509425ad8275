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

# mimalloc keeps pages that are free again for seconds before it gives them back, and two of each size in
# every thread. Grammars come and go in sizes from bytes to megabytes, and what was kept of them grew for as
# long as new ones came: after 60 rounds of the soak's load a server held 149 MB, so 111. Neither the time
# of masks (11.2 us on average, both) nor the CPU of a streamed token (64 streams) changes. Read when the
# native module is loaded.
os.environ.setdefault("MIMALLOC_PURGE_DELAY", "0")
os.environ.setdefault("MIMALLOC_PAGE_FULL_RETAIN", "0")
