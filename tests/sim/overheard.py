"""What is said about checks on the connections of a broker, heard on their way for whoever counts
them. The broker itself is not asked."""

from __future__ import annotations

from collections.abc import Callable

from escrowmq.base.codes import Request
from escrowmq.base.own_properties import OPEN
from escrowmq.codec.frame import FrameReader
from tests.sim.ledger import COMMIT, ROLLBACK, Ident
from tests.sim.stage import Stage
from tests.sim.tally import Tally

_CHECK_MARK = b'"code":%d,' % Request.CHECK_TRANSACTION_STATE
_DECIDED = (str(COMMIT), str(ROLLBACK))


class Overheard:
    """Tells a tally of the checks that leave, and of the answers that hold one open. Such an answer
    is heard when the broker has worked it off, not when it was sent."""

    def __init__(self, stage: Stage, tally: Tally, broker_ms: Callable[[], int]) -> None:
        self._stage = stage
        self._tally = tally
        self._broker_ms = broker_ms
        self._readers: dict[int, FrameReader] = {}

    def sent(self, peer: int, chunk: bytes) -> None:
        """Bytes were handed to a connection."""
        if _CHECK_MARK in chunk[:40]:
            for command in FrameReader().read_commands(chunk):
                ident = _ident(command.ext or {})
                self._stage.note("check of %s sent", ident)
                self._tally.check_sent(ident, peer, self._broker_ms())

    def received(self, peer: int, data: bytes) -> None:
        """Bytes came, in any pieces, and were worked off."""
        for command in self._readers.setdefault(peer, FrameReader()).read_commands(data):
            ext = command.ext or {}
            is_open = ext.get(OPEN) == "true" and ext.get("commitOrRollback") not in _DECIDED
            if command.code == Request.END_TRANSACTION and is_open:
                self._tally.held_open(_ident(ext), peer)

    def lost(self, peer: int, heard_ms: int) -> None:
        """A connection has ended, of which something came last at a time."""
        self._readers.pop(peer, None)
        self._tally.lost(peer, heard_ms)

    def hang_up(self) -> None:
        """The broker is gone, and every connection with it."""
        self._readers.clear()


def _ident(ext: dict[str, str]) -> Ident:
    return ext["transactionId"], int(ext["commitLogOffset"])
