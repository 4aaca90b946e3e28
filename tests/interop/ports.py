"""Ports for servers that want to be told theirs."""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

PORTS: Final = range(15_000, 32_000)
"""Below those from which the kernel takes the ports of outgoing connections: one of those can be
gone before the server listens, or while it is killed and started again."""

_CHANCE: Final = random.SystemRandom()
"""Not the module's own: tests that seed that one would ask for the same ports in all workers."""


def free_port() -> int:
    """A port of the loopback address that is free together with its neighbours -2 and +1, which a
    Java broker takes too."""
    while True:
        port = _CHANCE.choice(PORTS)
        with contextlib.ExitStack() as stack:
            try:
                for each in (port - 2, port, port + 1):
                    stack.enter_context(socket.socket()).bind(("127.0.0.1", each))
            except OSError:
                continue
            return port
