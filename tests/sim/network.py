"""Byte streams between simulated peers: late, in pieces, cut, half open; never out of order
within one connection, always out of order between two."""

from __future__ import annotations

from functools import partial
from typing import Protocol

from tests.sim.clock import Action
from tests.sim.stage import Stage

Address = tuple[str, int]


class End(Protocol):
    """Who sits at one end of a connection."""

    def opened(self, link: Link) -> None:
        """The connection is there."""

    def received(self, link: Link, data: bytes) -> None:
        """Bytes came."""

    def lost(self, link: Link) -> None:
        """The connection is gone, or could not be made."""


class Delays:
    """How long bytes travel, in ms: usually up to `usual_ms`, now and then up to `late_ms`."""

    def __init__(self, *, usual_ms: int, late_ms: int, late_chance: float) -> None:
        self.usual_ms = usual_ms
        self.late_ms = late_ms
        self.late_chance = late_chance


class Link:
    """One connection. A side that does not know yet that it is gone still writes into it."""

    def __init__(self, network: SimNetwork, caller: End, callee: End, host: Address) -> None:
        self.caller = caller
        self.callee = callee
        self.host = host
        """The caller's address, as the callee sees it."""
        self.is_carrying = True
        self._network = network
        self._is_open = {True: True, False: True}
        self._last_ms = {True: 0, False: 0}

    def send(self, data: bytes, *, is_from_caller: bool) -> None:
        """Write bytes; they arrive in order and in any pieces, or never."""
        stage = self._network.stage
        pieces = [data]
        if len(data) > 1 and stage.happens(self._network.split_chance):
            at = stage.chance.randrange(1, len(data))
            pieces = [data[:at], data[at:]]
        for piece in pieces:
            self._later(partial(self._arrive, piece, is_from_caller), is_from_caller)

    def is_open_at(self, *, is_caller: bool) -> bool:
        """Whether a side takes the connection for open."""
        return self._is_open[is_caller]

    def _later(self, action: Action, is_from_caller: bool) -> None:
        clock = self._network.stage.clock
        when_ms = max(clock.now_ms() + self._network.delay_ms(), self._last_ms[is_from_caller])
        self._last_ms[is_from_caller] = when_ms
        clock.at(when_ms, action)

    def _arrive(self, data: bytes, is_from_caller: bool) -> None:
        if self.is_carrying and self._is_open[not is_from_caller]:
            end = self.callee if is_from_caller else self.caller
            end.received(self, data)

    def _tell(self, is_caller: bool) -> None:
        if self._is_open[is_caller]:
            self._is_open[is_caller] = False
            (self.caller if is_caller else self.callee).lost(self)

    def close(self, *, is_caller: bool) -> None:
        """Close one side; what it wrote before still arrives, then the other side learns of it."""
        if self._is_open[is_caller]:
            self._is_open[is_caller] = False
            self._later(partial(self._tell, not is_caller), is_caller)

    def cut(self) -> None:
        """The connection breaks: what is under way is lost, and both sides learn of it."""
        self.is_carrying = False
        clock, chance = self._network.stage.clock, self._network.stage.chance
        for is_caller in (True, False):
            clock.after(chance.randrange(1, 500), partial(self._tell, is_caller))

    def break_silently(self) -> None:
        """Half open: the caller learns of it, the callee keeps writing into nothing."""
        self.is_carrying = False
        delay_ms = self._network.stage.chance.randrange(1, 500)
        self._network.stage.clock.after(delay_ms, partial(self._tell, True))


class SimNetwork:
    """Who listens where, and every connection."""

    def __init__(self, stage: Stage, delays: Delays, *, split_chance: float) -> None:
        self.stage = stage
        self.split_chance = split_chance
        self._delays = delays
        self._doors: dict[Address, End] = {}

    def delay_ms(self) -> int:
        """How long the next bytes travel."""
        chance, delays = self.stage.chance, self._delays
        if self.stage.happens(delays.late_chance):
            self.stage.faults["late bytes"] += 1
            return chance.randrange(1, delays.late_ms)
        return chance.randrange(0, delays.usual_ms)

    def listen(self, address: Address, end: End) -> None:
        """Open a door."""
        self._doors[address] = end

    def shut(self, address: Address) -> None:
        """Close a door; connections that stand are not touched."""
        self._doors.pop(address, None)

    def connect(self, caller: End, host: Address, address: Address) -> Link:
        """Make a connection; `opened` or `lost` follows at both ends."""
        callee = self._doors.get(address)
        link = Link(self, caller, callee or caller, host)

        def arrive() -> None:
            found = self._doors.get(address)
            if found is None or found is not callee:
                link.is_carrying = False
                link.close(is_caller=False)
                return
            found.opened(link)
            self.stage.clock.after(self.delay_ms(), answered)

        def answered() -> None:
            if link.is_carrying and link.is_open_at(is_caller=True):
                caller.opened(link)

        self.stage.clock.after(self.delay_ms(), arrive)
        return link
