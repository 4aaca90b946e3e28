"""What a broker knows of its group."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from escrowmq.group.copying import Cut
from escrowmq.group.member import Member
from escrowmq.group.record import Record


class Seat:
    """One for each time that a member's broker is opened, as master or as copy."""

    def __init__(  # noqa: PLR0913 - what a member knows and its broker must be told
        self,
        member: Member,
        *,
        cluster: str,
        broker: str,
        secret: bytes,
        nonce: Callable[[], str],
        perform: Callable[[], None],
        now_ms: Callable[[], int],
        timeout_ms: int,
        min_copies: int,
        leads: Record | None,
    ) -> None:
        """`perform` carries out the member's orders: what has to be kept is durable when it
        returns. `now_ms` is the member's own time, which does not jump with the clock.
        `leads`: the record of the epoch that this broker is the master of."""
        self.member: Final = member
        self.cluster: Final = cluster
        self.broker: Final = broker
        self.secret: Final = secret
        self.nonce: Final = nonce
        self.perform: Final = perform
        self.now_ms: Final = now_ms
        self.timeout_ms: Final = timeout_ms
        self.min_copies: Final = min_copies
        self.leads: Final = leads
        self.epoch_end = 0
        """Of a master: the log's end when its epoch began. Once that is confirmed, clients are let
        in."""
        self._on_ready: Callable[[], None] | None = None
        self.on_cut: Callable[[Cut], None] | None = None
        """Called by a copy that has something that its master has not."""

    def when_ready(self, on_ready: Callable[[], None]) -> None:
        """Be called once clients may be let in."""
        self._on_ready = on_ready

    def ready(self) -> None:
        """What this epoch began with is confirmed."""
        if self._on_ready is not None:
            self._on_ready()
