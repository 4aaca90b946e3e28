"""What one account works with: its connections to the cluster, and what was asked over them."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from escrowmq.aio import Admin, Credentials
from escrowmq.console.collector import Collector
from escrowmq.console.jobs import Jobs
from escrowmq.console.memo import Memo
from escrowmq.console.options import ConsoleOptions
from escrowmq.errors import EscrowMQError

DESKS_MAX: Final = 32
"""Accounts that are at work at a time; the one that was so longest ago loses its connections."""


class Desk:
    """An account's `Admin`, opened when it is first needed, with what is known by it."""

    def __init__(self, make: Callable[[], Admin], now_s: Callable[[], float]) -> None:
        self._make = make
        self._admin: Admin | None = None
        self._opening = asyncio.Lock()
        self.memo = Memo(now_s)
        self.collector = Collector(self.admin, self.memo, now_s)
        self.jobs = Jobs(now_s)

    async def admin(self) -> Admin:
        """The client; NoNameServer while nobody answers."""
        async with self._opening:
            if self._admin is None:
                admin = self._make()
                await admin.open()
                self._admin = admin
            return self._admin

    async def close(self) -> None:
        """End all work."""
        await self.jobs.close()
        await self.collector.close()
        if self._admin is not None:
            await self._admin.close()


class Desks:
    """One for each account: what it may do is judged by the brokers, by its signature."""

    def __init__(self, options: ConsoleOptions, now_s: Callable[[], float]) -> None:
        self._options = options
        self._now_s = now_s
        self._desks: OrderedDict[Credentials | None, Desk] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def of(self, credentials: Credentials | None) -> Desk:
        """The desk of an account."""
        found = self._desks.get(credentials)
        if found is None:
            found = Desk(lambda: self.client(credentials), self._now_s)
            self._desks[credentials] = found
        self._desks.move_to_end(credentials)
        while len(self._desks) > DESKS_MAX:
            _, oldest = self._desks.popitem(last=False)
            task = asyncio.ensure_future(oldest.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return found

    def client(self, credentials: Credentials | None) -> Admin:
        """A client that speaks as an account; not open yet."""
        options = self._options
        return Admin(
            options.name_servers,
            credentials=credentials or options.credentials,
            tls=options.tls,
            namespace=options.namespace,
        )

    async def is_reachable(self) -> tuple[bool, str]:
        """Whether a name server answers; and what is to be said of it."""
        desk = self.of(None)
        try:
            admin = await desk.admin()
            await desk.memo.get("brokers", admin.brokers.all)
        except EscrowMQError as error:
            return False, str(error)
        return True, "ready"

    async def close(self) -> None:
        """End all."""
        await asyncio.gather(*(desk.close() for desk in self._desks.values()), *self._closing)
