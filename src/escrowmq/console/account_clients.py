"""The connections of one account to the cluster, and cached answers that they got."""

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


class AccountClient:
    """An account's `Admin`, opened when it is first needed, with its cached answers and jobs."""

    def __init__(self, make: Callable[[], Admin], now_s: Callable[[], float]) -> None:
        self._make = make
        self._admin: Admin | None = None
        self._opening = asyncio.Lock()
        self.memo = Memo(now_s)
        self.collector = Collector(self.admin, self.memo, now_s)
        self.jobs = Jobs(now_s)

    async def admin(self) -> Admin:
        """The opened client. Raises NoNameServer while no name server answers."""
        async with self._opening:
            if self._admin is None:
                admin = self._make()
                await admin.open()
                self._admin = admin
            return self._admin

    async def close(self) -> None:
        """Stop all jobs and close the client."""
        await self.jobs.close()
        await self.collector.close()
        if self._admin is not None:
            await self._admin.close()


class AccountClients:
    """One desk for each account: brokers judge what it may do, by its signature."""

    def __init__(self, options: ConsoleOptions, now_s: Callable[[], float]) -> None:
        self._options = options
        self._now_s = now_s
        self._desks: OrderedDict[Credentials | None, AccountClient] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def of(self, credentials: Credentials | None) -> AccountClient:
        """The desk of an account."""
        found = self._desks.get(credentials)
        if found is None:
            found = AccountClient(lambda: self.client(credentials), self._now_s)
            self._desks[credentials] = found
        self._desks.move_to_end(credentials)
        while len(self._desks) > DESKS_MAX:
            _, oldest = self._desks.popitem(last=False)
            task = asyncio.ensure_future(oldest.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        return found

    def client(self, credentials: Credentials | None) -> Admin:
        """A client that signs as an account; not open yet."""
        options = self._options
        return Admin(
            options.name_servers,
            credentials=credentials or options.credentials,
            tls=options.tls,
            namespace=options.namespace,
        )

    async def is_reachable(self) -> tuple[bool, str]:
        """Whether a name server answers; and the reason if none does."""
        desk = self.of(None)
        try:
            admin = await desk.admin()
            await desk.memo.get("brokers", admin.brokers.all)
        except EscrowMQError as error:
            return False, str(error)
        return True, "ready"

    async def close(self) -> None:
        """Close all desks."""
        await asyncio.gather(*(desk.close() for desk in self._desks.values()), *self._closing)
