"""The broker of one member of a group in memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from escrowmq.base.effects import Close, Dial, Effect, Send, Sync
from escrowmq.base.wire import Wire
from escrowmq.group.membership import GroupMembership
from tests.harness.exchange import Exchange

if TYPE_CHECKING:
    from tests.harness.group import MemberHost


class MemberBroker(Exchange):
    """The broker of a member in one role."""

    _due_ms = 0

    def __init__(self, host: MemberHost, membership: GroupMembership, *, number: int) -> None:
        self._host = host
        super().__init__(
            replace(host.world.settings, broker_id=number),
            replace(host.world.store_settings),
            disk=host.disk,
            now_ms=host.wall_ms,
            membership=membership,
            address=(host.address, 10911),
            seed=host.world.chance.getrandbits(32),
            boot=host.boot,
        )

    def pass_time(self, wall_ms: int) -> None:
        """It is this late now. The core is asked when to wake it only after an input: this is a
        quarter of what a world costs."""
        if wall_ms < self._due_ms:
            self.now_ms = wall_ms
            return
        self.advance(wall_ms - self.now_ms)
        self._due_ms = self.core.wake_at_ms()

    def _perform(self) -> None:
        self._due_ms = 0
        super()._perform()

    def _perform_one(self, effect: Effect) -> None:
        world, host = self._host.world, self._host
        match effect:
            case Dial() if effect.wire is Wire.GROUP:
                world.dial(host, effect)
            case Send(peer, chunks) if (host.name, host.life, peer) in world.links:
                world.carry(host, peer, b"".join(chunks))
            case Sync() if host.fails_syncs or world.sync_delay_ms:
                self.syncs.append(effect)
                end = self.fail_sync if host.fails_syncs else self.sync
                world.later(world.sync_delay_ms, partial(self._end_sync_if, host.life, end))
            case Close(peer, _) if (host.name, host.life, peer) in world.links:
                world.close(host, peer)
            case _:
                super()._perform_one(effect)

    def _end_sync_if(self, life: int, end: Callable[[], None]) -> None:
        if self._host.life == life and self.syncs:
            self._host.arrive(partial(self._end_sync, end))

    def _end_sync(self, end: Callable[[], None]) -> None:
        if self.syncs and self._host.broker is self:
            end()

    def perform(self) -> None:
        self._perform()

    def hear(self, peer: int, data: bytes) -> None:
        self.core.receive(peer, data, self.now_ms)
        self._perform()

    def meet(self, peer: int, host: str) -> None:
        self.core.connected(peer, host, 40_000, self.now_ms, Wire.GROUP)
        self._perform()

    def miss(self, peer: int, *, is_refused: bool = False) -> None:
        if is_refused:
            self.core.dial_refused(peer, self.now_ms)
        self.core.disconnected(peer, self.now_ms)
        self._perform()
