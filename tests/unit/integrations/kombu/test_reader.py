"""The thread that reads for a queue of kombu."""

from __future__ import annotations

import json
import threading
from typing import Any

import pytest

pytest.importorskip("kombu")

from escrowmq.errors import ClientClosed
from escrowmq.integrations.kombu.reader import Payload, ThreadReader

DEADLINE_S = 60.0


def a_body(name: Any, *, encoding: Any = None, headers: Any = None, **info: Any) -> bytes:
    properties = {"delivery_info": info, "body_encoding": encoding}
    return json.dumps({"body": name, "headers": headers, "properties": properties}).encode()


class Handed:
    """A message as a consumer hands it out."""

    message_id = "7F"
    topic = "T"
    deliveries_before = 0

    def __init__(self, body: bytes) -> None:
        self.body = body
        self.told: list[str] = []

    def ack(self) -> None:
        self.told.append("ack")

    def reject(self) -> None:
        self.told.append("reject")


class Scripted:
    """A consumer that hands out these, and is closed then."""

    group = "g"

    def __init__(self, *handed: Handed) -> None:
        self._handed = list(handed)
        self._is_closed = threading.Event()

    def receive(self, count: int, *, timeout_s: float) -> list[Any]:
        found, self._handed = self._handed, []
        if not found:
            self._is_closed.wait(DEADLINE_S)
            raise ClientClosed("closed")
        return found

    def close(self) -> None:
        self._is_closed.set()


def next_of(reader: ThreadReader, news: threading.Condition) -> Payload:
    with news:
        assert news.wait_for(lambda: reader._ready, timeout=DEADLINE_S), "nothing came"
    found = reader.next_message()
    assert found is not None
    return found.payload


def by_key(payload: Payload) -> bool:
    found = payload["properties"]["delivery_info"]["routing_key"]
    return bool(found == "mine")


@pytest.mark.parametrize(
    "odd",
    [
        a_body("without a key"),
        b'{"properties": {"delivery_info": {}}, "a": {"__type__": "decimal", "__value__": "x"}}',
        b"[" * 100_000,
        b"no JSON",
        a_body("x", encoding="unknown", routing_key="mine"),
        a_body("x", encoding=7, routing_key="mine"),
        a_body("a", encoding="base64", routing_key="mine"),
        a_body(5, routing_key="mine"),
        a_body("x", headers=[1], routing_key="mine"),
        a_body("x", routing_key=["mine"]),
    ],
)
def test_a_message_that_is_none_of_kombus_does_not_end_the_reading(
    odd: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    """The thread ended with a traceback, and nothing of that queue was handed out any more; or
    kombu itself raised, which ends a worker of Celery, and then the next one."""
    foreign, good = Handed(odd), Handed(a_body("good", routing_key="mine"))
    news = threading.Condition()
    consumer: Any = Scripted(foreign, good)
    reader = ThreadReader(consumer, wanted=by_key, news=news)
    assert next_of(reader, news)["body"] == "good"
    reader.close()
    assert foreign.told == ["reject"]
    assert "does not come from kombu" in caplog.text


def test_a_message_that_cannot_be_settled_does_not_end_the_reading(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Stuck(Handed):
        def ack(self) -> None:
            raise RuntimeError("planted")

    other, good = Stuck(a_body("other", routing_key="x")), Handed(a_body("g", routing_key="mine"))
    news = threading.Condition()
    consumer: Any = Scripted(other, good)
    reader = ThreadReader(consumer, wanted=by_key, news=news)
    assert next_of(reader, news)["body"] == "g"
    reader.close()
    assert "planted" in caplog.text
