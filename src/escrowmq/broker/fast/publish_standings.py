"""What accounts may publish to, found out once for requests that are alike: for the short cut,
where everybody has to prove who he is.

The door judges (broker/access/door). Here it is remembered what it has let pass, of one connection,
and no longer than its rules stay as they are. Each request has still to be signed, and counts for
its account; whatever is in doubt goes to the door again."""

from __future__ import annotations

from typing import Final

from escrowmq.base.command import Command
from escrowmq.broker.access.door import Door
from escrowmq.broker.asked import Asked
from escrowmq.broker.peer import Peer
from escrowmq.broker.requests.serving import Serving
from escrowmq.codec.signature import ACCESS_KEY, SigningKey, key_of

_KNOWN_MAX: Final = 64
"""Of one connection."""

Wish = tuple[int, str, str]
"""The code of a request, its account, and the topic that it is for."""

Keys = tuple[tuple[SigningKey, ...], ...]
"""Of an account, for each kind of access control: one of each has to fit."""


class Known:
    """What one connection was let do: the keys that it takes; None when the door has to be asked
    each time."""

    __slots__ = ("by_wish", "version")

    def __init__(self) -> None:
        self.by_wish: dict[Wish, Keys | None] = {}
        self.version = -1
        """Of the door's rules."""


class Standings:
    """Asks the door in the name of the short cut, for one run of requests of one connection."""

    def __init__(self, door: Door, serving: Serving) -> None:
        self._door = door
        self._serving = serving
        self._peer: Peer
        self._known: Known
        self._now_ms = 0
        self._counted: list[tuple[str, int]] = []
        """Those that were let in, by account and size."""

    def begin(self, peer: Peer, known: Known, now_ms: int) -> bool:
        """A run begins; False when all of it is for the door."""
        if not self._door.may_remember(peer):
            return False
        if known.version != self._door.version:
            known.by_wish.clear()
            known.version = self._door.version
        self._peer, self._known, self._now_ms = peer, known, now_ms
        return True

    def let_in(self, wish: Wish, content: bytes, signature: bytes, body: bytes) -> bool:
        """Whether a plain message, or a batch of them, may be stored; it is counted then."""
        by_wish = self._known.by_wish
        try:
            accepted = by_wish[wish]
        except KeyError:
            if len(by_wish) >= _KNOWN_MAX:
                by_wish.clear()
            accepted = by_wish[wish] = self._keys(wish)
        if accepted is None:
            return False
        for keys in accepted:
            if not any(key.has_signed(signature, content, body) for key in keys):
                return False
        _, account, topic = wish
        size = len(body)
        quotas = self._door.quotas
        if not quotas.take_plain(self._peer, account, topic, size, self._now_ms):
            return False
        self._counted.append((account, size))
        return True

    def _keys(self, wish: Wish) -> Keys | None:
        code, account, topic = wish
        command = Command(code=code, ext={ACCESS_KEY: account, "b": topic, "i": ""})
        row = self._serving.row(code)
        found = self._door.standing(Asked(self._peer, row, command, None, self._now_ms))
        if found is None:
            return None
        return tuple(tuple(key_of(each) for each in one.secrets if each) for one in found)

    def take_back(self) -> None:
        """The last one that was let in was not put after all: it comes again, at the door."""
        self._door.quotas.give_back(*self._counted.pop())

    def end(self, *, is_stored: bool) -> None:
        """The run is over."""
        while not is_stored and self._counted:
            self.take_back()
        self._counted.clear()
