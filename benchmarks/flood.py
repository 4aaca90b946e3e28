"""Halves at a pace that does not wait for answers.

python benchmarks/flood.py ADDRESS RATE SECONDS
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

import pipe

from escrowmq.base.command import Command

_UNANSWERED_MAX = 20_000


async def flood(address: str, rate: float, seconds: float) -> dict[str, int]:
    """Offer them; what became of them."""
    link = await pipe.connect(address)
    counts = {"sent": 0, "accepted": 0, "shed": 0, "held": 0}

    def take(reply: Command) -> None:
        assert reply.code in (0, 2), reply
        counts["shed" if reply.code else "accepted"] += 1

    begin = time.monotonic()
    while (now := time.monotonic() - begin) < seconds:
        due = int(now * rate) - counts["sent"] - counts["held"]
        for _ in range(min(due, 500)):
            if link.waiting_count >= _UNANSWERED_MAX:
                counts["held"] += 1
                continue
            counts["sent"] += 1
            link.ask(*pipe.half("Flood", 10**10 + counts["sent"]), take)
        await asyncio.sleep(0.001)
    while link.waiting_count:
        await asyncio.sleep(0.01)
    return counts


if __name__ == "__main__":
    print(json.dumps(asyncio.run(flood(sys.argv[1], float(sys.argv[2]), float(sys.argv[3])))))
