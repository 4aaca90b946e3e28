"""Topics, groups, their lag, and groups that are let go on elsewhere."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from urllib.parse import parse_qs, urlsplit

import pytest

import escrowmq
from escrowmq.testing import Broker
from tests.harness.console import VIEWER, Browser, before, program, until


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(sockets=True) as broker:
        yield broker


@pytest.fixture
def port(broker: Broker) -> Iterator[int]:
    with before(broker) as port:
        yield port


def consume(broker: Broker, group: str, topic: str, count: int) -> None:
    """Let a group be done with so many messages."""
    with escrowmq.Consumer(broker.nameserver, group=group, topic=topic) as consumer:
        for nth, delivery in enumerate(consumer, 1):
            delivery.ack()
            if nth == count:
                break


def test_topics_are_listed_with_what_they_hold(
    broker: Broker, browser: Browser, api: Browser
) -> None:
    broker.create_topic("stock", 4)
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        for nth in range(3):
            producer.send("paid", b"x", keys=[f"k-{nth}"])
    found = api.call("GET", "/topics").json
    rows = {one["name"]: one for one in found["items"]}
    assert (rows["paid"]["messages"], rows["stock"]["messages"]) == (3, 0)
    assert rows["stock"]["queues"] == 4
    assert found["total"] == len(rows)
    by_count = api.call("GET", "/topics?sort=messages&order=down").json
    assert by_count["items"][0]["name"] == "paid"
    assert [one["name"] for one in api.call("GET", "/topics?part=TOC").json["items"]] == ["stock"]
    page = browser.get("/topics")
    assert "stock" in page.words()
    shown = browser.get("/topics/paid")
    assert "k-2" in shown.words()
    assert api.call("GET", "/topics/paid").json["messages"] == 3


@pytest.mark.parametrize("count", [1_000, pytest.param(10_000, marks=pytest.mark.long)])
def test_thousands_of_topics_are_a_page_like_any_other(
    broker: Broker, browser: Browser, count: int
) -> None:
    with escrowmq.Admin(broker.nameserver) as admin:
        admin.topics.create("t-0", queues=1)
    for nth in range(count):
        broker.create_topic(f"t-{nth}")

    def are_there() -> bool:
        page = browser.get("/topics")
        assert page.status == 200
        assert len(page.body) < 60 * 1024
        return f"{count:,} in total".replace(",", " ") in page.words().replace("\u202f", " ")

    until(are_there)
    pages = count // 50
    last = browser.get(f"/topics?page={pages}")
    assert last.words().count("t-99") > 10
    assert f"page {pages} of {pages}" in last.words()
    assert browser.get(f"/topics?page={pages + 1}").status == 200
    refused = browser.get("/topics?sort=messages")
    assert (refused.status, "first select at most" in refused.words()) == (400, True)


def test_a_topic_is_made_changed_and_deleted_after_previews(
    broker: Broker, browser: Browser, api: Browser
) -> None:
    made = {"topic": "stock", "queues": "4", "kind": "TRANSACTION"}
    preview, done = browser.do("topics.create", made, back="/topics")
    assert "would be created" in preview.words()
    assert done.status == 303
    info = api.call("GET", "/topics/stock").json["described"]["brokers"][0]
    assert (info["readQueues"], info["attributes"]) == (4, {"message.type": "TRANSACTION"})
    preview = api.call("POST", "/topics?dry_run=1", {"topic": "stock", "queues": 8}).json
    assert preview["rows"] == [
        {"what": "queues of each broker", "before": "4 read, 4 written", "after": "8"}
    ]
    assert len(api.call("GET", "/topics/stock").json["described"]["queues"]) == 4
    assert "would delete" in api.call("DELETE", "/topics/stock?dry_run=1").json["said"]
    assert api.call("DELETE", "/topics/stock").json["isDryRun"] is False
    gone = api.call("GET", "/topics/stock")
    assert (gone.status, gone.json["code"]) == (404, "no_topic")


def test_lag_is_shown_by_group_and_queue_and_moves(
    broker: Broker, browser: Browser, api: Browser
) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        for _ in range(10):
            producer.send("paid", b"x")
    consume(broker, "mailer", "paid", 4)
    (row,) = [one for one in api.call("GET", "/groups").json["items"] if one["name"] == "mailer"]
    assert (row["lag"], row["members"], row["retried"]) == (6, 0, 0)
    found = api.call("GET", "/groups/mailer").json
    assert (found["lag"], found["dead"]) == (6, 0)
    (queue,) = api.call("GET", "/groups/mailer/lag?topic=paid").json["items"]
    assert (queue["committed"], queue["end"], queue["lag"]) == (4, 10, 6)
    words = browser.get("/groups/mailer").words()
    assert "Queue by queue" in words
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        producer.send("paid", b"x")

    def has_moved() -> bool:
        values = api.call("GET", "/history?of=lag:mailer").json["values"]
        return bool(values[:1] == [6.0] and values[-1:] == [7.0])

    until(has_moved)


def test_a_topic_shows_how_far_each_of_its_readers_is(
    broker: Broker, browser: Browser, api: Browser
) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        for _ in range(5):
            producer.send("paid", b"x")
            producer.send("stock", b"x")
    consume(broker, "mailer", "paid", 3)
    consume(broker, "mailer", "stock", 1)
    consume(broker, "audit", "paid", 1)
    readers = api.call("GET", "/topics/paid").json["readers"]
    assert {one["group"]: one["lag"] for one in readers} == {"mailer": 2, "audit": 4}
    assert "mailer 2" in " ".join(browser.get("/topics/paid").words().split())


def test_a_reset_shows_what_would_be_delivered_again(
    broker: Broker, browser: Browser, api: Browser
) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        for nth in range(10):
            producer.send("paid", b"x", keys=[f"k-{nth}"])
    consume(broker, "mailer", "paid", 8)
    wanted = {"topic": "paid", "to": "first"}
    preview = api.call("POST", "/groups/mailer/offsets?dry_run=1", wanted).json
    assert preview["said"].startswith("8 messages would be delivered again")
    (row,) = preview["rows"]
    assert (row["before"], row["after"]) == ("8", "0")
    assert "(k-0)" in row["what"]
    assert api.call("GET", "/groups/mailer").json["lag"] == 2
    skip = api.call("POST", "/groups/mailer/offsets?dry_run=1", {**wanted, "to": "last"}).json
    assert skip["said"].startswith("2 messages would be passed over")
    fields = {"group": "mailer", "topic": "paid", "to": "3", "queue_id": "0"}
    preview_page, done = browser.do("offsets.reset", fields, back="/groups/mailer")
    assert "5 messages would be delivered again" in preview_page.words()
    assert done.status == 303
    assert api.call("GET", "/groups/mailer").json["lag"] == 7


@pytest.mark.parametrize("is_dry", [True, False])
def test_a_reset_to_an_offset_that_the_queue_does_not_have_is_refused(
    broker: Broker, api: Browser, *, is_dry: bool
) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        for _ in range(10):
            producer.send("paid", b"x")
    consume(broker, "mailer", "paid", 8)
    wanted = {"topic": "paid", "to": "999", "queue_id": 0}
    path = "/groups/mailer/offsets"
    reply = api.call("POST", f"{path}?dry_run=1" if is_dry else path, wanted)
    assert (reply.status, reply.json["message"]) == (
        400, "'paid' has offsets 0 to 10 in queue 0 on 'broker-a'; 999 is not among them"
    )  # fmt: skip
    assert api.call("GET", "/groups/mailer").json["lag"] == 2


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("GET", "/topics/nowhere", None, 404),
        ("GET", "/topics/nowhere/messages", None, 404),
        ("GET", "/groups/nobody", None, 404),
        ("DELETE", "/topics/nowhere", None, 404),
        ("DELETE", "/groups/nobody", None, 404),
        ("POST", "/topics", {"topic": "no blanks"}, 400),
        ("POST", "/topics", {"topic": "t", "queues": 0}, 400),
        ("POST", "/topics", {}, 400),
        ("POST", "/groups/mailer/offsets", {"topic": "nowhere", "to": "first"}, 404),
        ("POST", "/groups/mailer/offsets", {"topic": "TBW102", "to": "soon"}, 400),
        ("POST", "/groups/mailer/offsets", {"topic": "TBW102", "to": "-1", "queue_id": 0}, 400),
        ("GET", "/topics?size=201", None, 400),
        ("GET", "/groups?sort=colour", None, 400),
    ],
)
def test_what_is_not_there_or_cannot_be_is_told(
    broker: Broker, api: Browser, method: str, path: str, body: object, status: int
) -> None:
    reply = api.call(method, path, body)
    assert reply.status == status, reply.text
    assert reply.json["message"]


def test_a_group_is_made_stopped_and_deleted(
    broker: Broker, browser: Browser, api: Browser
) -> None:
    assert api.call("POST", "/groups", {"group": "mailer", "attempts_max": 3}).status == 200
    info = api.call("GET", "/groups/mailer").json["brokers"][0]
    assert (info["attemptsMax"], info["isEnabled"]) == (3, True)
    fields = {"group": "mailer", "is_enabled": "false"}
    preview, done = browser.do("groups.create", fields, back="/groups/mailer")
    assert "may consume" in preview.words()
    assert done.status == 303
    assert "Consuming is disabled" in browser.get("/groups/mailer").words()
    assert api.call("DELETE", "/groups/mailer").status == 200
    assert api.call("GET", "/groups/mailer").status == 404


def test_who_may_only_look_is_offered_nothing_and_refused(broker: Broker, port: int) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        producer.send("paid", b"x")
    consume(broker, "mailer", "paid", 1)
    reader = Browser(port)
    reader.log_in(VIEWER)
    for path in ("/topics", "/topics/paid", "/groups", "/groups/mailer", "/messages?topic=paid"):
        page = reader.get(path)
        assert (page.status, "/do/" in page.text) == (200, False), path
    robot = program(port, VIEWER)
    for method, path in (("DELETE", "/topics/paid"), ("POST", "/groups/mailer/offsets"),
                         ("DELETE", "/groups/mailer"), ("POST", "/topics")):  # fmt: skip
        assert robot.call(method, path, {}).json["code"] == "read_only"
    assert broker.delivered("paid") == [b"x"]


def test_a_page_leads_back_to_itself_whatever_percent_signs_its_name_has(
    browser: Browser, api: Browser, port: int
) -> None:
    """`%ac` of the name is no character of a URL."""
    assert api.call("POST", "/groups", {"group": "shop%account"}).status == 200
    path = "/groups/shop%25account"
    page = browser.get(path)
    links = set(re.findall(r'(?:href|value)="(/groups/[^"]+)"', page.text))
    assert len(links) > 1
    for link in links:
        assert "shop%account" in browser.get(html.unescape(link)).words(), link
    asked = Browser(port).get(path)
    assert parse_qs(urlsplit(asked.headers["location"]).query)["back"] == [path]
