"""Pulls raw records by offset, several requests at a time on one connection."""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from escrowmq.base.codes import EMPTY_PULLS, Request, Response
from escrowmq.base.command import Command
from escrowmq.client.core.pulling import pull_fields, with_subscription
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.subscription import Subscription
from escrowmq.errors import (
    DataLost,
    RemoteProtocolError,
    response_error,
)
from escrowmq.net.clock import SystemClock
from escrowmq.pipeline.brokers.cluster import MAY_PASS, Cluster
from escrowmq.pipeline.brokers.link import BUSY, BrokerLink
from escrowmq.pipeline.brokers.options import ClusterAccess
from escrowmq.pipeline.brokers.ranges import QueueRange
from escrowmq.pipeline.source.offsets import report_loss
from escrowmq.pipeline.source.options import PullOptions, SourceOptions

_log = logging.getLogger(__name__)

_REST_S: Final = 0.1
_LOOK_EVERY: Final = 10
"""After so many unsuccessful pulls in a row, the master is looked up again: a slave, which a master
becomes when its group has another, answers as a busy broker does."""
_SAMPLED_MAX: Final = 8
_SAMPLE_COUNT: Final = 32


class PullInFlight(msgspec.Struct):
    """A pull request in flight."""

    number: int
    low: int
    high: int


class Puller:
    """Reads ranges of queues. It waits for a restarting broker. If a broker is silent or has no
    route for `pullTimeoutMs`, it raises TransportError or RouteMissing. What a slave lacks is read
    from its master."""

    def __init__(self, access: ClusterAccess, pulling: PullOptions) -> None:
        self._access = access
        self._pulling = pulling
        self._links: dict[tuple[str, bool], BrokerLink] = {}
        """By the broker's name, and whether a slave is preferred."""
        self._clock = SystemClock()

    def close(self) -> None:
        """Close all connections."""
        while self._links:
            self._links.popitem()[1].close()

    def pull(self, wanted: QueueRange, subscription: Subscription) -> Iterator[bytes]:
        """Yield the records of a range as they are in the log, in the order of the queue. There may
        be some beyond the range's end."""
        run = _RangeReading(wanted, subscription, self._pulling)
        since_ms = self._clock.now_ms()
        retries = 0
        while not run.is_over:
            before = run.position
            try:
                yield from run.records(self._link(wanted.queue, from_slave=run.from_slave))
            except _NotOnSlaveError as reason:
                _log.info("%s", reason)
                self._drop_requests(wanted.queue, from_slave=True, is_lost=False)
                run.from_slave = False
                continue
            except _RetryLater as reason:
                failure: Exception = reason.error
                retries += 1
                is_lost = retries % _LOOK_EVERY == 0
                self._drop_requests(wanted.queue, from_slave=run.from_slave, is_lost=is_lost)
            except MAY_PASS as error:  # it has no route while it starts
                failure = error
                self._drop_requests(wanted.queue, from_slave=run.from_slave, is_lost=True)
            else:
                continue
            if run.position != before:
                since_ms = self._clock.now_ms()
            if self._clock.now_ms() - since_ms > self._pulling.timeout_ms:
                if isinstance(failure, DataLost) and not self._pulling.fails_on_loss:
                    _log.warning(
                        "%s; failOnDataLoss=false, so reading continues without it", failure
                    )
                    return
                raise failure
            _log.info("pulling again: %s", failure)
            threading.Event().wait(_REST_S)

    def _link(self, queue: MessageQueue, *, from_slave: bool) -> BrokerLink:
        place = (queue.broker_name, from_slave)
        found = self._links.get(place)
        if found is None:
            cluster = Cluster(self._access, tries=1, try_again_ms=0)
            try:
                cluster.refresh_route(queue.topic)
            finally:
                cluster.close()
            address = cluster.broker_address(queue.broker_name, from_slave=from_slave)
            found = BrokerLink(address, self._access, timeout_ms=self._pulling.timeout_ms)
            self._links[place] = found
        return found

    def _drop_requests(self, queue: MessageQueue, *, from_slave: bool, is_lost: bool) -> None:
        """Drop the requests in flight on a link after an interrupted run."""
        place = (queue.broker_name, from_slave)
        link = self._links.pop(place, None)
        if link is not None and (is_lost or link.has_open_requests):
            link.close()
        elif link is not None:
            self._links[place] = link


class _NotOnSlaveError(Exception):
    """Raised for a pull that a slave cannot serve: it may lag, or keep less than its master."""


class _RetryLater(Exception):
    """Raised for a pull that failed and may succeed later."""

    def __init__(self, error: Exception) -> None:
        super().__init__(str(error))
        self.error = error


class _RangeReading:
    """The reading of one range: its position, and the requests in flight."""

    def __init__(
        self, wanted: QueueRange, subscription: Subscription, pulling: PullOptions
    ) -> None:
        self._wanted = wanted
        self._subscription = subscription
        self._pulling = pulling
        self._is_plain = subscription.kind == "TAG" and subscription.tags.is_all
        self._step = pulling.count
        self._at_once = 1  # until the first answer shows how much a pull returns
        self.position = wanted.low
        self.from_slave = pulling.from_slave
        """Whether a slave is asked, if there is one."""

    @property
    def is_over(self) -> bool:
        return self.position >= self._wanted.high

    def records(self, link: BrokerLink) -> Iterator[bytes]:
        """Yield records from the position to the end, or until an error."""
        pulls: deque[PullInFlight] = deque()
        asked = self.position
        while not self.is_over:
            while asked < self._wanted.high and len(pulls) < self._at_once:
                high = min(asked + self._step, self._wanted.high)
                pulls.append(self._post(link, asked, high))
                asked = high
            pull = pulls.popleft()
            if pull.low != self.position:  # the previous pull went further, as with filters
                link.ignore_reply(pull.number)
                if pull.high <= self.position:
                    continue
                pull = self._post(link, self.position, pull.high)
            yield from self._pulled_records(link.take_reply(pull.number), pull)
            if self.position < pull.high:
                pulls.appendleft(self._post(link, self.position, pull.high))
            asked = max(asked, self.position)

    def _post(self, link: BrokerLink, low: int, high: int) -> PullInFlight:
        fields = pull_fields(
            self._wanted.queue,
            self._subscription,
            group=self._pulling.group,
            queue_offset=low,
            commit_offset=0,
            count_max=high - low,
            suspend_ms=0,
        )
        fields = with_subscription(fields, self._subscription)
        return PullInFlight(link.post(Request.PULL_MESSAGE, fields), low, high)

    def _pulled_records(self, reply: Command, pull: PullInFlight) -> Iterator[bytes]:
        code = reply.code
        if code == Response.SUCCESS:
            following = self._offset_field(reply, "nextBeginOffset")
            if following <= self.position:
                raise RemoteProtocolError(
                    f"a pull from {pull.low} of {self._wanted.queue} was answered with the "
                    f"next offset {following}"
                )
            self._adapt_requests(pull, following)
            self.position = following
            yield reply.body
        elif self.from_slave and code in EMPTY_PULLS:
            # Without slaveReadEnable, a slave of RocketMQ answers that the next offset is further.
            raise _NotOnSlaveError(
                f"a slave of {self._wanted.queue.broker_name} does not serve offset {pull.low} of "
                f"{self._wanted.queue}, so its master is asked"
            )
        elif code == Response.PULL_RETRY_IMMEDIATELY:
            self._skip_to(pull, self._offset_field(reply, "nextBeginOffset"))
        elif code == Response.PULL_OFFSET_MOVED:
            self._move_into_queue(reply)
        elif code == Response.PULL_NOT_FOUND or code in BUSY:
            raise _RetryLater(self._nothing_error(reply))
        else:
            raise response_error(code, reply.remark, address=self._wanted.queue.broker_name)

    def _adapt_requests(self, pull: PullInFlight, following: int) -> None:
        if self._is_plain:
            # Brokers limit a pull by count and by bytes; requesting more only delays the answer.
            if following < pull.high:
                self._step = following - pull.low
            self._at_once = self._pulling.at_once

    def _skip_to(self, pull: PullInFlight, following: int) -> None:
        if following <= self.position:
            raise _RetryLater(self._data_lost(f"the broker finds no message at {pull.low}"))
        if self._is_plain:
            report_loss(
                self._wanted.queue,
                wanted=self.position,
                found=following,
                fails_on_loss=self._pulling.fails_on_loss,
                why="the broker has no record of them (a damaged file, or a compacted topic)",
            )
        self.position = following

    def _move_into_queue(self, reply: Command) -> None:
        low, high = self._offset_field(reply, "minOffset"), self._offset_field(reply, "maxOffset")
        following = max(low, self.position) if self.position < high else self._wanted.high
        if self.position >= high:
            self._fail_or_warn(min(following, self._wanted.high), f"the queue ends at {high}")
        else:
            self._fail_or_warn(min(following, self._wanted.high), f"it keeps {low} to {high - 1}")
        self.position = max(self.position + 1, following)

    def _fail_or_warn(self, following: int, why: str) -> None:
        report_loss(
            self._wanted.queue,
            wanted=self.position,
            found=following,
            fails_on_loss=self._pulling.fails_on_loss,
            why=why,
        )

    def _nothing_error(self, reply: Command) -> Exception:
        if reply.code in BUSY:
            return response_error(reply.code, reply.remark, address=self._wanted.queue.broker_name)
        return self._data_lost("the broker answers that there is nothing")

    def _data_lost(self, why: str) -> DataLost:
        queue = self._wanted.queue
        return DataLost(
            f"messages {self.position} to {self._wanted.high - 1} of queue {queue.queue_id} of "
            f"{queue.topic} on {queue.broker_name} do not come: {why}"
        )

    def _offset_field(self, reply: Command, name: str) -> int:
        try:
            return int((reply.ext or {})[name])
        except (KeyError, ValueError) as error:
            raise RemoteProtocolError(f"a pull's answer has no {name}: {reply.ext}") from error


def estimated_size(ranges: Sequence[QueueRange], options: SourceOptions) -> float:
    """Estimate the average bytes per offset of these ranges, from samples at the beginnings of the
    longest; at least 1."""
    puller = Puller(options.access, options.pulling)
    size = count = 0
    try:
        for each in sorted(ranges, key=lambda each: -each.count)[:_SAMPLED_MAX]:
            few = QueueRange(each.queue, each.low, min(each.low + _SAMPLE_COUNT, each.high))
            size += sum(map(len, puller.pull(few, options.subscription(each.queue.topic))))
            count += few.count
    finally:
        puller.close()
    return max(1.0, size / max(1, count))
