"""Dead letters: seen, chosen, given back, exported."""

from __future__ import annotations

import base64
from collections.abc import Iterator

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


def fail(message: escrowmq.Delivery) -> None:
    raise ValueError("no")


@pytest.fixture
def letters(broker: Broker) -> list[bytes]:
    """Messages on which a group has failed for good."""
    bodies = [b"poison %d" % nth for nth in range(4)]
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        for nth, body in enumerate(bodies):
            producer.send("paid", body, keys=[f"k-{nth}"])
    with escrowmq.Consumer(
        broker.nameserver, group="mailer", topic="paid", handler=fail, attempts_max=0
    ):
        broker.wait_consumed("mailer")
    assert sorted(broker.dead("mailer")) == bodies
    return bodies


def places(api: Browser) -> dict[str, str]:
    """Each letter's place by its key, of those that are can be redelivered."""
    found = api.call("GET", "/groups/mailer/dead-letters").json["items"]
    return {
        one["keys"]: f"{one['broker']}:{one['queueId']}@{one['queueOffset']}"
        for one in found
        if one["status"] == "dead"
    }


def test_letters_are_listed_counted_and_exported(
    browser: Browser, api: Browser, letters: list[bytes]
) -> None:
    assert set(places(api)) == {"k-0", "k-1", "k-2", "k-3"}
    page = api.call("GET", "/groups/mailer/dead-letters?size=3").json
    assert (len(page["items"]), page["hasMore"]) == (3, True)
    assert api.call("GET", "/groups/mailer").json["dead"] == 4
    export = api.call("GET", "/groups/mailer/dead-letters/export").json
    assert export["isPart"] is False
    assert sorted(base64.b64decode(one["bodyBase64"]) for one in export["items"]) == letters
    words = browser.get("/groups/mailer/dead-letters").words()
    assert "k-3" in words
    assert "Redeliver the marked ones" in words


def test_the_marked_ones_are_given_back_and_no_other(
    broker: Broker, browser: Browser, api: Browser, letters: list[bytes]
) -> None:
    found = places(api)
    marked = {"group": "mailer", "letters": [found["k-1"], found["k-2"]]}
    preview, done = browser.do("dead-letters.redeliver", marked)
    assert "2 dead letters would be redelivered to mailer" in preview.words()
    assert done.headers["location"] == "/jobs"
    until(lambda: api.call("GET", "/jobs/1").json["state"] == "done")
    assert api.call("GET", "/jobs/1").json["done"] == 2
    assert set(places(api)) == {"k-0", "k-3"}
    again = browser.send("/do/dead-letters.redeliver", {**marked, "back": "/"})
    assert (again.status, "can be redelivered" in again.words()) == (409, True)


def test_all_are_given_back_with_a_limit(api: Browser, letters: list[bytes]) -> None:
    path = "/groups/mailer/dead-letters/redeliver"
    assert api.call("POST", f"{path}?dry_run=1", {}).json["count"] == 4
    assert api.call("POST", path, {"limit": 1}).json["job"] == 1
    until(lambda: api.call("GET", "/jobs/1").json["state"] == "done")
    assert len(places(api)) == 3
    assert api.call("POST", f"{path}?dry_run=1", {"topic": "stock"}).status == 409


def test_the_sdk_gives_single_letters_back(broker: Broker, letters: list[bytes]) -> None:
    with escrowmq.Admin(broker.nameserver) as admin:
        one, *rest = list(admin.groups.redeliver_dead("mailer", dry_run=True))
        place = (one.broker, one.queue_id, one.queue_offset)
        assert [x.status for x in admin.groups.redeliver_dead("mailer", only=[place])] == [
            "redelivered"
        ]
        assert [x.status for x in admin.groups.redeliver_dead("mailer", only=[place])] == ["done"]
        left = [
            x for x in admin.groups.redeliver_dead("mailer", dry_run=True) if x.status == "dead"
        ]
        assert left == rest
        assert list(admin.groups.redeliver_dead("mailer", only=[])) == []


def test_what_is_not_there_or_cannot_be_is_told(api: Browser, browser: Browser) -> None:
    assert api.call("GET", "/groups/nobody/dead-letters").json["items"] == []
    assert api.call("GET", "/groups/nobody/dead-letters/export").json["items"] == []
    path = "/groups/nobody/dead-letters/redeliver"
    assert api.call("POST", path, {}).json["code"] == "nothing_to_do"
    assert api.call("POST", path, {"letters": ["first"]}).status == 400
    assert api.call("POST", path, {"letters": "first"}).status == 400
    assert api.call("POST", path, {"limit": 0}).status == 400
    assert "No dead letters" in browser.get("/groups/nobody/dead-letters").words()


def test_who_may_only_look_gives_nothing_back(port: int, letters: list[bytes]) -> None:
    reader = Browser(port)
    reader.log_in(VIEWER)
    page = reader.get("/groups/mailer/dead-letters")
    assert "k-1" in page.words()
    assert 'type="checkbox"' not in page.text
    robot = program(port, VIEWER)
    refused = robot.call("POST", "/groups/mailer/dead-letters/redeliver", {})
    assert refused.json["code"] == "read_only"
    assert len(places(robot)) == 4
