"""The clients with which each account reaches the cluster, with caches of the answers they got."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from escrowmq.aio import Admin, Credentials
from escrowmq.console.answer_cache import AnswerCache
from escrowmq.console.jobs import AccountJobs
from escrowmq.console.metrics_collector import MetricsCollector
from escrowmq.console.options import ConsoleOptions
from escrowmq.console.problems import Problem
from escrowmq.errors import EscrowMQError
from escrowmq.net.clock import SystemClock

ACCOUNT_CLIENTS_MAX: Final = 32
"""The most accounts with open connections. Beyond it, the connections of the account that was idle
longest are closed. An account with a request or job in progress keeps its own."""


class AccountClient:
    """An account's `Admin`, opened when it is first needed, with its cached answers and jobs."""

    def __init__(self, make: Callable[[], Admin], now_s: Callable[[], float]) -> None:
        self._make = make
        self._admin: Admin | None = None
        self._opening = asyncio.Lock()
        self.clock = SystemClock()
        self.memo = AnswerCache(now_s)
        self.collector = MetricsCollector(self.open_admin, self.memo, now_s)
        self.jobs = AccountJobs(now_s)
        self._uses_count = 0

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the client open while a page or a call uses it, even if another account needs its
        connections."""
        self._uses_count += 1
        try:
            yield
        finally:
            self._uses_count -= 1

    @property
    def is_idle(self) -> bool:
        """Whether the client may be closed: no page, call or job uses it."""
        return not self._uses_count and not self.jobs.running_count

    async def open_admin(self) -> Admin:
        """Return the `Admin`, opened if necessary. Raises NoNameServer while no name server
        answers."""
        async with self._opening:
            if self._admin is None:
                admin = self._make()
                await admin.open()
                self._admin = admin
            return self._admin

    async def close(self) -> None:
        """Stop all jobs and close the client."""
        await self.jobs.stop_all()
        await self.collector.close()
        if self._admin is not None:
            await self._admin.close()


class AccountClients:
    """One `AccountClient` for each account. It signs requests as the account, so that the brokers
    judge what the account may do."""

    def __init__(self, options: ConsoleOptions, now_s: Callable[[], float]) -> None:
        self._options = options
        self._now_s = now_s
        self._clients: OrderedDict[Credentials | None, AccountClient] = OrderedDict()
        self._closing: set[asyncio.Task[None]] = set()

    def client_of(self, credentials: Credentials | None) -> AccountClient:
        """Return the client of an account. Raises Problem if too many others are in use."""
        found = self._clients.get(credentials)
        if found is None:
            if len(self._clients) >= ACCOUNT_CLIENTS_MAX:
                self._close_idle()
            found = AccountClient(lambda: self.make_admin(credentials), self._now_s)
            self._clients[credentials] = found
        self._clients.move_to_end(credentials)
        return found

    def _close_idle(self) -> None:
        resting = [name for name, client in self._clients.items() if client.is_idle]
        if not resting:
            raise Problem(
                503, "too_many_accounts",
                f"{ACCOUNT_CLIENTS_MAX} accounts are at work, as many as may be",
                "try again soon",
            )  # fmt: skip
        client = self._clients.pop(resting[0])
        task = asyncio.ensure_future(client.close())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    def make_admin(self, credentials: Credentials | None) -> Admin:
        """Make an `Admin` that signs as an account; it is not open yet."""
        options = self._options
        return Admin(
            options.name_servers,
            credentials=credentials or options.credentials,
            tls=options.tls,
            namespace=options.namespace,
        )

    async def is_reachable(self) -> tuple[bool, str]:
        """Return whether a name server answers, and the reason if none does."""
        try:
            client = self.client_of(None)
            with client.in_use():
                admin = await client.open_admin()
                await client.memo.get_or_request("brokers", admin.brokers.all)
        except (EscrowMQError, Problem) as error:
            return False, str(error)
        return True, "ready"

    async def close(self) -> None:
        """Close all clients."""
        await asyncio.gather(*(client.close() for client in self._clients.values()), *self._closing)
