"""What happens to a group in memory, at times that a seed decides."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Final

from escrowmq.base.codes import Request
from escrowmq.testing.disk import CrashLoss, SimDisk
from tests.harness.group import GroupWorld, MemberHost

_LONGEST_MS: Final = 12_000


class Faults:
    """Begins faults, and ends each some time later."""

    def __init__(self, world: GroupWorld, chance: random.Random) -> None:
        self._world = world
        self._chance = chance
        self._kinds: tuple[Callable[[MemberHost], None], ...] = (
            self._kill, self._kill, self._kill, self._kill, self._lose_power, self._freeze,
            self._freeze, self._freeze, self._isolate, self._isolate, self._isolate,
            self._cut_one_way, self._lose_authority, self._part_from_all,
            self._switch, self._slow, self._damage, self._fill_disk, self._fail_syncs,
        )  # fmt: skip
        self._has_damaged = False
        self.notes: list[str] = []

    def replace_machines(self) -> None:
        """From now on, members also lose their folders for good."""
        self._kinds = (*self._kinds, self._replace_machine, self._replace_machine)

    def happen(self) -> None:
        """One more."""
        world, chance = self._world, self._chance
        hosts = [*world.hosts.values()]
        serving = world.serving
        # Masters are hit more often than others: there is more to lose.
        host = serving if serving is not None and chance.random() < 0.5 else chance.choice(hosts)
        kind = chance.choice(self._kinds)
        self.notes.append(f"{world.now_ms}: {kind.__name__.strip('_')} {host.name}")
        kind(host)

    def _later(self, act: Callable[[], None]) -> None:
        span_ms = int(_LONGEST_MS * self._chance.random() ** 2)
        self._world.later(span_ms, act)

    def _start(self, host: MemberHost) -> Callable[[], None]:
        def start() -> None:
            if not host.is_up:
                host.start()

        return start

    def _kill(self, host: MemberHost) -> None:
        if host.is_up:
            host.kill()
            self._later(self._start(host))

    def _lose_power(self, host: MemberHost) -> None:
        if host.is_up:
            host.kill(self._chance.choice([CrashLoss.ALL, CrashLoss.PREFIX, CrashLoss.SUBSET]))
            self._later(self._start(host))

    def _replace_machine(self, host: MemberHost) -> None:
        serving, record = self._world.serving, self._world.record
        # Never the last one that has everything.
        if record is None or serving is None or serving is host or not host.is_up:
            return
        host.kill()
        host.disk = SimDisk()
        host.boot = f"{host.boot}+"
        self._later(self._start(host))

    def _damage(self, host: MemberHost) -> None:
        # Once in a world: where all who had everything have lost some of it, little is left to see.
        if host.is_up and not self._has_damaged:
            self._has_damaged = True
            host.kill_and_rot()
            self._later(self._start(host))

    def _fill_disk(self, host: MemberHost) -> None:
        disk = host.disk
        disk.room = disk.used

        def free() -> None:
            disk.room = None

        self._later(free)

    def _fail_syncs(self, host: MemberHost) -> None:
        host.fails_syncs = True

        def mend() -> None:
            host.fails_syncs = False

        self._later(mend)

    def _freeze(self, host: MemberHost) -> None:
        if host.is_up and not host.is_frozen:
            host.freeze()
            life = host.member

            def thaw() -> None:
                if host.is_up and host.member is life and host.is_frozen:
                    host.thaw()

            self._later(thaw)

    def _isolate(self, host: MemberHost) -> None:
        self._world.isolate(host.name)
        self._later(self._world.mend)

    def _cut_one_way(self, host: MemberHost) -> None:
        other = self._chance.choice([name for name in self._world.hosts if name != host.name])
        self._world.cuts.add(self._chance.choice([(host.name, other), (other, host.name)]))
        self._later(self._world.mend)

    def _lose_authority(self, host: MemberHost) -> None:
        del host
        self._world.authority.is_reachable = False

        def find() -> None:
            self._world.authority.is_reachable = True

        self._later(find)

    def _part_from_all(self, host: MemberHost) -> None:
        self._world.isolate(host.name)
        self._world.without_authority.add(host.name)

        def find() -> None:
            self._world.mend()
            self._world.without_authority.clear()

        self._later(find)

    def _switch(self, host: MemberHost) -> None:
        del host
        serving = self._world.serving
        if serving is not None and serving.broker is not None:
            serving.broker.connect("operator").begin(Request.ESCROW_GROUP_SWITCH, {})

    def _slow(self, host: MemberHost) -> None:
        del host
        self._world.delay_max_ms = self._chance.choice([2, 5, 50, 200])
