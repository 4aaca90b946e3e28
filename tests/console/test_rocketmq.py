"""The console before Apache RocketMQ's own name server and broker: what they tell is shown, what
they cannot tell is unknown."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator

import pytest

import escrowmq
from escrowmq.console.options import ConsoleOptions
from tests.harness.console import ADMIN, Browser, Reply, console, program, until
from tests.interop import jars
from tests.interop.servers import Server

UNREACHABLE = 503
MISSING = jars.missing_tools("java", "mvn", "cc")
pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(bool(MISSING), reason=f"not on this machine: {MISSING}"),
]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server("java", tmp_path_factory.mktemp("rocketmq"), {}).start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def port(cluster: Server) -> Iterator[int]:
    options = ConsoleOptions(name_servers=cluster.nameserver, login="local", users=(ADMIN,))
    with console(options) as port:
        yield port


def is_shown(browser: Browser, path: str) -> bool:
    return browser.get(path).status == 200


def answered(ask: Callable[[], Reply]) -> Reply:
    """The first reply that does not say that the broker was too slow: Java's may need longer than
    a request waits while its code is compiled."""
    found: list[Reply] = []

    def is_answered() -> bool:
        found.append(ask())
        return found[-1].status != UNREACHABLE

    until(is_answered)
    return found[-1]


def test_every_page_of_a_rocketmq_cluster_is_there(cluster: Server, port: int) -> None:
    with escrowmq.Admin(cluster.nameserver) as admin:
        admin.topics.create("paid", queues=2)
    with escrowmq.Producer(cluster.nameserver, group="orders") as producer:
        for nth in range(5):  # a compiling broker may need longer than the three seconds of default
            producer.send("paid", b"order", keys=[f"k-{nth}"], timeout_ms=60_000)
    with escrowmq.Consumer(cluster.nameserver, group="mailer", topic="paid") as consumer:
        for nth, delivery in enumerate(consumer, 1):
            delivery.ack()
            if nth == 2:
                break
    browser, api = Browser(port), program(port)
    browser.log_in()
    overview = answered(lambda: api.call("GET", "/overview")).json
    assert [one["name"] for one in overview["brokers"]] == [cluster.broker_name]
    # Not 0: nobody knows.
    assert (overview["pending"], overview["parked"]) == (None, None)
    words = browser.get("/").words()
    assert "Pending transactions unknown" in words

    def is_whole() -> bool:  # a slow broker's numbers are unknown at first
        topics = api.call("GET", "/topics").json.get("items", [])
        found = {one["name"]: (one["messages"], one["queues"]) for one in topics}
        return found.get("paid") == (5, 2)

    until(is_whole)

    def is_behind() -> bool:
        lag = api.call("GET", "/groups/mailer").json.get("lag")
        return bool(lag is not None and 3 <= lag <= 5)

    until(is_behind)
    for path in ("/topics/paid", "/groups", "/groups/mailer", "/messages?topic=paid",
                 "/messages?text=k-3&topic=paid", "/brokers", f"/brokers/{cluster.broker_name}",
                 "/replicas", "/accounts", "/jobs", "/help"):  # fmt: skip
        until(functools.partial(is_shown, browser, path))
    refused = answered(lambda: browser.get("/transactions"))
    assert (refused.status, "RocketMQ" in refused.words()) == (501, True)
    letters = answered(lambda: browser.get("/groups/mailer/dead-letters"))
    assert letters.status in (200, 404)
    wanted = {"topic": "paid", "to": "first"}
    preview = answered(lambda: api.call("POST", "/groups/mailer/offsets?dry_run=1", wanted)).json
    assert preview["isDryRun"] is True
    settings = answered(lambda: api.call("GET", f"/brokers/{cluster.broker_name}/settings")).json
    assert {one["name"]: one["value"] for one in settings}["brokerName"] == cluster.broker_name
