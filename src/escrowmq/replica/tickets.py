"""The tickets with which slaves of ours begin to copy.

RocketMQ's slaves first report where their log ends, and one with an empty log can only get the
master's last file. A slave of ours first sends its master a request, which is authenticated if
access control is on, and gets a number. It presents this number at the replication port in place of
its first report. The number is larger than any log offset, so it cannot be mistaken for a report,
and has too many random bits to be guessed.
"""

from __future__ import annotations

from typing import Final

from escrowmq.base.ports import RandomSource
from escrowmq.replica.sending import Ticket

_LOWEST: Final = 1 << 62
_BITS: Final = 62
TICKETS_MAX: Final = 64
VALID_MS: Final = 20_000


class Tickets:
    """The tickets that were issued and not used yet; each can be used once, within `VALID_MS`."""

    def __init__(self, chance: RandomSource) -> None:
        self._chance = chance
        self._given: dict[int, tuple[Ticket, int]] = {}

    def issue(self, ticket: Ticket, now_ms: int) -> int:
        """Issue a ticket; return its number. If there are too many, the oldest is dropped."""
        fresh = {n: given for n, given in self._given.items() if given[1] > now_ms}
        # A slave that requests another ticket no longer needs the previous one.
        fresh = {n: given for n, given in fresh.items() if given[0].identity != ticket.identity}
        while len(fresh) >= TICKETS_MAX:
            del fresh[next(iter(fresh))]
        number = _LOWEST + self._chance.getrandbits(_BITS)
        fresh[number] = (ticket, now_ms + VALID_MS)
        self._given = fresh
        return number

    def redeem(self, number: int, now_ms: int) -> Ticket | None:
        """Return the ticket with a number, and invalidate it; None if there is none, or it has
        expired."""
        found = self._given.pop(number, None)
        return found[0] if found is not None and found[1] > now_ms else None
