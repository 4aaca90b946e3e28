"""The admin client for asyncio."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Self, Unpack

from escrowmq.client.admin.access import Access
from escrowmq.client.admin.brokers import Brokers
from escrowmq.client.admin.cluster_calls import ClusterCalls
from escrowmq.client.admin.diagnosis import Diagnosis
from escrowmq.client.admin.groups import Groups
from escrowmq.client.admin.messages import Messages
from escrowmq.client.admin.offsets import Offsets
from escrowmq.client.admin.replicas import Replicas
from escrowmq.client.admin.topics import Topics
from escrowmq.client.admin.transactions import Transactions
from escrowmq.client.client_settings import parse_client_options
from escrowmq.client.instance import ClientInstance
from escrowmq.client.producer_settings import ConnectionSettings
from escrowmq.errors import ClientClosed

if TYPE_CHECKING:
    from types import TracebackType


class Admin:
    """Reads and changes a cluster, for operators. Open it with `async with`, or await `open()`.

    >>> async def main():
    ...     async with escrowmq.aio.Admin(nameserver) as admin:
    ...         await admin.topics.create("paid", queues=8)
    ...         return await admin.topics.names()
    >>> "paid" in asyncio.run(main())
    True

    `name_servers` is `host:port`, several separated by `;`; None means the environment variable
    NAMESRV_ADDR. Settings are those of `ClientOptions`."""

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        **settings: Unpack[ConnectionSettings],
    ) -> None:
        self.instance = ClientInstance(parse_client_options(name_servers, dict(settings)))
        # An admin client may use thousands of topics once each, and fetches each route when it
        # needs it.
        self.instance.forgets_topics = True
        cluster = ClusterCalls(self.instance)
        self.access = Access(cluster)
        self.brokers = Brokers(cluster)
        self.diagnosis = Diagnosis(cluster)
        self.groups = Groups(cluster)
        self.messages = Messages(cluster)
        self.offsets = Offsets(cluster)
        self.replicas = Replicas(cluster)
        self.topics = Topics(cluster)
        self.transactions = Transactions(cluster)
        self._is_open = False
        self._is_closed = False

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else "open" if self._is_open else "not open yet"
        return f"<aio.Admin of {';'.join(self.instance.options.name_servers)}, {state}>"

    async def open(self) -> Self:
        """Connect. Raises NoNameServer if none can be reached."""
        if self._is_closed:
            raise ClientClosed("the admin client is closed; make a new one")
        if not self._is_open:
            self._is_open = True
            try:
                await self.instance.open()
                await self.instance.watch_all_brokers()
            except BaseException:
                await self.close()
                raise
        return self

    async def close(self) -> None:
        """Close all connections. Calling it again does nothing."""
        self._is_closed = True
        await self.instance.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
