"""Spans of messages that nobody ever settles, or that could not be sent."""

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from escrowmq.aio import Message, ReceivedMessage
from escrowmq.integrations import otel

Made = tuple[otel.Tracing, InMemorySpanExporter]


@pytest.fixture
def made() -> Made:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return otel.Tracing(tracer_provider=provider), exporter


def names(made: Made) -> list[str]:
    return [span.name for span in made[1].get_finished_spans()]


def test_of_too_many_open_spans_the_oldest_is_ended(
    made: Made, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(otel, "OPEN_MAX", 2)
    tracing = made[0]
    handed = [ReceivedMessage(f"T{n}", b"x", message_id=str(n)) for n in range(3)]
    for message in handed:
        tracing.before_consume_many([message])
    assert names(made) == ["process T0"]
    tracing.after_consume(handed[0], "acknowledged")
    tracing.after_consume(handed[2], "acknowledged")
    assert names(made) == ["process T0", "process T2"]
    for n in range(3):
        tracing.before_send(Message(f"S{n}", b"x"))
    assert names(made)[2:] == ["send S0"]


def test_one_message_that_is_sent_twice_at_once_has_two_spans(made: Made) -> None:
    tracing, message = made[0], Message("T", b"x", properties={})
    tracing.before_send(message)
    tracing.before_send(message)
    tracing.after_send(message, None, None)
    tracing.after_send(message, None, OSError("planted"))
    tracing.after_send(message, None, None)
    assert names(made) == ["send T", "send T"]


def test_times_and_order_of_delivery_are_told(made: Made) -> None:
    tracing = made[0]
    for message in (
        Message("T", b"x", properties={}, delay_level=3),
        Message("T", b"x", properties={}, deliver_at=1_000.5),
        Message("T", b"x", properties={}, order_key="k"),
    ):
        tracing.before_send(message)
        tracing.after_send(message, None, None)
    found = [dict(span.attributes or {}) for span in made[1].get_finished_spans()]
    mark = "messaging.rocketmq.message."
    assert [each[f"{mark}type"] for each in found] == ["delay", "delay", "fifo"]
    assert found[0][f"{mark}delay_time_level"] == 3
    assert found[1][f"{mark}delivery_timestamp"] == 1_000_500
    assert found[2][f"{mark}group"] == "k"


def test_a_message_that_was_not_handed_over_here_has_no_span_to_be_inside(made: Made) -> None:
    with made[0].inside(ReceivedMessage("T", b"x")):
        pass
    made[0].after_consume(ReceivedMessage("T", b"x"), "acknowledged")
    assert names(made) == []
