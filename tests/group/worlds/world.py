"""One group in memory with clients and faults, from a seed: `python -m tests.group.worlds.world
SEED` prints what happened."""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from msgspec.structs import replace

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.drill.history import ReadMessage
from escrowmq.drill.judge import find_violations
from escrowmq.group.member_timeouts import MemberTimeouts
from escrowmq.store.store import Store
from tests.group.worlds.bundles import BundleSender
from tests.group.worlds.clients import (
    QUEUES,
    TOPIC,
    Client,
    Journal,
    Reader,
    Sender,
    TransactionSender,
)
from tests.group.worlds.delays import DelayedSender
from tests.group.worlds.faults import Faults
from tests.group.worlds.pops import Popper
from tests.group.worlds.remade_topics import Remaker
from tests.harness.exchange import SMALL
from tests.harness.group import STEP_MS, GroupWorld, MemberHost
from tests.harness.pair import log_of, queues_of

REMAKES_FROM: Final = 1_000_000
"""In worlds from this seed on a topic is deleted and made again. (Those before it stay what they
were when they found something.)"""

WAITS_FROM: Final = 20_000_000
"""In worlds from this seed on there are delayed messages, pops, and transactions of several
messages, too; in some the clocks differ."""

CLEANS_FROM: Final = 30_000_000
"""In worlds from this seed on the log's oldest files are deleted from time to time, too."""

REPLACES_FROM: Final = 40_000_000
"""In worlds from this seed on members lose their folders for good, too."""

_SKEWS_MS: Final = (0, 3_000, 20_000, -15_000)
_DAYS_MS: Final = (0, 0, 200_000_000)
_SPAN_MS: Final = 20_000
_CALM_MS: Final = 60_000
_TERMS: Final = MemberTimeouts(silence_ms=1_000, takeover_ms=2_000, leader_look_ms=5_000)
_SETTINGS: Final = BrokerSettings(
    name="b", transaction_timeout_ms=1_000, transaction_check_interval_ms=1_000
)


class Violation(AssertionError):
    """A promise was broken."""


class RandomWorld:
    """A group that is not left alone."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        is_sync = chance.random() < 0.3
        self.world = GroupWorld(
            chance.getrandbits(32),
            chance.choice(["abc", "abc", "ab"]),
            terms=_TERMS,
            store=replace(
                SMALL, log_segment_size=1 << 16, is_sync_flush=is_sync, deletes_forcibly=False
            ),
            settings=_SETTINGS,
            sync_delay_ms=chance.choice([0, 20]),
        )
        self.world.delay_max_ms = chance.choice([2, 5, 50])
        self.world.authority_loss = chance.choice([0.0, 0.0, 0.1, 0.3])
        self.seen = Journal()
        self.faults = Faults(self.world, chance)
        self.clients: list[Client] = [
            Sender(self.world, "s", chance, self.seen),
            TransactionSender(self.world, "t", chance, self.seen),
            TransactionSender(self.world, "u", chance, self.seen),
            Reader(self.world, "r", chance, self.seen),
        ]
        self.remaker: Remaker | None = None
        self.seen.forgets = seed >= CLEANS_FROM
        self._cleaning = random.Random(seed * 5) if seed >= CLEANS_FROM else None
        if REMAKES_FROM <= seed < CLEANS_FROM:
            # With a chance of its own: what others do stays comparable.
            self.remaker = Remaker(self.world, "m", random.Random(~seed), self.seen)
            self.clients.append(self.remaker)
        self.delays: DelayedSender | None = None
        self.popper: Popper | None = None
        if seed >= WAITS_FROM:
            self._add_waiting(random.Random(seed * 3))
        if seed >= REPLACES_FROM:
            self.faults.replace_machines()

    def _add_waiting(self, chance: random.Random) -> None:
        self.delays = DelayedSender(self.world, "d", chance, self.seen)
        self.popper = Popper(self.world, "p", chance, self.seen)
        bundles = BundleSender(self.world, "b", chance, self.seen)
        self.clients += [self.delays, self.popper, bundles]
        self.delays.is_hasty = self._cleaning is not None
        if chance.random() < 0.5:
            skews_ms = chance.choice((_SKEWS_MS, _DAYS_MS))
            for host in self.world.hosts.values():
                host.skew_ms = chance.choice(skews_ms)
            self.delays.has_skew = True
            self.delays.has_times = skews_ms is _SKEWS_MS

    def run(self) -> str:
        """All of it; how it ended. Raises Violation."""
        self._live()
        self._calm_down()
        try:
            self.world.until(lambda: self.world.serving, within_ms=_CALM_MS)
        except AssertionError:
            return self._nobody_serves()
        self._finish()
        self._read_all()
        self._judge()
        return f"{len(self.seen.events)} events, {len(self.world.epochs)} epochs"

    def _live(self) -> None:
        world, chance = self.world, self.chance
        for host in world.hosts.values():
            world.later(chance.randrange(2_000), host.start)
        next_ms = 3_000 + chance.randrange(2_000)
        end_ms = next_ms + _SPAN_MS
        while world.now_ms < end_ms:
            world.advance(STEP_MS)
            for client in self.clients:
                client.step()
            if self._cleaning is not None and self._cleaning.random() < 0.004:
                self._clean()
            if world.now_ms >= next_ms:
                self.faults.happen()
                next_ms += int(4_000 * chance.random() ** 2)

    def _clean(self) -> None:
        """Let the oldest files be deleted; what they have is read before."""
        serving = self.world.serving
        if serving is None or serving.is_frozen or self.delays is None or self.popper is None:
            return
        self._note_all(serving)
        self.delays.note(serving)
        self.popper.expect_deletions()
        seen_until = _store(serving).dispatcher.unseen_from
        for host in self.world.hosts.values():
            host.age_log(seen_until)

    def _note_all(self, serving: MemberHost) -> None:
        store = _store(serving)
        for queue in range(QUEUES):
            low, end = store.bounds(TOPIC, queue)
            for at, _, _ in store.read_units(TOPIC, queue, low, end - low):
                message = store.read(at)
                if message is not None:
                    self.seen.events.append(
                        ReadMessage(TOPIC, queue, message.queue_offset, message.body.decode(), at)
                    )

    def _calm_down(self) -> None:
        world = self.world
        world.mend()
        world.without_authority.clear()
        world.authority.is_reachable, world.authority_loss, world.delay_max_ms = True, 0.0, 5
        for host in world.hosts.values():
            if not host.is_up:
                host.start()
            elif host.is_frozen:
                host.thaw()

    def _nobody_serves(self) -> str:
        """Right only if all who had everything have lost power since, or some of their log."""
        world = self.world
        record = world.record
        if record is None:
            raise Violation("there is no record, and nobody makes one")
        for name, incarnation in record.in_sync.items():
            if world.hosts[name].member.state.incarnation == incarnation:
                raise Violation(
                    f"nobody serves, although {name} has everything: {record.description}"
                )
        return "nobody serves: all who had everything have lost some of it"

    def _finish(self) -> None:
        """All transactions end, and all copies have everything."""
        for client in self.clients:
            if isinstance(client, TransactionSender | BundleSender | Popper):
                client.is_finishing = True
        self._go_on(lambda: not self._open_halves(), "transactions are open")
        popper = self.popper
        if popper is not None and not self.seen.faults:
            self._go_on(lambda: not popper.open(), "popped messages are open")
        if self.delays is not None and not self.seen.faults:
            self._go_on(self._has_all_delayed, "delayed messages have not come")
        self.clients = []
        self._go_on(self._is_equal, "a copy does not get everything")

    def _go_on(self, is_done: Callable[[], bool], what: str) -> None:
        world = self.world
        end_ms = world.now_ms + _CALM_MS
        while not is_done():
            if world.now_ms >= end_ms:
                raise Violation(f"{what} after {_CALM_MS} ms without faults")
            world.advance(STEP_MS)
            for client in self.clients:
                if not isinstance(client, Sender | DelayedSender):
                    client.step()

    def _open_halves(self) -> bool:
        serving = self.world.serving
        if serving is None or self.seen.faults:
            return serving is None
        assert serving.broker is not None
        pending = serving.broker.core.transactions.engine.halves.pending
        return len(pending) > 0 or any(
            client.open
            for client in self.clients
            if isinstance(client, TransactionSender | BundleSender)
        )

    def _has_all_delayed(self) -> bool:
        assert self.delays is not None
        return self.world.serving is not None and not self.delays.missing(self.world.serving)

    def _is_equal(self) -> bool:
        serving = self.world.serving
        if serving is None:
            return False
        end = _store(serving).end_offset
        return all(
            host.is_up and _store(host).end_offset == end and self._is_copy(host, serving)
            for host in self.world.hosts.values()
        )

    def _is_copy(self, host: MemberHost, serving: MemberHost) -> bool:
        start = max(_store(host).min_log_offset, _store(serving).min_log_offset)
        return log_of(_store(host), start) == log_of(_store(serving), start) and (
            self._queues(host, start) == self._queues(serving, start)
        )

    def _queues(self, host: MemberHost, start: int) -> dict[tuple[str, int], bytes]:
        """What stands in each queue, of the records from an offset of the log on; else its end."""
        if self._cleaning is None:
            return queues_of(_store(host))
        return {
            (queue.topic, queue.queue_id): queue.units(first, queue.end - first) or b"%d" % first
            for queue in _store(host).queues
            if queue.end
            for first in (queue.first_at_log_offset(start),)
        }

    def _read_all(self) -> None:
        serving = self.world.until(lambda: self.world.serving)
        assert serving.broker is not None
        caller = serving.broker.connect("all")
        for queue in range(QUEUES):
            self.world.until(partial(bool, caller.begin_pull(TOPIC, queue_id=queue)))
            for message in caller.messages(TOPIC, queue):
                key = message.body.decode()
                self.seen.events.append(
                    ReadMessage(TOPIC, queue, message.queue_offset, key, message.log_offset)
                )

    def _judge(self) -> None:
        found = self.seen.faults or find_violations(
            self.seen.events, attempted=frozenset(self.seen.attempted)
        )
        if found:
            raise Violation("\n".join(map(str, found)))
        serving = self.world.serving
        for client in (self.remaker, self.delays):
            if client is not None and serving is not None:
                lost = client.faults(serving)
                if lost:
                    raise Violation("\n".join(lost))

    def story(self) -> Iterator[str]:
        """What happened, for people."""
        yield from self.faults.notes
        for name, host in self.world.hosts.items():
            yield from (f"{name}: {line}" for line in host.log_lines)


def _store(host: MemberHost) -> Store:
    assert host.broker is not None
    return host.broker.core.broker.store


def main() -> int:
    """Run one."""
    world = RandomWorld(int(sys.argv[1]))
    try:
        sys.stdout.write(f"{world.run()}\n")
    except Violation as error:
        sys.stdout.write("\n".join([*world.story(), str(error), ""]))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
