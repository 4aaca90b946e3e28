"""A name server and a broker in a test's process, on one event loop and one clock."""

from __future__ import annotations

import asyncio
import itertools
import logging
import random
import secrets
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.nameserver_settings import NameServerSettings
from escrowmq.base.store_settings import StoreSettings
from escrowmq.broker.core import BrokerCore
from escrowmq.client.core.message import Message
from escrowmq.client.producer import Producer
from escrowmq.errors import UsageError
from escrowmq.net.dialling import (
    INSIDE_SERVERS_MAX,
    TEST_ADDRESS_PREFIX,
    register_inside_server,
    unregister_inside_server,
)
from escrowmq.net.incoming_connections import bind_port
from escrowmq.net.listening_port import ListeningPort
from escrowmq.net.shell import Shell
from escrowmq.node.broker import read_broker_settings
from escrowmq.node.config import unknown_keys
from escrowmq.registry.core import RegistryCore
from escrowmq.testing.disk import CrashLoss
from escrowmq.testing.kit import pipe
from escrowmq.testing.kit.accounts import Account, accounts_file
from escrowmq.testing.kit.clock import StillClock
from escrowmq.testing.kit.core import KitCore
from escrowmq.testing.kit.disk import KitDisk
from escrowmq.testing.kit.inspection import Found, GroupProgress, Inspection
from escrowmq.txn.pending import BUCKET_MS

_log = logging.getLogger(__name__)

_HOSTS_MAX: Final = 250
_PORT: Final = 10_000
_ADDRESS_NUMBERS: Final = itertools.cycle(range(INSIDE_SERVERS_MAX // 2))
"""Numbers from which the addresses of name servers and brokers are made: each gives one host and
two ports."""
_NEVER_IDLE_MS: Final = 1 << 60
_STEPS_MAX: Final = 1_000_000
"""Limit of the clock's stops during one advance. Advancing by two weeks takes about 250,000."""

_WAKES_MAX: Final = 10_000
_LOOK_S: Final = 0.001
_SENDER: Final = "sent-by-the-test"
_ACCOUNTS_MS: Final = 1_000
_DEFAULTS: Final = {
    "flushDiskType": "SYNC_FLUSH",
    "mappedFileSizeCommitLog": str(16 << 20),
    "mappedFileSizeConsumeQueue": str(20 * 1024),
    "maxHashSlotNum": "1024",
    "maxIndexNum": "4096",
    "escrowReserveBytes": "65536",
    "defaultTopicQueueNums": "1",
}
"""Settings that differ from a broker's defaults: small files, because they are in memory; and one
queue per topic, so that messages are seen in the order in which they were sent."""


def _test_settings(chosen: Mapping[str, str]) -> tuple[BrokerSettings, StoreSettings]:
    source = "settings of a test's broker"
    unknown = unknown_keys(dict(chosen))
    if unknown:
        raise UsageError(f"{source}: {', '.join(unknown)}: unknown settings")
    broker, store, _ = read_broker_settings(
        {**_DEFAULTS, **chosen}, source=source, name="broker-a", name_servers=None, host="127.0.0.1"
    )
    return broker, store


class KitCluster:
    """A test's name server and broker. Its coroutines run on one event loop."""

    def __init__(
        self,
        settings: Mapping[str, str],
        accounts: Sequence[Account],
        *,
        loop: asyncio.AbstractEventLoop,
        has_sockets: bool,
        patience_s: float,
    ) -> None:
        self._loop = loop
        acl = {"aclEnable": "true"} if accounts else {}
        self._broker_settings, self._store_settings = _test_settings({**acl, **settings})
        self.patience_s = patience_s
        self.clock = StillClock()
        self.disk = KitDisk()
        self._accounts = KitDisk()
        self._has_accounts = bool(accounts)
        if accounts:
            self._write_accounts(accounts)
        self._has_sockets = has_sockets
        self.traffic = pipe.UnreadChunks()
        number = next(_ADDRESS_NUMBERS)
        self._host = f"{TEST_ADDRESS_PREFIX}{number % _HOSTS_MAX + 1}"
        self._first_port = _PORT + 2 * (number // _HOSTS_MAX)
        self.nameserver = ""
        self._broker_address = (self._host, 0)
        self._registry = RegistryCore(NameServerSettings(), started_ms=self.clock.now_ms())
        self.core: KitCore | None = None
        self._shells: list[Shell] = []
        """The shell of the name server, and that of the broker while it runs."""
        self._clients_before_stop: set[str] = set()
        """The clients that were connected when the broker stopped. A start waits for them."""
        self._ignored_checks: set[tuple[int, int]] = set()
        """Checks that were not answered in time, as pairs of half and connection. They are no
        longer waited for."""

    # -- life ------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Start the name server and the broker."""
        shell = self._make_shell(self._registry, "nameserver")
        host, port = await self._accept_clients(shell, self._first_port)
        self.nameserver = f"{host}:{port}"
        shell.start()
        await self.start()

    async def close(self) -> None:
        """Close the broker and the name server."""
        if self.core is not None:
            await self.stop()
        host, _, port = self.nameserver.rpartition(":")
        unregister_inside_server(host, int(port))
        await self._shells.pop().close()

    async def start(self) -> None:
        """Start the broker with the contents of its disk; return when its clients are connected
        again."""
        if self.core is not None:
            raise UsageError("the broker is already running; stop it first")
        self._broker_settings.name_servers = self.nameserver
        door = bind_port("127.0.0.1", self._broker_address[1]) if self._has_sockets else None
        if door is not None:
            self._broker_address = door.getsockname()[:2]
        else:
            self._broker_address = (self._host, self._first_port + 1)
        host, port = self._broker_address
        self._broker_settings.advertised_host = host
        core = self.core = KitCore(
            self.disk,
            self._broker_settings,
            self._store_settings,
            address=self._broker_address,
            ha_address=f"{host}:{port + 1}",
            chance=secrets.SystemRandom(),
            accounts=self._accounts,
        )
        self.clock.continue_from(core.open(self.clock.now_ms()))
        shell = self._make_shell(core, "broker")
        if door is not None:
            await shell.listen(ListeningPort(door))
        else:
            register_inside_server(host, port, partial(self._connect_client, shell))
        shell.start()
        await self._await_condition(lambda: core.registration.is_registered)
        await self._await_condition(
            lambda: self._clients_before_stop <= {channel.client_id for channel in core.channels()}
        )
        self._clients_before_stop.clear()
        await self.settle()

    async def stop(self) -> None:
        """Shut the broker down in good order."""
        core = self._running_core()
        self._clients_before_stop = {channel.client_id for channel in core.channels()}
        core.unregister()
        self._shells[-1].perform_effects()
        await self._close_shell()
        core.close(self.clock.now_ms())
        self.disk.restart()

    async def crash(self) -> None:
        """Kill the broker. Everything that it wrote is still there, because the machine
        survives."""
        self._clients_before_stop = {
            channel.client_id for channel in self._running_core().channels()
        }
        await self._close_shell()
        self.disk.crash(random.Random(0), CrashLoss.NOTHING)

    async def _close_shell(self) -> None:
        self.disk.resume()
        unregister_inside_server(*self._broker_address)
        self.core = None
        await self._shells.pop().close()

    def _running_core(self) -> KitCore:
        if self.core is None:
            raise UsageError("the broker is stopped; start() it first")
        return self.core

    def _make_shell(self, core: BrokerCore | RegistryCore, name: str) -> Shell:
        disk = self.disk if isinstance(core, BrokerCore) else None
        shell = Shell(core, self.clock, disk, name=f"test's {name}", idle_ms=_NEVER_IDLE_MS)
        self._shells.append(shell)
        return shell

    async def _accept_clients(self, shell: Shell, port: int) -> tuple[str, int]:
        """Accept test clients; return the address to which they connect."""
        if self._has_sockets:
            door = bind_port("127.0.0.1", 0)
            await shell.listen(ListeningPort(door))
            host, port = door.getsockname()[:2]
            return host, port
        register_inside_server(self._host, port, partial(self._connect_client, shell))
        return self._host, port

    def _connect_client(self, shell: Shell, protocol: asyncio.BaseProtocol) -> None:
        """Connect a client that runs on its own loop."""
        pipe.connect_pipe(protocol, shell.make_protocol, self._loop, self.traffic)

    async def set_accounts(self, accounts: Sequence[Account]) -> None:
        """Replace the accounts. The broker polls the file twice before the change takes effect."""
        if not self._has_accounts:
            raise UsageError("the broker was made without accounts; give it some when it is made")
        self._write_accounts(accounts)
        await self.advance(_ACCOUNTS_MS)

    def _write_accounts(self, accounts: Sequence[Account]) -> None:
        self._accounts.replace("plain_acl.yml", accounts_file(accounts), is_private=True)

    # -- what is there -----------------------------------------------------------------------

    @property
    def inspection(self) -> Inspection:
        """Return an object for reading the contents of the running broker."""
        return Inspection(self._running_core())

    def with_description(self, bodies: list[bytes]) -> Found:
        """Return bodies, with a description of everything else in the broker."""
        found = Found(bodies)
        found.told = self.describe()
        return found

    def describe(self) -> str:
        """Describe everything in the broker."""
        return self.inspection.describe(self.clock.now_ms())

    def fill_disk(self, *, is_full: bool) -> None:
        """Fill the disk, or free it again; the broker notices that immediately."""
        self.disk.set_full(is_full=is_full)
        if self.core is not None:
            self.core.broker.store.disk_watch.check_disk(self.clock.now_ms())

    def lose_ends(self, count: int) -> None:
        """Lose the next ENDs."""
        self._running_core().ends_to_lose = count

    async def send(self, message: Message) -> None:
        """Send a message as another service would."""
        self._running_core()
        async with Producer(self.nameserver, group=_SENDER) as producer:
            await producer.send(message)

    async def create_topic(self, topic: str, queues: int) -> None:
        """Create a topic; return when the name server knows it."""
        core, now_ms = self._running_core(), self.clock.now_ms()
        core.create_topic(topic, queues, now_ms)
        self._shells[-1].perform_effects()
        await self.settle()

    # -- time ------------------------------------------------------------------------------------

    async def advance(self, span_ms: int) -> None:
        """Advance the time, and let everything due happen in order."""
        end_ms = self.clock.now_ms() + span_ms
        for _ in range(_STEPS_MAX):
            await self.settle()
            now_ms = self.clock.now_ms()
            if now_ms >= end_ms:
                return
            at_ms = min(shell.core.wake_at_ms() for shell in self._shells)
            self.clock.continue_from(min(end_ms, max(now_ms + 1, at_ms)))
            self.disk.now_ms = self.clock.now_ms()
            self._wake_shells()
        raise AssertionError(f"{span_ms} ms are more than {_STEPS_MAX} steps; advance by less")

    def _wake_shells(self) -> None:
        now_ms = self.clock.now_ms()
        if self.core is not None:
            self.core.refresh_clients(now_ms)
        for shell in self._shells:
            shell.wake()

    def _wake_due(self) -> None:
        """Do everything that is due now. Checks that are due within 50 ms count as due, because a
        broker delays them by so much to send several together."""
        for _ in range(_WAKES_MAX):
            now_ms = self.clock.now_ms()
            if self.core is not None:
                check_at_ms = self.core.transactions.checker.wake_at_ms()
                if check_at_ms <= now_ms + BUCKET_MS:
                    self.clock.continue_from(check_at_ms)
                    now_ms = self.clock.now_ms()
            due = [shell for shell in self._shells if shell.core.wake_at_ms() <= now_ms]
            if not due:
                return
            for shell in due:
                shell.wake()
        raise AssertionError("the broker keeps asking to be woken")

    async def check_now(self) -> None:
        """Check every pending transaction."""
        core = self._running_core()
        pending = list(core.transactions.engine.halves.pending)
        core.transactions.checker.check_now(pending, self.clock.now_ms())
        await self.settle()

    async def wait_delivered(self, topic: str, count: int) -> Found:
        """Return the delivered messages of a topic, once there are `count` of them."""
        if not await self._await_condition(lambda: len(self.inspection.visible(topic)) >= count):
            found = self.inspection.delivered(topic)
            raise AssertionError(
                f"{len(found)} messages are delivered to {topic!r} after {self.patience_s} "
                f"s, {count} were expected\n{self.describe()}"
            )
        return self.with_description(self.inspection.delivered(topic))

    async def wait_consumed(self, group: str) -> None:
        """Return when a group has handled every message that its consumers can see."""
        progress = GroupProgress(self._running_core(), group)
        deadline_s = self._loop.time() + self.patience_s
        while True:
            progress.request_progress()
            self._shells[-1].perform_effects()
            await self.settle()
            left = progress.unhandled_counts()
            if progress.has_members and not left:
                return
            if self._loop.time() > deadline_s:
                raise AssertionError(
                    f"{_not_consumed_text(progress, group, left)}\n{self.describe()}"
                )
            await asyncio.sleep(_LOOK_S)

    # -- rest ------------------------------------------------------------------------------------

    async def settle(self) -> None:
        """Wait until nothing is in flight between the broker and its clients."""
        if not await self._await_condition(self._is_idle):
            self._raise_not_idle()

    def _is_idle(self) -> bool:
        self._wake_due()
        is_writing = not self.disk.is_stalled and any(shell.is_syncing for shell in self._shells)
        # The registration uses a socket, which counts no traffic. Wait for it: a name server whose
        # time is ahead would remove the broker.
        is_registering = self.core is not None and self.core.registration.is_registering
        is_busy = is_writing or is_registering
        return self.traffic.is_all_read and not is_busy and not self._unanswered_checks()

    def _unanswered_checks(self) -> list[tuple[int, int]]:
        """Return the checks that may still be answered."""
        if self.core is None:
            return []
        there = {channel.peer for channel in self.core.channels()}
        under_way = self.core.transactions.checker.unanswered_checks()
        return [each for each in under_way if each[1] in there and each not in self._ignored_checks]

    def _raise_not_idle(self) -> None:
        unanswered = self._unanswered_checks()
        if not self.traffic.is_all_read:
            raise AssertionError(
                f"a client has not read what the broker sent to it for {self.patience_s} s; "
                "does its event loop run?"
            )
        if unanswered:
            _log.warning(
                "%d checks have no answer after %s s; waiting ends. Has the producer a "
                    "check, and does it return?", len(unanswered), self.patience_s,
            )  # fmt: skip
            self._ignored_checks |= set(unanswered)

    async def _await_condition(self, is_so: Callable[[], bool]) -> bool:
        """Wait for a condition; return whether it came true in time."""
        deadline_s = self._loop.time() + self.patience_s
        while not is_so():
            if self._loop.time() > deadline_s:
                return False
            await asyncio.sleep(_LOOK_S)
        return True


def _not_consumed_text(progress: GroupProgress, group: str, left: dict[str, int]) -> str:
    if not progress.has_members:
        return f"no consumer of the group {group!r} is connected"
    description = ", ".join(f"{count} of {topic!r}" for topic, count in left.items())
    return f"the consumers of {group!r} have not handled {description}"
