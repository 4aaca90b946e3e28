"""The blocking consumer."""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import functools
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from escrowmq.client import consumer as engine
from escrowmq.client.blocking.delivery import Delivery
from escrowmq.client.blocking.face import BlockingClient, shorten_tracebacks
from escrowmq.client.client_settings import ClientOptions
from escrowmq.client.consumer_settings import (
    ConsumerOptions,
    ConsumerSettings,
    split_consumer_settings,
)
from escrowmq.client.core.callables import is_coroutine
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.delivery import HeldMessage
from escrowmq.client.help_and_completion import KeywordOnly, SettingsSignature
from escrowmq.client.iteration import IterationSlot, check_batch_options
from escrowmq.client.offsets import SeekPosition
from escrowmq.client.portal import Caller, Portal, release_portal
from escrowmq.errors import ClientClosed, EscrowMQError

if TYPE_CHECKING:
    from types import TracebackType

_CALLED_ON_THREADS: Final = ("handler", "on_assigned", "on_revoked")
"""Settings with users' functions. These may close the consumer, which must not wait for them."""

_EXIT_WAIT_S: Final = 15.0
"""How long the exit of the program waits for each consumer to close."""


class _ConsumerEngine(engine.Consumer):
    """The asyncio consumer, changed to make deliveries with blocking methods."""

    def __init__(
        self,
        portal: Portal,
        name_servers: str | Sequence[str] | None,
        *,
        group: str,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        self._portal = portal
        super().__init__(name_servers, group=group, **settings)

    def _delivery_class(self) -> type[HeldMessage]:
        return Delivery if self.options.handler is None else super()._delivery_class()

    def _caller(self) -> Caller:
        return self._portal


@shorten_tracebacks()
class Batches:
    """Iterates over lists of messages. Each list is acknowledged when the loop asks for the next
    one."""

    def __init__(
        self,
        consumer: Consumer,
        portal: Portal,
        inner: _ConsumerEngine,
        *,
        count_max: int = 1,
        within_s: float = 0.0,
    ) -> None:
        check_batch_options(count_max, within_s)
        self._consumer = consumer  # which is closed when nothing refers to it
        self._portal = portal
        self._count_max = count_max
        self._within_s = within_s
        self._slot = IterationSlot()
        self._inner = inner

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> list[Delivery]:
        if self._slot.arrived:
            # It arrived when an earlier call was interrupted; wait until that call has ended,
            # because it may still be adding to it.
            self._portal.call(asyncio.sleep(0))
        elif not self._fetch_next():
            raise StopIteration
        found = [each for each in self._slot.deliver_arrived() if isinstance(each, Delivery)]
        if not found:  # another thread has closed the consumer, which put them back
            raise StopIteration
        return found

    def _fetch_next(self) -> bool:
        try:
            return self._portal.call(
                self._inner.advance(self._slot, self._count_max, within_s=self._within_s)
            )
        except ClientClosed:
            if self._inner.is_closed:
                return False
            raise

    def __del__(self) -> None:
        inner = getattr(self, "_inner", None)
        if inner is not None:
            inner.iteration_slots.end_iteration(self._slot)


@shorten_tracebacks()
class Iteration:
    """Iterates over messages. Each is acknowledged when the loop asks for the next one."""

    def __init__(self, batches: Batches) -> None:
        self._batches = batches

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Delivery:
        (message,) = next(self._batches)
        return message


@shorten_tracebacks()
class Consumer(KeywordOnly, BlockingClient[_ConsumerEngine]):
    """Receives messages, shared with the other members of its group. It is open once it is made;
    close it, or use it with `with`.

    >>> with escrowmq.Consumer(nameserver, group="mailer", topic="paid") as consumer:
    ...     for message in consumer:  # acknowledged when the next one is asked for
    ...         break  # or at the end of the block, unless it raises
    >>> message.topic
    'paid'

    `name_servers` is `host:port`, several separated by `;`; None means the environment variable
    NAMESRV_ADDR. With `handler=`, messages are passed to it instead, on `concurrency` threads: it
    returns when it has consumed a message, and raises to have it redelivered. Settings are those of
    `ConsumerOptions` and `ClientOptions`."""

    __signature__ = SettingsSignature(ConsumerOptions, ClientOptions)

    def __init__(
        self,
        name_servers: str | Sequence[str] | None = None,
        *,
        group: str,
        **settings: Unpack[ConsumerSettings],
    ) -> None:
        self._is_closed = True
        self._process = os.getpid()
        self._inside = threading.local()
        self.group = group
        split_consumer_settings(settings)  # judges functions as the user gave them
        for name in _CALLED_ON_THREADS:
            given = settings.get(name)
            if given is not None and not is_coroutine(given) and callable(given):
                settings[name] = _wrap_with_thread_mark(given, self._inside)
        self._portal = self._join_event_loop()
        try:
            self._inner = _ConsumerEngine(
                portal=self._portal, name_servers=name_servers, group=group, **settings
            )
        except BaseException:
            self._release_event_loop()
            raise
        self._is_closed = False
        try:
            self._portal.call(self._inner.open())
        except BaseException:
            self.close()
            raise
        (_open if self._inner.options.handler is None else _running).add(self)

    def __repr__(self) -> str:
        return repr(self._inner).replace("<aio.", "<", 1)

    # -- life --------------------------------------------------------------------------------

    def close(self) -> None:
        """Close the consumer: wait for running handlers, commit offsets, leave the group. Unsettled
        messages are redelivered. It takes a few seconds at most; calling it again does nothing. A
        handler may call it, or a callback for queues: the consumer then closes after that has
        returned."""
        if self._is_closed:
            return
        _running.discard(self)
        if getattr(self._inside, "is_handling", False):
            self._is_closed = True
            with contextlib.suppress(IndexError):  # another thread has closed it just now
                _close_later(self._portals.pop(), self._inner)
            return
        self._close_and_release()

    def wait(self) -> None:
        """Wait until a handler or another thread closes the consumer."""
        with contextlib.suppress(ClientClosed):
            self._portal.call(self._inner.wait())

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None and not self._is_closed:
            with contextlib.suppress(EscrowMQError):
                self._portal.call(self._inner.iteration_slots.settle_all(None))
        self.close()

    def __del__(self) -> None:
        # `for message in Consumer(...)` leaves no reference that could close it.
        if not getattr(self, "_is_closed", True) and self._process == os.getpid():
            self._is_closed = True
            with contextlib.suppress(IndexError):
                _close_later(self._portals.pop(), self._inner)

    # -- receiving ---------------------------------------------------------------------------

    def __iter__(self) -> Iteration:
        """Iterate over messages. Each is acknowledged when the loop asks for the next one, or when
        the consumer's block ends without an exception. Otherwise the message that a loop held when
        it ended is redelivered: `ack()` it before a `break`.

        >>> for message in escrowmq.Consumer(nameserver, group="audit", topic="paid"):
        ...     message.retry(after=10)  # or ack(), or reject() to the dead letters
        ...     break
        """
        return Iteration(Batches(self, self._portal, self._inner))

    def batches(self, count_max: int = 100, *, within_s: float = 1.0) -> Batches:
        """Iterate over lists of messages of all queues. A list ends when it is full, or `within_s`
        seconds after its first message. It is acknowledged when the loop asks for the next one, or
        when the consumer's block ends without an exception. After an exception it is redelivered,
        except messages that were settled with `ack()`, `retry()` or `reject()`. With `is_orderly`,
        a list has the available messages of one queue.

        >>> with escrowmq.Consumer(nameserver, group="copies", topic="paid") as consumer:
        ...     for messages in consumer.batches(500, within_s=0.2):
        ...         pass  # write them to a database, all at once
        ...         break
        """
        return Batches(self, self._portal, self._inner, count_max=count_max, within_s=within_s)

    def receive(self, count_max: int = 32, *, timeout_s: float | None = None) -> list[Delivery]:
        """Return up to `count_max` messages of one queue as soon as there is one, or none after the
        timeout. Settle each with `ack()`, `retry()` or `reject()`.

        >>> with escrowmq.Consumer(nameserver, group="books", topic="paid") as consumer:
        ...     for message in consumer.receive(10, timeout_s=30):
        ...         message.ack()
        """
        box: list[HeldMessage] = []
        try:
            self._portal.call(
                self._inner.take_undelivered_into(box, count_max, timeout_s=timeout_s)
            )
            return [message for message in box if isinstance(message, Delivery)]
        except BaseException:  # an interrupt: the messages taken reach no caller
            self._portal.post(lambda: self._inner.put_back(box))
            raise

    # -- topics ------------------------------------------------------------------------------

    def subscribe(self, topic: str, *, tags: str = "", sql: str = "") -> None:
        """Subscribe to one more topic, or to other messages of a topic. All members of a group must
        have the same subscriptions. A request that a broker holds goes on with the former
        condition, for up to `pull_wait_ms`; with `mode="pop"`, messages that only the new one
        matches are skipped meanwhile."""
        self._portal.call(self._inner.subscribe(topic, tags=tags, sql=sql))

    def unsubscribe(self, topic: str) -> None:
        """Stop reading a topic."""
        self._portal.call(self._inner.unsubscribe(topic))

    # -- queues ------------------------------------------------------------------------------

    def queues(self) -> list[MessageQueue]:
        """Return the queues that this member reads now."""
        return self._portal.call(self._inner.queues())

    def pause(self, *queues: MessageQueue) -> None:
        """Stop delivering messages of these queues, or of all queues if none are given."""
        self._portal.call(self._inner.pause(*queues))

    def resume(self, *queues: MessageQueue) -> None:
        """Continue to deliver messages of these queues, or of all queues if none are given."""
        self._portal.call(self._inner.resume(*queues))

    def seek(self, queue: MessageQueue, where: SeekPosition) -> None:
        """Continue elsewhere in a queue: at an offset, at the first message since a time (a
        datetime with a time zone), at the `first` message, or at the end (`last`). The group's
        offset moves too, unless `auto_commit` is off."""
        self._portal.call(self._inner.seek(queue, where))

    def position(self, queue: MessageQueue) -> int:
        """Return the offset below which this member has settled every message of a queue."""
        return self._portal.call(self._inner.position(queue))

    def committed(self, queue: MessageQueue) -> int | None:
        """Return the group's committed offset; None if there is none."""
        return self._portal.call(self._inner.committed(queue))

    def commit(self) -> None:
        """Commit the offsets of settled messages immediately instead of at the next interval."""
        self._portal.call(self._inner.commit())


def _wrap_with_thread_mark(
    handler: Callable[[Any], Any], inside: threading.local
) -> Callable[[Any], Any]:
    """Wrap a handler, or a callback for queues, so that its thread is marked while it runs."""

    @functools.wraps(handler)
    def run(given: Any) -> Any:  # noqa: ANN401 - whatever the user's handler takes
        inside.is_handling = True
        try:
            return handler(given)
        finally:
            inside.is_handling = False

    return run


_open: weakref.WeakSet[Consumer] = weakref.WeakSet()
_running: set[Consumer] = set()
"""Consumers with handlers. This reference keeps them working even if the program holds none."""

_ending: set[threading.Event] = set()


def _close_later(portal: Portal, inner: engine.Consumer) -> None:
    """Close the consumer on the event loop's thread without waiting for it; wait only at the exit
    of the program."""
    ended = threading.Event()
    _ending.add(ended)

    async def close() -> None:
        try:
            await inner.close()
        finally:
            _ending.discard(ended)
            ended.set()
            release_portal(portal)

    def begin() -> None:
        _closing.add(task := asyncio.get_running_loop().create_task(close()))
        task.add_done_callback(_closing.discard)

    portal.post(begin)


_closing: set[asyncio.Task[None]] = set()


def _forget_parents_consumers() -> None:
    """Forget the parent's consumers, in a forked child: the child must not close them."""
    for consumers in (_open, _running, _ending, _closing):
        consumers.clear()


os.register_at_fork(after_in_child=_forget_parents_consumers)


def _close_at_exit() -> None:
    """Close all consumers at the exit of the program: commit offsets and leave groups. This runs
    before the event loop stops, because exit functions run in reverse order of registration."""
    for consumer in [*_open, *_running]:
        consumer.close()
    for ended in [*_ending]:
        ended.wait(_EXIT_WAIT_S)


atexit.register(_close_at_exit)
