"""Reads messages for a queue of kombu on a separate thread, and buffers a few."""

from __future__ import annotations

import collections
import contextlib
import datetime as dt
import logging
import tempfile
import threading
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Self

from kombu.transport.virtual import Channel
from kombu.utils.json import loads

from escrowmq.client.blocking.consumer import Consumer
from escrowmq.client.blocking.delivery import Delivery
from escrowmq.errors import ClientClosed, EscrowMQError
from escrowmq.net.clock import SystemClock

_log = logging.getLogger(__name__)

READY_MAX: Final = 32
"""Limit of buffered messages; further ones wait at the broker."""

_LOOK_S: Final = 1.0
"""Timeout in seconds of one request for messages. The reader notices only after it that it was
closed."""

_AFTER_ERROR_S: Final = 1.0
_LOOK_BACK: Final = dt.timedelta(minutes=1)
"""A reader of replies begins this long before its start, because the clock of the broker that
stored a reply may be behind."""

Payload = dict[str, Any]
"""A message in kombu's form."""


class BufferedMessage(NamedTuple):
    """A buffered message."""

    payload: Payload
    delivery: Delivery


class ThreadReader:
    """Reads messages on a thread of its own. `next_message` is called by kombu's thread; `wanted`
    filters messages."""

    def __init__(
        self,
        consumer: Consumer,
        *,
        wanted: Callable[[Payload], bool],
        news: threading.Condition,
        folders: contextlib.ExitStack | None = None,
    ) -> None:
        self._folders = folders or contextlib.ExitStack()
        self._consumer = consumer
        self._wanted = wanted
        self._news = news
        self._ready: collections.deque[BufferedMessage] = collections.deque()
        self._is_closed = False
        self._is_paused = False
        self._has_looked = False
        self._thread = threading.Thread(
            target=self._read_messages, name=f"escrowmq-kombu-{consumer.group}", daemon=True
        )
        self._thread.start()

    @classmethod
    def for_queue(
        cls,
        name_servers: str | None,
        *,
        topic: str,
        group: str,
        settings: dict[str, Any],
        news: threading.Condition,
    ) -> Self:
        """Make a reader of a queue that the members of a group share."""
        consumer = Consumer(name_servers, group=group, topic=topic, **settings)
        return cls(consumer, wanted=lambda _: True, news=news)

    @classmethod
    def for_exchange(
        cls,
        name_servers: str | None,
        *,
        topic: str,
        group: str,
        settings: dict[str, Any],
        wanted: Callable[[Payload], bool],
        looks_back: bool,
        news: threading.Condition,
    ) -> Self:
        """Make a reader for a queue that lives as long as its connection: it gets all messages to
        its exchange from now on."""
        start = dt.datetime.fromtimestamp(SystemClock().now_ms() / 1000, dt.UTC) - _LOOK_BACK
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="escrowmq-kombu-"))
            consumer = Consumer(
                name_servers,
                group=group,
                topic=topic,
                is_broadcasting=True,
                offsets_folder=folder,
                consume_from=start if looks_back else "last",
                **settings,
            )
            return cls(consumer, wanted=wanted, news=news, folders=stack.pop_all())

    def next_message(self) -> BufferedMessage | None:
        """Return the next buffered message, which must be settled; None if no message is
        buffered."""
        with self._news:
            found = self._ready.popleft() if self._ready else None
            self._news.notify_all()  # there is room
            return found

    def wait_for_poll(self) -> None:
        """Wait until the reader has made one request, so that messages that already wait are
        buffered."""
        with self._news:
            self._news.wait_for(
                lambda: self._has_looked or self._ready or self._is_closed, timeout=2 * _LOOK_S
            )

    def pause(self) -> None:
        """Stop reading until `resume`. Messages already taken can still be settled."""
        with self._news:
            self._is_paused = True

    def resume(self) -> None:
        """Continue to read after `pause`."""
        with self._news:
            self._is_paused = False
            self._news.notify_all()

    def close(self) -> None:
        """Close the reader. Unsettled messages are redelivered to other members of the group."""
        with self._news:
            self._is_closed = True
            self._ready.clear()
            self._news.notify_all()
        self._consumer.close()
        self._thread.join()
        self._folders.close()

    # -- the thread --------------------------------------------------------------------------

    def _read_messages(self) -> None:
        while self._may_continue():
            try:
                found = self._consumer.receive(READY_MAX, timeout_s=_LOOK_S)
            except ClientClosed:
                return
            except EscrowMQError as error:
                _log.error("a broker hands out no messages: %s", error)
                self._record_poll()
                self._wait_after_error()
                continue
            for delivery in found:
                try:
                    self._buffer_message(delivery)
                except ClientClosed:
                    return
                except Exception:  # noqa: BLE001 - one message, which comes again
                    # Without this thread no message would be read.
                    _log.exception("message %s is not delivered", delivery.message_id)
            self._record_poll()

    def _record_poll(self) -> None:
        with self._news:
            self._has_looked = True
            self._news.notify_all()

    def _may_continue(self) -> bool:
        """Whether to continue reading, after a pause if necessary."""
        with self._news:
            self._news.wait_for(lambda: self._is_closed or not self._is_paused)
            return not self._is_closed

    def _wait_after_error(self) -> None:
        with self._news:
            self._news.wait_for(lambda: self._is_closed, timeout=_AFTER_ERROR_S)

    def _buffer_message(self, delivery: Delivery) -> None:
        payload = _parse_payload(delivery)
        if payload is None:
            delivery.reject()
        elif not self._wanted(payload):
            delivery.ack()
        else:
            with self._news:
                self._news.wait_for(lambda: self._is_closed or len(self._ready) < READY_MAX)
                if not self._is_closed:
                    self._ready.append(BufferedMessage(payload, delivery))
                    self._news.notify_all()


def _check_payload(payload: Any) -> None:
    """Raise unless kombu can make a message of a payload. Otherwise its `drain_events` would raise,
    and end one worker after another."""
    properties, headers, body = payload["properties"], payload.get("headers"), payload.get("body")
    encoding, key = properties.get("body_encoding"), properties["delivery_info"]["routing_key"]
    for found, kind in (
        (key, str),
        (encoding or "", str),
        (body or "", str),
        (headers or {}, dict),
    ):
        if not isinstance(found, kind):
            raise TypeError(f"{found!r} in the place of a {kind.__name__}")
    if body and encoding and encoding.lower() != "utf-8":
        Channel.codecs[encoding].decode(body)


def _parse_payload(delivery: Delivery) -> Payload | None:
    """Return the payload that kombu stored; None for messages that others sent to its topic."""
    try:
        found = loads(delivery.body)
        info = found["properties"]["delivery_info"]
        info["redelivered"] = delivery.deliveries_before > 0
        _check_payload(found)
    except Exception:  # noqa: BLE001 - what anybody has sent is read here, dates and decimals too
        _log.error("message %s of %r does not come from kombu", delivery.message_id, delivery.topic)
        return None
    payload: Payload = found
    return payload
