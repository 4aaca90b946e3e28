from __future__ import annotations

import json

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.fixed_limits import SELECTORS_SIZE_MAX, SQL_TOKENS_MAX, SUBSCRIPTION_SIZE_MAX
from escrowmq.broker.reads.message_selection import EVERYTHING, SelectorCache
from escrowmq.filter.operands import FilterError
from tests.harness.exchange import Exchange

SQL = {"expressionType": "SQL92"}


@pytest.mark.parametrize("kind", ["TAG", "SQL92", None])
def test_an_expression_is_bounded_before_it_is_read(kind: str | None) -> None:
    with pytest.raises(FilterError, match="16384 are allowed"):
        SelectorCache().selector_of(kind, "a" * (SUBSCRIPTION_SIZE_MAX + 1))


def test_selectors_that_are_kept_are_bounded_by_their_size_too() -> None:
    selectors = SelectorCache()
    for number in range(5 * (SELECTORS_SIZE_MAX // SUBSCRIPTION_SIZE_MAX)):
        expression = f"{number}-" + "a" * (SUBSCRIPTION_SIZE_MAX - 20)
        assert selectors.selector_of("TAG", expression) is selectors.selector_of("TAG", expression)
        assert selectors._kept_size <= SELECTORS_SIZE_MAX
    assert sum(len(key[1] or "") for key in selectors._kept) <= SELECTORS_SIZE_MAX
    assert selectors.selector_of("TAG", "*") is EVERYTHING


def test_a_pull_s_own_subscription_is_bounded_as_a_heartbeat_s_is() -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    expression = "||".join(f"tag-{number}" for number in range(10_000))
    reply = exchange.connect().begin_pull("T", expression=expression).now
    assert reply.code == Response.SUBSCRIPTION_PARSE_FAILED


def test_sql_of_one_heartbeat_is_bounded_in_sum() -> None:
    exchange = Exchange()
    client = exchange.connect("c1")
    subscriptions = [
        {
            "topic": f"T{number}", "subString": f"a = {number}" + " " * 10_000,
            "expressionType": "SQL92",
        }
        for number in range(7)
    ]  # fmt: skip
    body = {
        "clientID": "c1",
        "consumerDataSet": [{"groupName": "CG", "subscriptionDataSet": subscriptions}],
    }
    reply = client.ask(34, body=json.dumps(body).encode())
    assert reply.code == Response.SYSTEM_ERROR
    assert "SQL92 expressions of 70035 characters" in (reply.remark or "")


def test_sql_is_bounded_by_what_it_costs_to_compile() -> None:
    words = " OR ".join(["a = 1"] * (SQL_TOKENS_MAX // 4))
    assert SelectorCache().selector_of("SQL92", words) is not EVERYTHING
    with pytest.raises(FilterError, match="more than 2000 names, numbers, signs and words"):
        SelectorCache().selector_of("SQL92", f"{words} OR b = 2")


def test_a_broker_without_sql_compiles_none() -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    expression = " OR ".join(["a = 1"] * SQL_TOKENS_MAX)
    reply = exchange.connect().begin_pull("T", expression=expression, fields=SQL).now
    assert (reply.code, "does not support" in (reply.remark or "")) == (1, True)


def test_an_expression_that_costs_more_is_asked_of_fewer_messages_at_a_time() -> None:
    exchange = Exchange(BrokerSettings(has_property_filter=True))
    exchange.create_topic("T")
    client = exchange.connect()
    for _ in range(300):
        assert client.send("T", queue_id=0).code == 0
    following = []
    for count in (1, 900):
        expression = "b IN (" + ",".join(f"'text-{number}'" for number in range(count)) + ")"
        reply = client.begin_pull("T", expression=expression, fields=SQL).now
        assert reply.code == Response.PULL_RETRY_IMMEDIATELY
        following.append(int((reply.ext or {})["nextBeginOffset"]))
    assert following[0] == 256  # what one file of the queue holds
    assert 50 < following[1] < 150
