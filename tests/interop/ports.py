"""Ports for servers that want to be told theirs."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import socket
from collections.abc import Iterator
from typing import Final

PORTS: Final = range(15_000, 32_000)
"""Below those from which the kernel takes the ports of outgoing connections: one of those can be
gone before the server listens, or while it is killed and started again."""

SHARES: Final = 16
"""Each worker has ports of its own: another one would take a free port before the server that was
told it listens there."""

_CHANCE: Final = random.SystemRandom()
"""Not the module's own: tests that seed that one would ask for the same ports in all workers."""


def _own_ports() -> Iterator[int]:
    """The ports of this process in turn, without their neighbours -2 and +1."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "").removeprefix("gw")
    share = int(worker) % SHARES if worker.isdecimal() else _CHANCE.randrange(SHARES)
    size = len(PORTS) // SHARES
    first = PORTS[share * size]
    mine = range(first + 2, first + size - 1, 4)
    begin = _CHANCE.randrange(len(mine))
    return itertools.cycle([*mine[begin:], *mine[:begin]])


_PORTS: Final = _own_ports()


def free_port() -> int:
    """A port of the loopback address that is free together with its neighbours -2 and +1, which a
    Java broker takes too."""
    return next(filter(_is_free, _PORTS))


def _is_free(port: int) -> bool:
    with contextlib.ExitStack() as stack:
        try:
            for each in (port - 2, port, port + 1):
                stack.enter_context(socket.socket()).bind(("127.0.0.1", each))
        except OSError:
            return False
        return True
