"""What a slave of ours shows at the replication port in place of its first report.

RocketMQ's slaves say there where their log ends, and one whose log is empty can ask for the last
file alone. A slave of ours asks its master by a request first, where it proves itself if anybody
has to, and gets a number: far behind the end of any log, so that it is no report, and too large to
be guessed.
"""

from __future__ import annotations

from typing import Final

from escrowmq.base.ports import Chance
from escrowmq.replica.sending import Ticket

_LOWEST: Final = 1 << 62
_BITS: Final = 62
TICKETS_MAX: Final = 64
VALID_MS: Final = 20_000


class Tickets:
    """Those that were given out and not shown yet; each is good once, and not for long."""

    def __init__(self, chance: Chance) -> None:
        self._chance = chance
        self._given: dict[int, tuple[Ticket, int]] = {}

    def give(self, ticket: Ticket, now_ms: int) -> int:
        """The number that stands for it. The oldest gives way when there are too many."""
        fresh = {n: given for n, given in self._given.items() if given[1] > now_ms}
        # A slave that asks again needs the former one no more.
        fresh = {n: given for n, given in fresh.items() if given[0].identity != ticket.identity}
        while len(fresh) >= TICKETS_MAX:
            del fresh[next(iter(fresh))]
        number = _LOWEST + self._chance.getrandbits(_BITS)
        fresh[number] = (ticket, now_ms + VALID_MS)
        self._given = fresh
        return number

    def take(self, number: int, now_ms: int) -> Ticket | None:
        """What a number stands for; from now on for nothing."""
        found = self._given.pop(number, None)
        return found[0] if found is not None and found[1] > now_ms else None
