"""A broker that forgets some ENDs and never asks: what compensation is for.

    python -m tests.compensation.forgetful 0.3 AHEAD_MS serve --data DIR ...

It forgets all ENDs of a share of the transactions, chosen by their message's body: sending one
again is of no use, and each run of a test forgets the same ones. Its clock may be ahead, or behind.
Everything else is EscrowMQ's own broker.
"""

from __future__ import annotations

import sys
import time
import zlib

from escrowmq.broker.fast.fast_path import FastPath
from escrowmq.cli.main import main
from escrowmq.txn.end_claim import Claim, EndReply, EndResult
from escrowmq.txn.end_requests import EndRequests

_end = EndRequests.end


def is_forgotten(body: bytes, share: float) -> bool:
    """Whether the broker forgets the ENDs of a transaction."""
    return zlib.crc32(body) % 1000 < share * 1000


def forget(share: float) -> None:
    """From now on, brokers of this process forget."""

    def end(self: EndRequests, claim: Claim, now_ms: int) -> EndReply:
        half = None if claim.who else self._store.read(claim.log_offset)  # not an operator's
        if half is not None and is_forgotten(half.body, share):
            return EndReply(EndResult.NOT_FOUND)  # an answer, for which no client has to wait
        return _end(self, claim, now_ms)

    EndRequests.end = end  # type: ignore[method-assign]
    # All of them by the general path, which asks here.
    FastPath._put_ends = lambda *words: words[4]  # type: ignore[method-assign]


def set_clock(ahead_ms: int) -> None:
    """From now on, this process has another time."""
    right = time.time_ns
    time.time_ns = lambda: right() + ahead_ms * 1_000_000


if __name__ == "__main__":
    forget(float(sys.argv[1]))
    set_clock(int(sys.argv[2]))
    sys.exit(main(sys.argv[3:]))
