"""Frames that the core writes to connections itself."""

from __future__ import annotations

import socket
from collections.abc import Callable

from support.core import Core

FRAMES = 20


def test_frames_reach_a_connection_whatever_the_event_loop_does(make_core: Callable[..., Core]) -> None:
    core = make_core(sim={"step_us": 1000})
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.settimeout(20)
        handle = core.submit(output="chat_sse", max_tokens=4 * FRAMES, ignore_eos=True)
        frames, _ = core.next(handle)
        assert isinstance(frames, bytes)
        assert handle.write_to(ours.fileno(), frames) == b""
        while (taken := handle.take()) is not None:
            frames, last = taken
            assert isinstance(frames, bytes)
            assert not last
            assert handle.write_to(ours.fileno(), frames) == b""
        # Nobody drains.
        received = b""
        while received.count(b"data: ") < FRAMES:
            received += theirs.recv(1 << 16)
        assert handle.stop_writing() == b""
        # What follows, the end among it, is the reader's.
        rest, last = b"", False
        while not last:
            payload, last = core.next(handle)
            assert isinstance(payload, bytes)
            rest += payload
        assert rest.endswith(b"data: [DONE]\n\n")
