from __future__ import annotations

import json

from escrowmq.base.codes import Request
from escrowmq.base.human_format import format_byte_count, format_moment
from escrowmq.client.admin.broker_summary import summarize_metrics
from tests.harness.exchange import START_MS, Exchange


def runtime(exchange: Exchange) -> dict[str, str]:
    reply = exchange.connect("operator").ask(Request.GET_BROKER_RUNTIME_INFO)
    table: dict[str, str] = json.loads(reply.body)["table"]
    return table


def test_what_matters_is_told_with_units() -> None:
    exchange = Exchange()
    exchange.connect("producer").send("T", b"x" * 5_000)
    exchange.advance(90_000)
    found = dict(summarize_metrics(runtime(exchange), exchange.now_ms))
    assert found["speaks"] == "V5_3_3"
    assert found["up since"].endswith("(1m30s ago)")
    assert found["connections"] == "2"
    assert found["accepts messages"] == "yes"
    assert found["stored"].count("/s (") == 3
    assert "KiB, up to offset " in found["log"]
    assert "% full (Total : " in found["disk"]
    assert found["not durable yet"].endswith(("bytes", "KiB"))


def test_a_broker_that_takes_nothing_says_why() -> None:
    exchange = Exchange()
    exchange.holds_syncs = True
    exchange.connect("producer").send("T", b"x")
    exchange.advance(10_000)
    exchange.fail_sync("no such luck")
    assert dict(summarize_metrics(runtime(exchange), START_MS))["accepts messages"].startswith(
        "no: "
    )


def test_what_is_not_told_is_left_out() -> None:
    """A broker of RocketMQ, which tells nothing of its own before its first message."""
    assert summarize_metrics({"brokerVersionDesc": "V4_9_7"}, START_MS) == [("speaks", "V4_9_7")]
    assert summarize_metrics({"putTps": "a b c", "commitLogDiskRatio": "x"}, START_MS) == []


def test_sizes_have_units() -> None:
    assert [format_byte_count(count) for count in (0, 1023, 1024, 5 << 30)] == [
        "0 bytes", "1023 bytes", "1.0 KiB", "5.0 GiB",
    ]  # fmt: skip


def test_a_time_that_no_calendar_has_is_a_number() -> None:
    """Senders choose when their messages were born."""
    assert format_moment(1 << 62) == "4611686018427387904 ms"
    assert format_moment(253_402_300_799_999) == "9999-12-31T23:59:59.999Z"
    assert format_moment(-1) == "-"
