"""OpenTelemetry's spans with a real broker: one trace from the producer to the consumer."""

import asyncio
from typing import Any

import pytest
from opentelemetry import baggage, context
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode, Tracer, format_trace_id

import escrowmq
from escrowmq.errors import InvalidMessage, OutcomeContradicted
from escrowmq.integrations.otel import Tracing
from tests.interop.process import until
from tests.interop.servers import Server

from .reading import wait_delivered


class Spans:
    """What was exported."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider()
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.tracer: Tracer = provider.get_tracer("test")
        self.tracing = Tracing(tracer_provider=provider, namespace="n")

    def named(self, name: str) -> ReadableSpan:
        """The one span of that name, once it has ended."""
        return self.all_named(name, 1)[0]

    def all_named(self, name: str, count: int) -> list[ReadableSpan]:
        def look() -> list[ReadableSpan] | None:
            found = [span for span in self.exporter.get_finished_spans() if span.name == name]
            return found if len(found) >= count else None

        found = until(f"{count} spans {name!r}", look)
        assert len(found) == count
        return found


@pytest.fixture
def spans() -> Spans:
    return Spans()


def trace_of(span: ReadableSpan) -> int:
    assert span.context is not None
    return int(span.context.trace_id)


def is_child(span: ReadableSpan, parent: ReadableSpan) -> bool:
    assert span.context is not None
    assert parent.context is not None
    return (
        span.context.trace_id == parent.context.trace_id
        and span.parent is not None
        and span.parent.span_id == parent.context.span_id
    )


def linked(span: ReadableSpan) -> set[int]:
    return {link.context.span_id for link in span.links}


def span_ids(spans: list[ReadableSpan]) -> set[int]:
    return {span.context.span_id for span in spans if span.context is not None}


def test_one_trace_from_the_callers_span_to_the_span_in_the_handler(
    server: Server, topic: str, group: str, spans: Spans
) -> None:
    def handle(message: escrowmq.Delivery) -> None:
        with spans.tracer.start_as_current_span("write mail"):
            pass

    with (
        escrowmq.Producer(server.nameserver, group=group, interceptors=[spans.tracing]) as producer,
        spans.tracer.start_as_current_span("order"),
    ):
        sent = producer.send(topic, b"abc", tag="a", keys=["k"], properties={"mine": "1"})
    with escrowmq.Consumer(
        server.nameserver, group=group, topic=topic, handler=handle, interceptors=[spans.tracing]
    ):
        process = spans.named(f"process {topic}")
    order, send, mail = (spans.named(name) for name in ("order", f"send {topic}", "write mail"))
    assert is_child(send, order)
    assert is_child(process, send)
    assert is_child(mail, process)
    assert (send.kind, process.kind) == (SpanKind.PRODUCER, SpanKind.CONSUMER)
    both = {
        "messaging.system": "rocketmq",
        "messaging.destination.name": topic,
        "messaging.destination.partition.id": str(sent.queue.queue_id),
        "messaging.message.id": sent.message_id,
        "messaging.message.body.size": 3,
        "messaging.rocketmq.namespace": "n",
        "messaging.rocketmq.message.type": "normal",
        "messaging.rocketmq.message.tag": "a",
        "messaging.rocketmq.message.keys": ("k",),
    }
    host, port = server.broker.split(":")
    assert dict(send.attributes or {}) == {
        **both,
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "server.address": host,
        "server.port": int(port),
    }
    assert dict(process.attributes or {}) == {
        **both,
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.consumer.group.name": group,
        "messaging.rocketmq.consumption_model": "clustering",
        "escrowmq.outcome": "acknowledged",
    }
    (stored,) = wait_delivered(server, topic, 1)
    assert stored.properties["mine"] == "1"
    assert stored.properties["traceparent"].split("-")[1] == format_trace_id(trace_of(send))


def test_baggage_is_there_where_a_message_is_checked_and_handled(
    server: Server, topic: str, group: str, spans: Spans
) -> None:
    """It travelled, and nobody unpacked it."""
    found: list[object] = []

    def check(message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
        found.append(("check", baggage.get_baggage("shop"), baggage.get_baggage("mine")))
        return escrowmq.Outcome.COMMIT

    with escrowmq.Producer(
        server.nameserver, group=group, check=check, interceptors=[spans.tracing]
    ) as producer:
        token = context.attach(baggage.set_baggage("shop", "7"))
        with producer.transaction(topic, b"x") as tx:
            tx.unknown()
        context.detach(token)
        wait_delivered(server, topic, 1)
    with escrowmq.Consumer(
        server.nameserver, group=group, topic=topic, interceptors=[spans.tracing]
    ) as consumer:
        (message,) = consumer.receive()
        token = context.attach(baggage.set_baggage("mine", "8"))
        with spans.tracing.inside(message):
            found.append(("inside", baggage.get_baggage("shop"), baggage.get_baggage("mine")))
        assert baggage.get_baggage("shop") is None
        context.detach(token)
        message.ack()
    assert found == [("check", "7", None), ("inside", "7", "8")]


@pytest.mark.parametrize("outcome", [escrowmq.Outcome.COMMIT, escrowmq.Outcome.ROLLBACK])
def test_the_end_of_a_transaction_belongs_to_the_trace_of_its_half(
    server: Server, topic: str, group: str, spans: Spans, outcome: escrowmq.Outcome
) -> None:
    with escrowmq.Producer(
        server.nameserver, group=group, interceptors=[spans.tracing]
    ) as producer:
        producer.transaction(topic, b"x").begin().settle(outcome)
    half, end = spans.named(f"send {topic}"), spans.named(f"{outcome.name.lower()} {topic}")
    assert is_child(end, half)
    assert end.kind is SpanKind.CLIENT
    for span in (half, end):
        assert (span.attributes or {})["messaging.rocketmq.message.type"] == "transaction"
        assert span.status.status_code is StatusCode.UNSET


def test_within_a_span_of_the_callers_the_end_is_its_child_and_linked_to_the_half(
    server: Server, topic: str, group: str, spans: Spans
) -> None:
    settings: dict[str, Any] = {"group": group, "interceptors": [spans.tracing]}
    with (
        escrowmq.Producer(server.nameserver, **settings) as producer,
        spans.tracer.start_as_current_span("order"),
        producer.transaction(topic, b"x"),
        spans.tracer.start_as_current_span("charge"),
    ):
        pass
    order = spans.named("order")
    half, end = spans.named(f"send {topic}"), spans.named(f"commit {topic}")
    assert is_child(half, order)
    assert is_child(end, order)
    assert linked(end) == span_ids([half])


def test_a_check_back_and_its_answer_belong_to_the_trace_of_the_half_and_so_does_the_consumer(
    server: Server, topic: str, group: str, spans: Spans
) -> None:
    answers: list[Any] = [ValueError("planted"), escrowmq.Outcome.COMMIT]

    def check(message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
        with spans.tracer.start_as_current_span("look"):
            found = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, escrowmq.Outcome)
        return found

    with escrowmq.Producer(
        server.nameserver, group=group, check=check, interceptors=[spans.tracing]
    ) as producer:
        with producer.transaction(topic, b"x") as tx:
            tx.unknown()
        wait_delivered(server, topic, 1)
    with escrowmq.Consumer(
        server.nameserver, group=group, topic=topic, interceptors=[spans.tracing]
    ) as consumer:
        for message in consumer:
            with spans.tracing.inside(message), spans.tracer.start_as_current_span("inside"):
                break
    half, commit = spans.named(f"send {topic}"), spans.named(f"commit {topic}")
    failed, checked = spans.all_named(f"check {topic}", 2)
    process = spans.named(f"process {topic}")
    assert all(is_child(span, half) for span in (failed, checked, commit, process))
    assert is_child(spans.named("inside"), process)
    first, second = spans.all_named("look", 2)
    assert is_child(first, failed)
    assert is_child(second, checked)
    assert failed.status.status_code is StatusCode.ERROR
    assert (failed.attributes or {})["error.type"] == "ValueError"
    assert [event.name for event in failed.events] == ["exception"]
    assert checked.status.status_code is StatusCode.UNSET
    unknown = spans.all_named(f"unknown {topic}", 2)
    assert {trace_of(span) for span in unknown} == {trace_of(half)}


def test_a_batch_is_linked_to_its_messages_on_both_sides(
    server: Server, topic: str, group: str, spans: Spans
) -> None:
    queue_key = "one queue"
    with escrowmq.Producer(
        server.nameserver, group=group, interceptors=[spans.tracing]
    ) as producer:
        producer.send_many(
            [escrowmq.Message(topic, body, order_key=queue_key) for body in (b"1", b"2", b"3")]
        )
    created = spans.all_named(f"create {topic}", 3)
    send = spans.named(f"send {topic}")
    assert linked(send) == span_ids(created)
    assert (send.attributes or {})["messaging.batch.message_count"] == 3
    host, port = server.broker.split(":")
    assert (send.attributes or {})["server.address"] == host
    assert (send.attributes or {})["server.port"] == int(port)
    with escrowmq.Consumer(
        server.nameserver, group=group, topic=topic, interceptors=[spans.tracing]
    ) as consumer:
        batch: list[escrowmq.Delivery] = []
        while len(batch) < 3:
            batch += consumer.receive(3)
        batch[0].ack()
        batch[1].ack()
        assert not any(
            span.name.startswith("process") for span in spans.exporter.get_finished_spans()
        )
        batch[2].ack()
        process = spans.named(f"process {topic}")
    assert linked(process) == span_ids(created)
    assert (process.attributes or {})["messaging.batch.message_count"] == 3
    assert process.parent is None
    assert [event.name for event in process.events] == ["settled"] * 3


def test_errors_of_sends_ends_and_handlers_are_recorded(
    server: Server, topic: str, group: str, spans: Spans
) -> None:
    tries: list[str] = []

    def handle(message: escrowmq.Delivery) -> None:
        tries.append(message.message_id)
        if len(tries) == 1:
            raise KeyError("planted")

    settings: dict[str, Any] = {"group": group, "interceptors": [spans.tracing]}
    with escrowmq.Producer(server.nameserver, **settings) as producer:
        with pytest.raises(InvalidMessage):
            producer.send(topic, b"x", properties={"large": "x" * 40_000})
        failed = spans.named(f"send {topic}")
        producer.send(topic, b"x")
        with escrowmq.Consumer(server.nameserver, topic=topic, handler=handle, **settings):
            first, second = spans.all_named(f"process {topic}", 2)
    assert (failed.attributes or {})["error.type"] == "InvalidMessage"
    assert failed.status.status_code is StatusCode.ERROR
    assert (first.attributes or {})["escrowmq.outcome"] == "retried"
    assert (first.attributes or {})["error.type"] == "KeyError"
    assert (second.attributes or {})["escrowmq.outcome"] == "acknowledged"
    assert trace_of(first) == trace_of(second)


@pytest.mark.ours_alone
def test_an_end_that_contradicts_is_an_error_of_its_span(
    server: Server, topic: str, group: str, spans: Spans
) -> None:
    with escrowmq.Producer(
        server.nameserver, group=group, interceptors=[spans.tracing]
    ) as producer:
        with producer.transaction(topic, b"x") as tx:
            transaction_id = tx.detach()
        producer.rollback(transaction_id)
        with pytest.raises(OutcomeContradicted):
            producer.commit(transaction_id)
    assert (spans.named("commit").attributes or {})["error.type"] == "OutcomeContradicted"
    told = [str(span.attributes) for span in spans.exporter.get_finished_spans()]
    assert not any(transaction_id in text for text in told), "who has the id can end it"


def test_the_asyncio_clients_do_the_same(
    server: Server, topic: str, group: str, spans: Spans
) -> None:
    async def handle(message: escrowmq.aio.Delivery) -> None:
        with spans.tracer.start_as_current_span("write mail"):
            await asyncio.sleep(0)

    async def go() -> None:
        settings: dict[str, Any] = {"group": group, "interceptors": [spans.tracing]}
        async with escrowmq.aio.Producer(server.nameserver, **settings) as producer:
            with spans.tracer.start_as_current_span("order"):
                async with producer.transaction(topic, b"x"):
                    pass
        async with escrowmq.aio.Consumer(
            server.nameserver, topic=topic, handler=handle, **settings
        ):
            await asyncio.to_thread(spans.named, f"process {topic}")

    asyncio.run(go())
    order, half = spans.named("order"), spans.named(f"send {topic}")
    assert is_child(half, order)
    assert is_child(spans.named(f"commit {topic}"), order)
    assert is_child(spans.named(f"process {topic}"), half)
    assert is_child(spans.named("write mail"), spans.named(f"process {topic}"))
