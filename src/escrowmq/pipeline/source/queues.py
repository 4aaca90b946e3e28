"""Tracks the queues of a stream: which are new, unreachable, or lost.

An unreachable broker is no loss: its queues are waited for. A queue is lost if its broker is
reachable and no longer has it. A topic may also have been deleted and recreated: its queues
then count from 0 again. A queue is identified by its birth: its first offset and the store time
of that message. Retention only increases the first offset.

A topic may lose queues and regain them. So their positions and births are kept: reading continues
in a queue that is back, and starts from the beginning only if its birth shows that it is
another."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final, TypeVar

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import DataLost, EscrowMQError, RouteMissing, TransportError
from escrowmq.net.clock import SystemClock
from escrowmq.pipeline.brokers.cluster import MAY_PASS, Cluster, pause
from escrowmq.pipeline.brokers.ranges import Positions, QueueRange
from escrowmq.pipeline.source.offsets import find_queues
from escrowmq.pipeline.source.options import SourceOptions
from escrowmq.pipeline.source.stream_place import QueueIdentities

_log = logging.getLogger(__name__)

ENDS_CACHED_MS: Final = 100
"""The ends of queues are cached for this many milliseconds: Spark asks every 10 ms while nothing
arrives."""

T = TypeVar("T")


class StreamQueues:
    """The queues and their ends, fetched again when the cache is stale."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.cluster = Cluster(
            options.access, tries=options.tries, try_again_ms=options.try_again_ms
        )
        self._at_once = Cluster(options.access, tries=1, try_again_ms=0)
        self.ends: Positions = {}
        self._clock = SystemClock()
        self._seen_ms = 0
        self._logged_topics: set[str] = set()
        """Topics whose loss or absence has been logged."""
        self._gone: set[MessageQueue] = set()

    def now_ms(self) -> int:
        """Return the current time."""
        return self._clock.now_ms()

    def current_ends(
        self, since: Positions, gone: Collection[MessageQueue] = ()
    ) -> tuple[Positions, set[MessageQueue]]:
        """Return the end of every existing queue. Return also which queues of `since` are missing
        from their topics now; those in `gone` are known to be missing. Raises DataLost for the
        first queue that disappeared with unread messages."""
        if self.now_ms() - self._seen_ms > ENDS_CACHED_MS:
            before = self.ends
            self.ends = self._retry_unreachable(
                lambda: self.cluster.end_offsets(self._find(since)), since
            )
            self._seen_ms = self.now_ms()
            self._gone |= set(gone)
            self._retry_unreachable(lambda: self._update_gone(since, before), since)
        return self.ends, self._gone & since.keys()

    def require_readable(self, wanted: Positions) -> set[MessageQueue]:
        """Return which of these queues can be read. Wait for unreachable brokers; raise DataLost
        for lost queues, or log and skip them."""

        def look() -> set[MessageQueue]:
            there = self._existing_queues(wanted)
            lost = set(self._lost_queues(wanted, there))
            away = sorted(set(wanted) - there - lost)
            if away:
                raise RouteMissing(
                    f"{_name(away[0])} cannot be read now: its broker is unreachable"
                )
            for queue in sorted(lost):
                self._warn_lost(queue, wanted[queue])
            return there

        return self._retry_unreachable(look, wanted)

    def identities(self, queues: Iterable[MessageQueue]) -> QueueIdentities:
        """Return the birth of each queue: its first offset, and the store time of that message. It
        distinguishes the queue from a recreated one of the same name."""
        oldest = self.cluster.first_messages(queues).items()
        return {queue: (low, stored_ms) for queue, (low, stored_ms) in oldest if stored_ms >= 0}

    def _find(self, known: Iterable[MessageQueue]) -> list[MessageQueue]:
        try:
            return find_queues(self.cluster, self.options)
        except RouteMissing:
            if self.options.pulling.fails_on_loss or not known:
                raise
        missing = {name for name in self.options.named_topics if not self._queues_of(name)}
        for name in sorted(missing - self._logged_topics):
            _log.warning(
                "the topic %s does not exist; failOnDataLoss=false, so it is left out", name
            )
        self._logged_topics = self._logged_topics - set(self.options.named_topics) | missing
        left = self.options.without_topics(missing)
        return find_queues(self.cluster, left) if left is not None else []

    def _queues_of(self, topic: str) -> tuple[MessageQueue, ...]:
        try:
            return self._at_once.queues(topic)
        except RouteMissing:
            return ()

    def _retry_unreachable(self, work: Callable[[], T], known: Iterable[MessageQueue]) -> T:
        """Run a function. If the query has read before, retry it while the cluster is unreachable
        or busy, for as long as a pull."""
        began_ms = self.now_ms()
        while True:
            try:
                return work()
            except MAY_PASS as error:
                is_over = self.now_ms() - began_ms > self.options.pulling.timeout_ms
                if is_over or not known or self._is_deleted(error, known):
                    raise
                _log.warning("%s; asking again", error)
                pause()

    def _is_deleted(self, error: Exception, known: Iterable[MessageQueue]) -> bool:
        """Whether a topic is missing although all its brokers are reachable. The brokers are
        checked before the topic, because a broker that comes back registers itself and its topics
        together."""
        if not isinstance(error, RouteMissing):
            return False
        running = self._reachable_brokers()
        for topic in self.options.named_topics:
            brokers = {queue.broker_name for queue in known if queue.topic == topic}
            if brokers and brokers <= running and not self._queues_of(topic):
                return True
        return False

    def _reachable_brokers(self) -> set[str]:
        try:
            return self._at_once.refresh_brokers()
        except (TransportError, RouteMissing):
            return set()

    def _lost_queues(
        self, wanted: Iterable[MessageQueue], there: Iterable[MessageQueue]
    ) -> list[MessageQueue]:
        """Return the queues that are missing although their brokers are reachable."""
        missing = sorted(set(wanted) - set(there))
        if not missing:
            return []
        running = self._reachable_brokers()
        suspects = [queue for queue in missing if queue.broker_name in running]
        if not suspects:
            return []
        there = self._existing_queues(suspects)
        return [queue for queue in suspects if queue not in there]

    def _existing_queues(self, wanted: Iterable[MessageQueue]) -> set[MessageQueue]:
        """Return which of these queues the name servers know now."""
        found: set[MessageQueue] = set()
        for topic in {queue.topic for queue in wanted}:
            found |= set(self._queues_of(topic))
        return found & set(wanted)

    def _update_gone(self, since: Positions, before: Positions) -> None:
        self._gone -= set(self.ends)
        gone = [queue for queue in since if queue not in self.ends and queue not in self._gone]
        other = [queue for queue in gone if not self.options.selects_queue(queue)]
        for topic in sorted({queue.topic for queue in other} - self._logged_topics):
            _log.warning("the checkpoint has the topic %s, which is no longer read", topic)
            self._logged_topics.add(topic)
        for queue in self._lost_queues(set(gone) - set(other), self.ends):
            if since[queue] in (before.get(queue), self._end_of_missing(queue)):
                _log.warning("%s no longer exists; all of it was read", _name(queue))
            else:
                self._warn_lost(queue, since[queue])
            self._gone.add(queue)

    def _end_of_missing(self, queue: MessageQueue) -> int | None:
        """Return the end of a queue that is missing from its topic now; its broker may still have
        it."""
        try:
            return self._at_once.end_offsets([queue])[queue]
        except EscrowMQError:
            return None

    def _warn_lost(self, queue: MessageQueue, reached: int) -> None:
        text = f"{_name(queue)}, read up to {reached}, is not there any more"
        if self.options.pulling.fails_on_loss:
            raise DataLost(f"{text}. Set failOnDataLoss=false to continue without it")
        _log.warning("%s; failOnDataLoss=false, so reading continues without it", text)


def report_recreated(queue: MessageQueue, *, reached: int, why: str, fails_on_loss: bool) -> None:
    """Raise DataLost for a queue that was recreated since it was read, or log that it is read from
    its beginning."""
    text = (
        f"{_name(queue)} was read up to {reached}, and {why}: the topic was recreated, or its "
        f"store was restored"
    )
    if fails_on_loss:
        raise DataLost(f"{text}. Set failOnDataLoss=false to read it from its beginning")
    _log.warning("%s, so it is read from its beginning", text)


def report_shortened(queue: MessageQueue, *, reached: int, end: int, fails_on_loss: bool) -> None:
    """Raise DataLost for a queue whose broker lost its last messages, or log that it is read on at
    its end."""
    text = (
        f"{_name(queue)} was read up to {reached}, and ends at {end}: its broker lost the last "
        "messages, or its store was restored"
    )
    if fails_on_loss:
        raise DataLost(f"{text}. Set failOnDataLoss=false to read on at its end")
    _log.warning("%s; failOnDataLoss=false, so it is read on at its end", text)


def report_unreadable(planned: QueueRange, *, fails_on_loss: bool) -> None:
    """Raise DataLost for a queue that was recreated after a batch of it was planned, or log that
    its rows are left out of the batch."""
    text = (
        f"{_name(planned.queue)} was planned to be read from {planned.low} to {planned.high - 1}, "
        "and was recreated since: its first message is another"
    )
    if fails_on_loss:
        raise DataLost(f"{text}. Set failOnDataLoss=false to continue without these messages")
    _log.warning("%s; failOnDataLoss=false, so the batch leaves it out", text)


def was_recreated(
    queue: MessageQueue,
    before: Mapping[MessageQueue, tuple[int, int]],
    now: Mapping[MessageQueue, tuple[int, int]],
) -> bool:
    """Whether a queue was recreated; False if one of its births is unknown."""
    old, new = before.get(queue), now.get(queue)
    if old is None or new is None:
        return False
    # A larger first offset does not mean another queue: retention moves it, and the time of its
    # first message.
    return new[0] < old[0] or (new[0] == old[0] and new[1] != old[1])


def _name(queue: MessageQueue) -> str:
    return f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
