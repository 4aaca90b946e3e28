"""The first page: what there is, what moves, and what nobody knows."""

from __future__ import annotations

import asyncio

import escrowmq
from escrowmq.aio import Admin
from escrowmq.console import metrics_collector as collecting
from escrowmq.console.answer_cache import AnswerCache
from escrowmq.console.api.topics import ROW_FRESH_S
from escrowmq.console.metrics_collector import MetricsCollector, read_rate
from escrowmq.testing import Broker
from tests.harness.console import Browser, before, until


def test_the_page_and_the_call_say_the_same(broker: Broker, browser: Browser, api: Browser) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        producer.send("paid", b"order 1")
    found = api.call("GET", "/overview").json
    assert [one["name"] for one in found["brokers"]] == ["broker-a"]
    assert found["brokers"][0]["takesMessages"] is True
    assert (found["pending"], found["parked"]) == (0, 0)
    assert found["oldestPendingMs"] is None
    page = browser.get("/")
    words = page.words()
    assert "broker-a" in words
    assert "registered" in words
    assert "/api/v1/overview" in page.text
    assert len(page.body) < 60 * 1024


def test_a_broker_that_is_gone_is_said_to_be_gone_and_nothing_is_zero() -> None:
    with Broker(sockets=True) as broker, before(broker) as port:
        browser = Browser(port)
        browser.log_in()
        assert "broker-a" in browser.get("/").words()
        broker.stop()

        def is_told() -> bool:
            page = browser.get("/")
            words = page.words()
            return page.status == 503 or "unknown" in words or "gone within the last hour" in words

        until(is_told)


def test_a_console_alone_is_ready_while_a_name_server_answers() -> None:
    broker = Broker(sockets=True)
    with before(broker) as port:
        browser = Browser(port)
        assert browser.get("/readyz").status == 200
        broker.close()
        until(lambda: browser.get("/readyz").status == 503)
        assert browser.get("/healthz").status == 200


def test_a_row_of_a_list_is_asked_for_less_often_than_a_page_of_its_own(broker: Broker) -> None:
    now_s = 1_000.0

    async def main() -> None:
        nonlocal now_s
        async with Admin(broker.nameserver) as admin:

            async def opened() -> Admin:
                return admin

            collector = MetricsCollector(opened, AnswerCache(lambda: now_s), lambda: now_s)
            first = await collector.describe_topic("TBW102")
            now_s += 5
            assert await collector.describe_topic("TBW102", fresh_s=ROW_FRESH_S) is first
            assert await collector.describe_topic("TBW102") is not first
            again = await collector.describe_topic("TBW102")
            now_s += 7
            assert await collector.describe_topic("TBW102", fresh_s=ROW_FRESH_S) is not again

    asyncio.run(main())


def test_figures_are_asked_for_while_somebody_looks_and_no_longer(broker: Broker) -> None:
    now_s = 1_000.0

    async def main() -> None:
        nonlocal now_s
        async with Admin(broker.nameserver) as admin:

            async def opened() -> Admin:
                return admin

            memo = AnswerCache(lambda: now_s)
            collector = MetricsCollector(opened, memo, lambda: now_s)
            assert not collector.is_polling
            for _ in range(50):
                collector.note_viewer(group="mailer", topic="TBW102")
            while collector.rounds_count == 0:
                await asyncio.sleep(0.01)
            assert collector.rings.newest_values("put") == [0.0]
            assert collector.rings.newest_values("pending") == [0.0]
            assert collector.rings.newest_values("lag:mailer") == [0.0]
            now_s += collecting.STOP_AFTER_S + 1
            while collector.is_polling:
                await asyncio.sleep(0.05)
            rounds = collector.rounds_count
            assert collector.rings.newest_values("put") == [0.0]
            collector.note_viewer()
            while collector.rounds_count == rounds:
                await asyncio.sleep(0.01)
            # What was while nobody looked is unknown.
            assert collector.rings.newest_values("put")[-2:] == [None, 0.0]
            await collector.close()

    asyncio.run(main())


def test_a_rate_that_is_not_told_is_unknown() -> None:
    assert read_rate({"putTps": "3.5 2 1"}, "putTps") == 3.5
    assert read_rate({"putTps": "soon"}, "putTps") is None
    assert read_rate({}, "putTps") is None


def test_the_curve_of_a_call_is_that_of_the_page(api: Browser) -> None:
    found = api.call("GET", "/history?of=put").json
    assert found["of"] == "put"
    assert found["stepS"] == 2.0
    assert set(found["values"]) <= {0.0, None} or all(v is not None for v in found["values"])
    assert api.call("GET", "/history?of=nothing").json["values"] == []
