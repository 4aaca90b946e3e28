"""The consumer's side: adds consumed and announced messages to the sets.

The business's own database knows what was processed; the set of consumed messages is a copy of
that. So messages are consumed even while the Redis server is unreachable, and the copy is updated
when it is back. Announcements are stored nowhere else: meanwhile they wait in their topic.

The server may come back empty, or with older data: from a snapshot, or as a replica that lagged. So
the reader's position in each queue is stored with the announcements, both in one step. If the
server's position is lower than the group's, the reader goes back to it.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
from collections.abc import Iterable
from typing import Final, Protocol, Unpack

import redis

import escrowmq
from escrowmq.base.message import SysFlag, Topic
from escrowmq.client.announced_commits import Member, parse_member
from escrowmq.client.consumer_settings import ConsumerSettings
from escrowmq.client.offsets import QueueBirth, SeekPosition
from escrowmq.compensation.announcing import TOPIC
from escrowmq.compensation.redis_sets import RedisSets
from escrowmq.errors import ClientClosed, EscrowMQError, UsageError
from escrowmq.net.clock import SystemClock

_log = logging.getLogger(__name__)

_RETRY_S: Final = 0.5
"""Pause in seconds between tests whether the server is back, or the brokers answer."""

_MARK_INTERVAL_MS: Final = 10_000
"""Interval in ms between two marks of the business's progress. After an outage, at most this much
is read again."""

_MISSING_MAX: Final = 10_000
"""Limit of the members that a worker remembers to add later; if the server fails for more, the
oldest are dropped."""

_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_TAKEN_MAX: Final = 32
_RECEIVE_S: Final = 1.0
_RECHECK_S: Final = 0.1


class Business(Protocol):
    """The consumer's application, which processes each message once."""

    def apply(self, message: escrowmq.ReceivedMessage) -> bool:
        """Process a message and record its id, in one transaction of the database. Returns False,
        and does nothing, if the id is already recorded."""

    def done_since(self, mark: str | None) -> tuple[Iterable[Member], str]:
        """Return the transactional messages processed since a mark (None: since ever), and the next
        mark. Additional older messages are harmless. A message that is missing is redone
        needlessly."""


def member_of(message: escrowmq.ReceivedMessage) -> Member | None:
    """Return a transactional message as a member of the sets; None for any other message."""
    if message.sys_flag & SysFlag.TRANSACTION_MASK != SysFlag.COMMIT:
        return None
    return Member(message.message_id, message.topic)


class Worker:
    """A consumer's handler: has the business process a message, then adds it to the set.

    >>> worker = Worker(business, sets)
    >>> consumer = escrowmq.Consumer(nameserver, group="shop", topic="paid", handler=worker)
    >>> consumer.close()
    """

    def __init__(self, business: Business, sets: RedisSets) -> None:
        self._business = business
        self._sets = sets
        self._lock = threading.Lock()
        self._missing: list[str] = []
        """Messages consumed while the server failed, which must still be added to the set."""

    def __call__(self, message: escrowmq.ReceivedMessage) -> None:
        """Consume one message. It counts as consumed once the business has processed it."""
        is_new = self._business.apply(message)
        member = member_of(message)
        if member is None:
            return
        with self._lock:
            missing, self._missing = self._missing, []
        try:
            if missing or is_new:
                self._sets.consume([*missing, str(member)] if is_new else missing)
            if not is_new:
                self._sets.consume_again([str(member)])
        except redis.RedisError as error:
            if not missing:
                _log.warning("the set of consumed messages is not updated from now on: %s", error)
            with self._lock:
                # Only this request may have failed, so that no other code notices. After a longer
                # failure the reader adds what the business lists.
                self._missing = [*missing, str(member), *self._missing][-_MISSING_MAX:]


class AnnouncementReader:
    """Reads the announcements into their set, on a separate thread, until it is closed.

    While the Redis server is unreachable it pauses, and its messages stay unacknowledged. When the
    server is back, what the business has processed meanwhile is first added to the set of consumed
    messages. A server that came back older, or empty, gets everything again that it lacks."""

    def __init__(
        self,
        name_servers: str | None = None,
        *,
        sets: RedisSets,
        business: Business,
        group: str = "escrow-announced",
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        self._sets = sets
        self._business = business
        self._clock = SystemClock()
        self._mark_at_ms = self._clock.now_ms() + _MARK_INTERVAL_MS
        self._server_id = ""
        """The id of the server's process, as last seen."""
        self._marks_count = 0
        """How many marks the server had stored when this was last checked."""
        self._checked_queues: set[str] = set()
        """Queues whose position agrees with the server's."""
        self._births: dict[str, QueueBirth] = {}
        """The births of queues, as last seen."""
        self._set_back_to: dict[str, int] = {}
        """For queues that were set back: the position, as long as nothing was read from there."""
        self._failure = ""
        self._over = threading.Event()
        self._working = threading.Event()
        settings.setdefault("topic", TOPIC)
        self._consumer = _Consumer(name_servers, group=group, **settings)
        self._thread = threading.Thread(target=self._run, name=group, daemon=True)
        self._thread.start()

    @property
    def is_paused(self) -> bool:
        """Whether the reader waits for the Redis server."""
        return not self._working.is_set()

    @property
    def failure(self) -> str:
        """Why no announcements can be read now: the brokers' last error, such as a missing right.
        Empty while they answer."""
        return self._failure

    def close(self) -> None:
        """Close the reader; unsettled announcements are redelivered."""
        self._over.set()
        self._consumer.close()
        self._thread.join()

    # -- the thread --------------------------------------------------------------------------

    def _run(self) -> None:
        self._wait_for_server()
        while not self._over.is_set():
            try:
                self._store_mark()
                self._check_positions()
                taken = self._consumer.receive(_TAKEN_MAX, timeout_s=_RECEIVE_S)
                self._failure = ""
                if taken:
                    self._process_deliveries(taken)
            except ClientClosed:
                return
            except EscrowMQError as error:
                if not self._failure:
                    _log.error("no announcements are read until the brokers answer: %s", error)
                self._failure = str(error)
                self._over.wait(_RETRY_S)

    def _store_mark(self) -> None:
        if self._clock.now_ms() < self._mark_at_ms:
            return
        self._mark_at_ms = self._clock.now_ms() + _MARK_INTERVAL_MS
        try:
            if self._has_server_kept_data():
                # Another member may have noticed, and mended all but these.
                self._checked_queues.clear()
                _, mark = self._business.done_since(self._sets.read_mark())
                self._marks_count = self._sets.keep_mark(mark)
                return
        except redis.RedisError as error:
            _log.warning(
                "the position in the business's list is stored once the Redis server "
                "is reachable: %s",
                error,
            )
            self._pause_until_back()
            return
        except Exception as error:  # noqa: BLE001 - the user's database is unreachable
            _log.info("the position in the business's list could not be stored: %s", error)
            return
        _log.warning("the Redis server has lost data; missing announcements are read again")
        self._pause_until_back()

    def _has_server_kept_data(self) -> bool:
        """Whether the server still has all the data that it had. It may have been restarted while
        nobody used it, with older data or none. Then the mark must not advance before everything
        consumed since is read again."""
        return (
            self._sets.server_id() == self._server_id
            and self._sets.is_whole()
            and self._sets.marks_count() >= self._marks_count
        )

    def _check_positions(self) -> None:
        """Go back in the queues from which the server lacks announcements. Queues are compared when
        this member gets them, because it shares the queues with its group."""
        try:
            queues = self._consumer.queues()
            self._checked_queues &= {_queue_name(queue) for queue in queues}
            for queue in queues:
                if _queue_name(queue) not in self._checked_queues:
                    self._check_position(queue)
                    self._checked_queues.add(_queue_name(queue))
        except ClientClosed:
            raise
        except redis.RedisError as error:
            _log.warning("queues are compared once the Redis server is reachable: %s", error)
            self._pause_until_back()
        except EscrowMQError as error:  # for example, the queue is another member's again
            _log.info("whether everything was read again is checked later: %s", error)

    def _check_position(self, queue: escrowmq.MessageQueue) -> None:
        name, birth = _queue_name(queue), self._consumer.find_birth(queue)
        # The consumer goes on from where it was if the new queue is as long by then.
        is_another = birth is not None and birth.is_of_another(self._births.get(name, birth))
        if is_another:
            _log.warning("%s was deleted and created again, and is read from its beginning", name)
        if is_another or not self._sets.has_begun(name):
            self._consumer.seek(queue, "first")
            self._sets.note_begun(name, self._consumer.position(queue))
        else:
            self._check_reached(queue, name)
        if birth is not None:
            self._births[name] = birth

    def _check_reached(self, queue: escrowmq.MessageQueue, name: str) -> None:
        reached = self._consumer.position(queue)
        place = self._sets.read_place(name)
        if place is None:
            self._sets.keep_place(name, reached)
        elif place < reached:
            if self._set_back_to.get(name) == place:
                self._skip_removed(name, place, reached)
                return
            _log.warning(
                "%s is read again from %d to %d for the Redis server", name, place, reached
            )
            self._consumer.seek(queue, place)
            self._set_back_to[name] = place
        elif place > reached and self._is_another(queue, place, self._sets.read_time(name, place)):
            _log.warning("%s is not what it was, and is read from %d on", name, reached)
            self._sets.keep_place(name, reached)

    def _is_another(self, queue: escrowmq.MessageQueue, place: int, stored_ms: int | None) -> bool:
        """Whether a queue was recreated since it was read up to a place: it is shorter, or has
        messages before the place that are younger than the last one read there. The consumer does
        not move for that: the queue may become another member's, which would go on from there."""
        if place > self._consumer.find_offset(queue, "last"):
            return True
        if stored_ms is None:
            return False
        after = _EPOCH + dt.timedelta(milliseconds=stored_ms + 1)
        return self._consumer.find_offset(queue, after) < place

    def _skip_removed(self, name: str, place: int, first: int) -> None:
        """Skip announcements that the server lacks and that are no longer in the topic. Log
        that."""
        _log.error(
            "announcements %d to %d of %s are neither on the Redis server nor in their topic any "
            "more; compare the database with the broker (escrowmq pipeline reconcile)",
            place, first - 1, name,
        )  # fmt: skip
        self._sets.keep_place(name, first)
        del self._set_back_to[name]

    def _process_deliveries(self, taken: list[escrowmq.Delivery]) -> None:
        queues: dict[escrowmq.MessageQueue, list[escrowmq.Delivery]] = {}
        for one in taken:
            queues.setdefault(one.queue, []).append(one)
        for queue, some in queues.items():
            is_retry = queue.topic.startswith(Topic.RETRY_PREFIX)
            if is_retry or _queue_name(queue) in self._checked_queues:
                self._process_queue(queue, some)
            else:  # assigned after the check, or the check failed
                self._request_redelivery(queue)
                self._over.wait(_RECHECK_S)

    def _process_queue(self, queue: escrowmq.MessageQueue, taken: list[escrowmq.Delivery]) -> None:
        while not self._over.is_set():
            try:
                is_kept = self._add_announcements(queue, taken)
            except redis.RedisError as error:
                _log.warning("announcements wait for the Redis server: %s", error)
                self._pause_until_back()
                continue
            if is_kept:
                for one in taken:
                    one.ack()
            else:
                _log.warning("the Redis server has lost data; missing announcements are read again")
                self._request_redelivery(queue)
                self._pause_until_back()
            return

    def _request_redelivery(self, queue: escrowmq.MessageQueue) -> None:
        """Request again the announcements that were received and could not be added. Nothing else
        would request them if the group's position equals the server's."""
        try:
            self._consumer.seek(queue, self._consumer.position(queue))
        except EscrowMQError as error:  # the queue is another member's by now, which receives it
            _log.info("%s is not read again here: %s", _queue_name(queue), error)

    def _add_announcements(
        self, queue: escrowmq.MessageQueue, taken: list[escrowmq.Delivery]
    ) -> bool:
        """Add announcements to their set; return False if the server lacks earlier ones."""
        offsets = {member: one.queue_offset for one in taken if (member := _announced_member(one))}
        if queue.topic.startswith(Topic.RETRY_PREFIX):
            self._sets.announce(offsets)
            return True
        name, first = _queue_name(queue), min(one.queue_offset for one in taken)
        place = self._set_back_to.get(name)
        if place is not None and place < first and self._sets.read_place(name) == place:
            self._skip_removed(name, place, first)
        until = max(one.queue_offset for one in taken) + 1
        stored_ms = max(taken, key=lambda one: one.queue_offset).stored_ms
        is_kept = self._sets.announce_read(
            offsets, queue=name, first=first, until=until, stored_ms=stored_ms
        )
        if is_kept:
            self._set_back_to.pop(name, None)
        return is_kept

    def _pause_until_back(self) -> None:
        self._consumer.pause()
        self._working.clear()
        self._wait_for_server()

    def _wait_for_server(self) -> None:
        """Wait until the server is back, then update the set of consumed messages and resume."""
        while not self._over.is_set():
            try:
                if self._sets.is_there():
                    self._add_missed_messages()
                    break
            except Exception as error:  # noqa: BLE001 - the server or the user's database is unreachable
                _log.warning("the set of consumed messages cannot be brought up to date: %s", error)
            self._over.wait(_RETRY_S)
        if not self._over.is_set():
            self._working.set()
            self._consumer.resume()

    def _add_missed_messages(self) -> None:
        self._server_id = self._sets.server_id()
        is_whole = self._sets.is_whole()
        mark = self._sets.read_mark() if is_whole else None
        members, mark = self._business.done_since(mark)
        self._sets.consume(str(member) for member in members)
        self._marks_count = self._sets.keep_mark(mark)
        if not is_whole:
            self._sets.mark_whole()
        self._checked_queues.clear()


class _Consumer(escrowmq.Consumer):
    """The reader's consumer, which can look elsewhere in a queue without moving."""

    def find_offset(self, queue: escrowmq.MessageQueue, where: SeekPosition) -> int:
        """Return the offset to which `seek` would go."""

        async def find() -> int:
            return await self._inner.bounds.seek_offset(self._inner.wire_queue(queue), where)

        return self._portal.call(find())

    def find_birth(self, queue: escrowmq.MessageQueue) -> QueueBirth | None:
        """Return what tells a queue from another one of its name; None if that is unknown."""

        async def find() -> QueueBirth | None:
            return await self._inner.bounds.birth(self._inner.wire_queue(queue))

        return self._portal.call(find())


def _queue_name(queue: escrowmq.MessageQueue) -> str:
    return f"{queue.topic}/{queue.broker_name}/{queue.queue_id}"


def _announced_member(message: escrowmq.ReceivedMessage) -> str | None:
    text = message.body.decode("utf-8", "replace")
    try:
        parse_member(text)
    except UsageError as error:
        _log.error("announcement %s is skipped: %s", message.message_id, error)
        return None
    return text
