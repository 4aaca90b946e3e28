"""Polls the cluster once for all viewers: every two seconds while there is a viewer, otherwise not
at all. The charts show the results."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Final

from escrowmq.aio import Admin
from escrowmq.client.admin.brokers import ConnectedSlave
from escrowmq.client.admin.groups import Lag
from escrowmq.client.admin.topics import TopicDescription
from escrowmq.client.admin.transactions import TransactionCounts
from escrowmq.console.answer_cache import FRESH_S, AnswerCache
from escrowmq.console.rings import STEP_S, HistoryRings
from escrowmq.errors import EscrowMQError, NotSupported

_log = logging.getLogger(__name__)

STOP_AFTER_S: Final = 20.0
"""The seconds without a viewer after which polling stops."""

WATCHED_MAX: Final = 120
"""The most groups, and the most topics, that have a curve. Beyond it, the one that was not viewed
for longest loses its curve."""

QUEUES_MAX: Final = 64
"""The most queues of a group that have curves of their own. A group with more has only a curve of
its total."""


class MetricsCollector:
    """Polls the brokers while there are viewers, and keeps their metrics for an hour."""

    def __init__(
        self, admin: Callable[[], Awaitable[Admin]], memo: AnswerCache, now_s: Callable[[], float]
    ) -> None:
        self._admin = admin
        self._memo = memo
        self._now_s = now_s
        self._looked_s = now_s()
        self._task: asyncio.Task[None] | None = None
        self._groups: OrderedDict[str, float] = OrderedDict()
        self._topics: OrderedDict[str, float] = OrderedDict()
        self._stored: dict[str, tuple[float, int]] = {}
        self.rings = HistoryRings()
        self.rounds_count = 0

    def note_viewer(self, *, group: str = "", topic: str = "") -> None:
        """Note that a viewer looks at the cluster, and perhaps at a group or a topic."""
        self._looked_s = self._now_s()
        for watched, name in ((self._groups, group), (self._topics, topic)):
            if name:
                watched[name] = self._looked_s
                watched.move_to_end(name)
                while len(watched) > WATCHED_MAX:
                    watched.popitem(last=False)
        if self._task is None or self._task.done():
            self._task = asyncio.ensure_future(self._poll_repeatedly())

    @property
    def is_polling(self) -> bool:
        """Whether a poll is running."""
        return self._task is not None and not self._task.done()

    async def close(self) -> None:
        """Stop polling."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    # -- what is asked, by whomever --------------------------------------------------------------

    async def broker_runtime(self, broker: str) -> dict[str, str]:
        """Return the metrics that a broker reports about itself."""
        admin = await self._admin()
        return await self._memo.get_or_request(
            ("runtime", broker), lambda: admin.brokers.runtime(broker)
        )

    async def broker_replicas(self, broker: str) -> list[ConnectedSlave]:
        """Return the slaves that copy a master's log."""
        admin = await self._admin()
        return await self._memo.get_or_request(
            ("replicas", broker), lambda: admin.brokers.replicas(broker)
        )

    async def broker_names(self) -> list[str]:
        """Return the names of the brokers that have a master."""
        admin = await self._admin()
        found = await self._memo.get_or_request("brokers", admin.brokers.all)
        return sorted({one.name for one in found if one.id == 0})

    async def transaction_counts(self) -> TransactionCounts | None:
        """Return the numbers of pending transactions; None if no broker can count them."""
        admin = await self._admin()
        try:
            found = await self._memo.get_or_request("counts", admin.transactions.count)
        except NotSupported:
            return None
        self._add_value("pending", found.count)
        self._add_value("parked", found.parked)
        return found

    async def group_lags(self, group: str) -> list[Lag]:
        """Return the lag of a group in each topic."""
        admin = await self._admin()
        found = await self._memo.get_or_request(("lag", group), lambda: admin.groups.lag(group))
        if group in self._groups:
            self._add_value(f"lag:{group}", sum(one.count for one in found))
            for one in found if len(found) <= QUEUES_MAX else ():
                queue = one.queue
                name = f"lag:{group}:{queue.topic}:{queue.broker_name}:{queue.queue_id}"
                self._add_value(name, one.count)
        return found

    async def describe_topic(self, topic: str, *, fresh_s: float = FRESH_S) -> TopicDescription:
        """Return a topic's route, offsets and readers, from a cache of limited age."""
        admin = await self._admin()
        return await self._memo.get_or_request(
            ("topic", topic), lambda: admin.topics.describe(topic), fresh_s=fresh_s
        )

    # -- the rounds ------------------------------------------------------------------------------

    async def _poll_repeatedly(self) -> None:
        while self._now_s() - self._looked_s < STOP_AFTER_S:
            for part in (self._poll_brokers, self._poll_transactions, self._poll_groups,
                         self._poll_topics):  # fmt: skip
                try:
                    await part()
                except EscrowMQError as error:
                    _log.debug("console: a figure is unknown: %s", error)
            self.rounds_count += 1
            await asyncio.sleep(STEP_S)

    def _add_value(self, name: str, value: float | None) -> None:
        self.rings.add_value(name, int(self._now_s() / STEP_S), value)

    async def _poll_brokers(self) -> None:
        put: float | None = None
        got: float | None = None
        for name in await self.broker_names():
            try:
                found = await self.broker_runtime(name)
            except EscrowMQError:
                found = {}
            mine, theirs = read_rate(found, "putTps"), read_rate(found, "getTransferredTps")
            self._add_value(f"put:{name}", mine)
            self._add_value(f"get:{name}", theirs)
            put, got = _sum_known(put, mine), _sum_known(got, theirs)
        self._add_value("put", put)
        self._add_value("get", got)

    async def _poll_transactions(self) -> None:
        if await self.transaction_counts() is None:
            self._add_value("pending", None)
            self._add_value("parked", None)

    async def _poll_groups(self) -> None:
        for group in self._drop_unwatched(self._groups):
            try:
                await self.group_lags(group)
            except EscrowMQError:
                self._add_value(f"lag:{group}", None)

    async def _poll_topics(self) -> None:
        for topic in self._drop_unwatched(self._topics):
            try:
                found = await self.describe_topic(topic)
            except EscrowMQError:
                self._add_value(f"stored:{topic}", None)
                continue
            end = sum(one.max_offset for one in found.queues)
            now_s = self._now_s()
            before_s, before = self._stored.get(topic, (now_s, end))
            self._stored[topic] = (now_s, end)
            if now_s > before_s:
                self._add_value(f"stored:{topic}", max(0, end - before) / (now_s - before_s))

    def _drop_unwatched(self, watched: OrderedDict[str, float]) -> list[str]:
        since_s = self._now_s() - STOP_AFTER_S
        for name in [name for name, at_s in watched.items() if at_s < since_s]:
            del watched[name]
            self._stored.pop(name, None)
        return list(watched)


def read_rate(found: dict[str, str], name: str) -> float | None:
    """Return a broker's rate over the last ten seconds; None if it does not report this rate."""
    words = found.get(name, "").split()
    try:
        return float(words[0])
    except (IndexError, ValueError):
        return None


def _sum_known(one: float | None, other: float | None) -> float | None:
    return other if one is None else one if other is None else one + other
