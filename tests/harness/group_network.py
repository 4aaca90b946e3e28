"""The network between the members of a group in memory: it delays, cuts and forgets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING

from escrowmq.base.effects import Dial

if TYPE_CHECKING:
    import random

    from tests.harness.group import MemberHost

DIAL_MS = 3_000


class Network:
    """Connections, by the name of a member, its life there, and its number for the other."""

    chance: random.Random
    now_ms: int
    hosts: dict[str, MemberHost]
    delay_max_ms: int

    def __init__(self) -> None:
        self.links: dict[tuple[str, int, int], tuple[MemberHost, int, int]] = {}
        self._next_peer = 5_000
        self.cuts: set[tuple[str, str]] = set()
        """Nothing goes from the one to the other."""
        self.tls_failed: set[str] = set()
        """Members with whom TLS fails, when they dial a master."""
        self.dials_count = 0
        self.last_arrival: dict[tuple[str, str], int] = defaultdict(int)

    def later(self, delay_ms: int, act: Callable[[], None]) -> None:
        """Something happens after a time."""
        raise NotImplementedError

    def _delay(self) -> int:
        return self.chance.randint(0, self.delay_max_ms)

    # -- the network -------------------------------------------------------------------------

    def is_cut(self, one: MemberHost, other: MemberHost) -> bool:
        return (one.name, other.name) in self.cuts or (other.name, one.name) in self.cuts

    def dial(self, host: MemberHost, called: Dial) -> None:
        other = next(h for h in self.hosts.values() if h.address == called.host)
        life = host.life
        self.dials_count += 1

        def fail(*, is_refused: bool) -> None:
            if host.is_up and host.life == life:
                assert host.broker is not None
                host.broker.miss(called.peer, is_refused=is_refused)

        if self.is_cut(host, other):
            self.later(DIAL_MS, lambda: host.arrive(lambda: fail(is_refused=False)))
            return

        def reach() -> None:
            if other.leader is None:
                self.later(self._delay(), lambda: host.arrive(lambda: fail(is_refused=True)))
                return
            if not host.is_up or host.life != life:
                return
            if host.name in self.tls_failed:
                host.arrive(lambda: self._distrust(host, life, called.peer))
                return
            peer, self._next_peer = self._next_peer, self._next_peer + 1
            self.links[host.name, life, called.peer] = (other, other.life, peer)
            self.links[other.name, other.life, peer] = (host, life, called.peer)
            there = other.life
            other.arrive(lambda: self._meet(other, there, peer, host.address))
            host.arrive(lambda: self._meet(host, life, called.peer, called.host))

        self.later(self._delay(), reach)

    def _meet(self, host: MemberHost, life: int, peer: int, address: str) -> None:
        if host.life == life and host.broker is not None and (host.name, life, peer) in self.links:
            host.broker.meet(peer, address)

    def _distrust(self, host: MemberHost, life: int, peer: int) -> None:
        """TLS 1.3: who dials learns that its certificate is refused when it is connected."""
        if host.life == life and host.broker is not None:
            host.broker.meet(peer, "10.0.0.9")
            host.broker.core.dial_tls_failed(
                peer, "its certificate is not taken", host.broker.now_ms
            )
            host.broker.miss(peer)

    def carry(self, host: MemberHost, peer: int, data: bytes) -> None:
        other, life, there = self.links[host.name, host.life, peer]
        if (host.name, other.name) in self.cuts:
            return  # it is lost, and so is what comes after it: the connection is dead
        key = (host.name, other.name)
        at_ms = max(self.last_arrival[key], self.now_ms + self._delay())
        self.last_arrival[key] = at_ms

        def hear() -> None:
            if (other.name, life, there) in self.links and other.broker and other.life == life:
                other.broker.hear(there, data)

        self.later(at_ms - self.now_ms, lambda: other.arrive(hear))

    def close(self, host: MemberHost, peer: int) -> None:
        """One end closes a connection."""
        other, life, there = self.links.pop((host.name, host.life, peer))
        if host.broker is not None:
            host.broker.miss(peer)
        self._tell_closed(host, other, life, there)

    def _tell_closed(self, host: MemberHost, other: MemberHost, life: int, there: int) -> None:
        def miss() -> None:
            was_linked = self.links.pop((other.name, life, there), None) is not None
            if was_linked and other.life == life and other.broker is not None:
                other.broker.miss(there)

        if not self.is_cut(host, other):
            key = (host.name, other.name)
            at_ms = max(self.last_arrival[key], self.now_ms + self._delay())
            self.later(at_ms - self.now_ms, lambda: other.arrive(miss))

    def forget(self, host: MemberHost, *, tells: bool) -> None:
        """All connections of a machine are gone; the others hear of it where the machine lives."""
        for (name, life, peer), (other, theirs, there) in [*self.links.items()]:
            if name == host.name and life == host.life:
                del self.links[name, life, peer]
                if tells:
                    self._tell_closed(host, other, theirs, there)

    def isolate(self, name: str) -> None:
        """Nothing comes to a machine or from it; the authority is still reached."""
        for other in self.hosts:
            if other != name:
                self.cuts |= {(name, other), (other, name)}

    def mend(self) -> None:
        self.cuts.clear()
