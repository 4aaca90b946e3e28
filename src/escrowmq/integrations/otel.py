"""OpenTelemetry: spans of messages, from the producer over transactions to the consumer.

>>> from escrowmq.integrations.otel import Tracing
>>> tracing = Tracing()
>>> with escrowmq.Producer(nameserver, group="orders", interceptors=[tracing]) as traced:
...     sent = traced.send("paid", b"order 1")

The context is in the messages' properties as W3C Trace Context (`traceparent`, `tracestate`) and
`baggage`, or as the global propagator writes it. Names and attributes are those of OpenTelemetry's
conventions for messaging and RocketMQ:

  send      a message is sent, plain or as a half; `create` for each and one `send` for a batch
  commit, rollback, unknown   an END is sent to a broker
  check     the producer's check runs; its answer is a commit or rollback in the same trace
  process   from a message's delivery until it is settled

Needs opentelemetry-api (`pip install escrowmq[otel]`); without an SDK beside it nothing is
written."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator, Sequence
from typing import Final, Generic, TypeVar

from escrowmq.base.extras import require_extra

require_extra("otel", "opentelemetry")

from opentelemetry import propagate, trace
from opentelemetry.context import Context, attach, detach, get_current
from opentelemetry.trace import Link, Span, SpanKind, StatusCode, TracerProvider
from opentelemetry.util.types import AttributeValue

from escrowmq.base.message import Property
from escrowmq.base.ports import Clock
from escrowmq.client.core.hooks import Consumed, Interceptor
from escrowmq.client.core.message import Message, ReceivedMessage
from escrowmq.client.core.sending import Outcome, SendResult, delay_properties
from escrowmq.client.delivery import HeldMessage
from escrowmq.codec.ids import format_host, parse_offset_id
from escrowmq.net.clock import SystemClock

OPEN_MAX: Final = 10_000
"""Limit of open spans of one kind; beyond it, the oldest is ended. This limits the memory if
messages are never settled."""

_SYSTEM: Final = "rocketmq"
_OUTCOME: Final = "escrowmq.outcome"
Attributes = dict[str, AttributeValue]
T = TypeVar("T")


class _OpenSpans(Generic[T]):
    """Open spans, by the object to which they belong."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._found: dict[object, list[tuple[object, T]]] = {}

    def put(self, key: object, value: T) -> list[T]:
        """Store a span of an object, which may have several. Return the span that was removed to
        stay within the limit, if any."""
        with self._lock:
            # The object is held too, so that no other one gets its address.
            self._found.setdefault(_span_key(key), []).append((key, value))
            if len(self._found) <= OPEN_MAX:
                return []
            return [old for _, old in self._found.pop(next(iter(self._found)))]

    def get(self, key: object) -> T | None:
        """Return an object's open span."""
        found = self._found.get(_span_key(key))
        return found[-1][1] if found else None

    def pop(self, key: object) -> T | None:
        """Remove and return an object's span."""
        with self._lock:
            found = self._found.get(_span_key(key))
            if not found:
                return None
            _, value = found.pop()
            if not found:
                del self._found[_span_key(key)]
            return value


class _DeliverySpan:
    """The span of messages that were delivered together."""

    def __init__(self, span: Span, count: int) -> None:
        self.span = span
        self.is_one = count == 1
        self._open_count = count

    def count_settled(self) -> None:
        """Count a settled message; end the span with the last one."""
        self._open_count -= 1
        assert self._open_count >= 0, self._open_count
        if self._open_count == 0:
            self.span.end()


class Tracing(Interceptor):
    """An interceptor that makes spans: pass it as `interceptors=[Tracing()]` to producers and
    consumers; one may serve many.

    `tracer_provider` defaults to OpenTelemetry's global one. `namespace` becomes an attribute of
    each span."""

    def __init__(
        self,
        *,
        tracer_provider: TracerProvider | None = None,
        namespace: str = "",
        clock: Clock | None = None,
    ) -> None:
        self._tracer = trace.get_tracer("escrowmq", tracer_provider=tracer_provider)
        self._namespace = namespace
        self._clock = clock or SystemClock()
        self._begun: _OpenSpans[Span] = _OpenSpans()
        self._handed: _OpenSpans[_DeliverySpan] = _OpenSpans()

    # -- sending -----------------------------------------------------------------------------

    def before_send(self, message: Message) -> None:
        """Begin a span and put its context into the message."""
        attributes = {
            **self._common_attributes("send", "send", message.topic),
            **self._send_attributes(message),
        }
        span = self._tracer.start_span(
            f"send {message.topic}", kind=SpanKind.PRODUCER, attributes=attributes
        )
        propagate.inject(message.properties, trace.set_span_in_context(span))
        self._store_span(message, span)

    def after_send(
        self, message: Message, result: SendResult | None, error: BaseException | None
    ) -> None:
        """End the span."""
        span = self._begun.pop(message)
        if span is not None:
            if result is not None:
                span.set_attributes(_result_attributes(result))
            _end_span(span, error)

    def before_send_many(self, messages: Sequence[Message]) -> None:
        """Start one span for the batch, and one for the creation of each message, to which it is
        linked."""
        topic = messages[0].topic
        links = []
        for message in messages:
            attributes = {
                **self._common_attributes("create", "create", topic),
                **self._send_attributes(message),
            }
            created = self._tracer.start_span(
                f"create {topic}", kind=SpanKind.PRODUCER, attributes=attributes
            )
            propagate.inject(message.properties, trace.set_span_in_context(created))
            created.end()
            links.append(Link(created.get_span_context()))
        attributes = self._common_attributes("send", "send", topic)
        attributes["messaging.batch.message_count"] = len(messages)
        span = self._tracer.start_span(
            f"send {topic}", kind=SpanKind.CLIENT, attributes=attributes, links=links
        )
        self._store_span(messages, span)

    def after_send_many(
        self,
        messages: Sequence[Message],
        results: Sequence[SendResult],
        error: BaseException | None,
    ) -> None:
        """End the batch's span."""
        span = self._begun.pop(messages)
        if span is not None:
            servers = [_server_attributes(result) for result in results]
            if servers and all(each == servers[0] for each in servers):
                span.set_attributes(servers[0])
            _end_span(span, error)

    # -- transactions ------------------------------------------------------------------------

    def before_settle(
        self, transaction_id: str, outcome: Outcome, messages: Sequence[Message]
    ) -> None:
        """Start a span for an END: a child of the current span, otherwise of the half's. The answer
        to a check always belongs to the message's own trace."""
        name = outcome.name.lower()
        topic = messages[0].topic if messages else ""
        attributes = self._common_attributes(name, "settle", topic)
        attributes["messaging.rocketmq.message.type"] = "transaction"
        if len(messages) > 1:
            attributes["messaging.batch.message_count"] = len(messages)
        links = _links(messages)
        parent: Context | None = None
        if messages and (isinstance(messages[0], ReceivedMessage) or not _is_in_span()):
            parent = _extract_context(messages[0])
            links = links[1:]
        span = self._tracer.start_span(
            f"{name} {topic}".rstrip(),
            context=parent,
            kind=SpanKind.CLIENT,
            attributes=attributes,
            links=links,
        )
        self._store_span(transaction_id, span)

    def after_settle(
        self, transaction_id: str, outcome: Outcome, error: BaseException | None
    ) -> None:
        """End the span."""
        span = self._begun.pop(transaction_id)
        if span is not None:
            _end_span(span, error)

    @contextlib.contextmanager
    def around_check(self, message: ReceivedMessage) -> Iterator[None]:
        """Run the producer's check in a span."""
        attributes = {
            **self._common_attributes("check", "process", message.topic),
            **_receive_attributes(message),
        }
        attributes["messaging.rocketmq.message.type"] = "transaction"
        span = self._tracer.start_span(
            f"check {message.topic}",
            context=_extract_context(message),
            kind=SpanKind.CONSUMER,
            attributes=attributes,
        )
        try:
            with _span_as_current(span, _merged_context(message)):
                yield
        finally:
            span.end()

    # -- consuming ---------------------------------------------------------------------------

    def before_consume_many(self, messages: Sequence[ReceivedMessage]) -> None:
        """Start a span: for one message in that message's trace, for several with links to
        theirs."""
        first = messages[0]
        attributes = {
            **self._common_attributes("process", "process", first.topic),
            **_consumer_attributes(first),
        }
        links: list[Link] = []
        parent = Context()
        if len(messages) == 1:
            attributes |= _receive_attributes(first)
            parent = _extract_context(first)
        else:
            attributes["messaging.batch.message_count"] = len(messages)
            links = _links(messages)
        span = self._tracer.start_span(
            f"process {first.topic}",
            context=parent,
            kind=SpanKind.CONSUMER,
            attributes=attributes,
            links=links,
        )
        handed = _DeliverySpan(span, len(messages))
        for message in messages:
            for late in self._handed.put(message, handed):
                late.count_settled()

    @contextlib.contextmanager
    def around_consume(self, messages: Sequence[ReceivedMessage]) -> Iterator[None]:
        """Run the handler in the span, which records its exceptions."""
        with self.inside(messages[0]):
            yield

    @contextlib.contextmanager
    def inside(self, message: ReceivedMessage) -> Iterator[None]:
        """Make the span of a message from an iteration or `receive` current; handlers run in it
        automatically.

        >>> with escrowmq.Consumer(
        ...     nameserver, group="books", topic="paid", interceptors=[tracing]
        ... ) as consumer:
        ...     for message in consumer:
        ...         with tracing.inside(message):
        ...             pass  # spans that are begun here belong to the message
        ...         break
        """
        handed = self._handed.get(message)
        if handed is None:
            yield
            return
        # Each of several messages may have its own baggage.
        brought = _merged_context(message) if handed.is_one else None
        with _span_as_current(handed.span, brought):
            yield

    def after_consume(self, message: ReceivedMessage, outcome: Consumed) -> None:
        """End the span, unless other messages still share it."""
        handed = self._handed.pop(message)
        if handed is None:
            return
        if handed.is_one:
            handed.span.set_attribute(_OUTCOME, outcome)
        else:
            attributes = {_OUTCOME: outcome, "messaging.message.id": message.message_id}
            handed.span.add_event("settled", attributes)
        handed.count_settled()

    # -- inside ------------------------------------------------------------------------------

    def _store_span(self, key: object, span: Span) -> None:
        for late in self._begun.put(key, span):
            late.end()

    def _send_attributes(self, message: Message) -> Attributes:
        """Return the attributes of a message that is about to be sent."""
        found = _message_attributes(message)
        delay = delay_properties(message)
        if level := delay.get(Property.DELAY):
            found["messaging.rocketmq.message.delay_time_level"] = int(level)
        elif delay:
            at_ms = int(delay.get(Property.TIMER_DELIVER_MS, 0))
            at_ms = at_ms or self._clock.now_ms() + int(delay[Property.TIMER_DELAY_MS])
            found["messaging.rocketmq.message.delivery_timestamp"] = at_ms
        return found

    def _common_attributes(self, name: str, kind: str, topic: str) -> Attributes:
        found: Attributes = {
            "messaging.system": _SYSTEM,
            "messaging.operation.name": name,
            "messaging.operation.type": kind,
            "messaging.rocketmq.namespace": self._namespace,
        }
        if topic:
            found["messaging.destination.name"] = topic
        return found


def _span_key(key: object) -> object:
    return key if isinstance(key, str) else id(key)


def _message_attributes(message: Message) -> Attributes:
    """Return the attributes that producers and consumers have in common."""
    kind = "fifo" if message.order_key else "delay" if delay_properties(message) else "normal"
    found: Attributes = {
        "messaging.message.body.size": len(message.body),
        "messaging.rocketmq.message.type": kind,
    }
    if message.tag:
        found["messaging.rocketmq.message.tag"] = message.tag
    if message.keys:
        found["messaging.rocketmq.message.keys"] = list(message.key_list)
    if message.order_key:
        found["messaging.rocketmq.message.group"] = message.order_key
    return found


def _result_attributes(result: SendResult) -> Attributes:
    """Return the attributes from the broker's answer."""
    found: Attributes = {
        "messaging.message.id": result.message_id,
        "messaging.destination.partition.id": str(result.queue.queue_id),
    }
    if result.is_half:
        found["messaging.rocketmq.message.type"] = "transaction"
    return found | _server_attributes(result)


def _server_attributes(result: SendResult) -> Attributes:
    """Return the attributes of the broker that stored a message; none if it is unknown."""
    try:
        host, _, port = format_host(parse_offset_id(result.offset_id)[0]).rpartition(":")
    except ValueError:
        return {}
    return {"server.address": host, "server.port": int(port)}


def _receive_attributes(message: ReceivedMessage) -> Attributes:
    """Return a consumer's attributes of a message."""
    found = _message_attributes(message)
    if message.transaction_id:
        found["messaging.rocketmq.message.type"] = "transaction"
    found["messaging.message.id"] = message.message_id
    found["messaging.destination.partition.id"] = str(message.queue_id)
    return found


def _consumer_attributes(message: ReceivedMessage) -> Attributes:
    """Return the attributes of the consumer."""
    if not isinstance(message, HeldMessage):
        return {}
    model = "broadcasting" if message.is_broadcast else "clustering"
    return {
        "messaging.consumer.group.name": message.group,
        "messaging.rocketmq.consumption_model": model,
    }


def _extract_context(message: Message) -> Context:
    """Return the context that the producer put into a message."""
    return propagate.extract(message.properties, Context())


def _merged_context(message: Message) -> Context:
    """Return the current context merged with the one that the producer put into a message."""
    return propagate.extract(message.properties, get_current())


def _links(messages: Sequence[Message]) -> list[Link]:
    found = [
        trace.get_current_span(_extract_context(message)).get_span_context() for message in messages
    ]
    return [Link(context) for context in found if context.is_valid]


def _is_in_span() -> bool:
    return trace.get_current_span().get_span_context().is_valid


@contextlib.contextmanager
def _span_as_current(span: Span, brought: Context | None) -> Iterator[None]:
    """Make the span current, along with the message's baggage; record exceptions in it."""
    token = attach(trace.set_span_in_context(span, brought))
    try:
        yield
    except Exception as error:
        _record_error(span, error)
        raise
    finally:
        detach(token)


def _record_error(span: Span, error: BaseException) -> None:
    span.record_exception(error)
    span.set_attribute("error.type", type(error).__qualname__)
    span.set_status(StatusCode.ERROR, str(error))


def _end_span(span: Span, error: BaseException | None) -> None:
    if error is not None:
        _record_error(span, error)
    span.end()
