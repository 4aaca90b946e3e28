"""Messages found by whatever somebody has of them, shown without harm, and sent again."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from urllib.parse import quote

import pytest

import escrowmq
from escrowmq.base.codes import Request
from escrowmq.codec.fastjson import decode_fastjson
from escrowmq.testing import Broker
from tests.harness.console import Browser, before, until
from tests.hostile.place import Line

HOSTILE = b'</pre><script>alert(1)</script><img src=x onerror="alert(2)">\x1b[31m'


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(sockets=True) as broker:
        yield broker


@pytest.fixture
def port(broker: Broker) -> Iterator[int]:
    with before(broker) as port:
        yield port


@pytest.fixture
def sent(broker: Broker) -> escrowmq.SendResult:
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        producer.send("paid", b'{"order": 0}', keys=["o-0"])
        return producer.send("paid", b'{"order": 1}', keys=["o-1"], properties={"shop": "3"})


def test_the_box_says_what_it_took_the_text_for(
    broker: Broker, browser: Browser, api: Browser, sent: escrowmq.SendResult
) -> None:
    producer = escrowmq.Producer(broker.nameserver, group="orders")
    with producer, producer.transaction("paid", b"half", keys=["t-1"]) as tx:
        name = tx.detach()
    message = api.call("GET", f"/messages/{sent.message_id}?topic=paid").json
    place = f"broker-a/{message['queueId']}@{message['queueOffset']}"
    for text, topic, taken in (
        (sent.message_id, "", "message id"), (sent.message_id, "paid", "message id"),
        (message["offsetId"], "", "offset id"), ("o-1", "", "key"), ("o-1", "paid", "key"),
        (place, "paid", "place"),
    ):  # fmt: skip
        found = api.call("GET", f"/messages?text={text}&topic={topic}").json
        assert found["takenFor"] == taken, text
        assert [one["keys"] for one in found["items"]] == [["o-1"]], text
    found = api.call("GET", f"/messages?text={name}").json
    assert (found["takenFor"], found["transaction"]) == ("transaction id", name)
    assert [one["keys"] for one in found["items"]] == [["t-1"]]
    since = api.call("GET", "/messages?text=first&topic=paid").json
    assert (since["takenFor"], len(since["items"])) == ("time", 2)
    page = browser.get("/messages?text=o-1")
    assert "Interpreted as a key , searched in 1 of 1 topics" in page.words()


def test_a_position_with_too_many_digits_is_no_position(api: Browser) -> None:
    """Python refuses to read 5,000 digits, so that the console failed."""
    for path in ("/messages/b:0@" + "9" * 5000, "/messages/b:" + "9" * 5000 + "@0"):
        assert api.call("GET", f"{path}?topic=paid").status == 404
    assert (
        api.call("POST", "/messages/b:0@" + "9" * 5000 + "/resend", {"topic": "paid"}).status < 500
    )


def test_what_is_not_found_is_said_and_where_it_was_looked_for(
    browser: Browser, api: Browser, sent: escrowmq.SendResult
) -> None:
    found = api.call("GET", "/messages?text=nothing").json
    assert (found["takenFor"], found["items"], found["searched"]) == ("key", [], 1)
    found = api.call("GET", f"/messages?text={'0' * 32}").json
    assert found["items"] == []
    assert "No message." in browser.get("/messages?text=nothing").words()
    for path, status in (
        ("/messages?text=", 400), ("/messages?text=09:00", 400),
        ("/messages?text=x&topic=nowhere", 404), (f"/messages/{'0' * 32}", 404),
        ("/messages/x?topic=paid", 404), ("/messages/broker-a:0@99?topic=paid", 404),
        ("/messages/nowhere:0@0?topic=paid", 400), ("/messages/broker-a:0@0", 400),
        (f"/messages?text={'k' * 2_000}", 400),
    ):  # fmt: skip
        reply = api.call("GET", path)
        assert (reply.status, bool(reply.json.get("message"))) == (status, True), path


def test_a_hostile_body_is_shown_and_not_obeyed(broker: Broker, browser: Browser) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        sent = producer.send(
            "paid", HOSTILE, keys=["<kbd>k</kbd>"], tag="<i>", properties={"<u>": "\u202e<s>"}
        )
    for path in (f"/messages/{sent.message_id}?topic=paid", "/messages?topic=paid",
                 "/topics/paid", "/messages?text=%3Cscript%3Ealert(3)"):  # fmt: skip
        page = browser.get(path)
        assert page.status == 200
        for mark in ("<script>alert", "<img src=x", "<kbd>", "<i>", "<u>", "<s>", "\x1b"):
            assert mark not in page.text, (path, mark)
    shown = browser.get(f"/messages/{sent.message_id}?topic=paid").words()
    assert "<script>alert(1)</script>" in shown
    assert "\\x1b[31m" in shown


def test_names_with_a_slash_are_found(broker: Broker, browser: Browser, api: Browser) -> None:
    """A place as pages show it, and ids that a producer has chosen."""
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        sent = producer.send("paid", b"plain")
    place = quote(f"broker-a/{sent.queue.queue_id}@{sent.offset}", safe="")
    assert browser.get(f"/messages/{place}?topic=paid").status == 200
    found = api.call("GET", f"/messages/{place}?topic=paid").json
    assert found["messageId"] == sent.message_id
    copied = api.call("POST", f"/messages/{place}/resend", {"topic": "paid"})
    assert copied.status == 200
    for path in (f"/transactions/{quote('no/such', safe='')}/commit", "/jobs/1/x/stop"):
        assert api.call("POST", path).json["code"] in ("not_found", "bad_request"), path


@pytest.mark.parametrize("born_ms", [1 << 62, -(1 << 62)])
def test_a_message_that_names_an_impossible_time_is_shown(
    broker: Broker, browser: Browser, born_ms: int
) -> None:
    half = {"TRAN_MSG": "true", "PGROUP": "orders", "UNIQ_KEY": "0" * 32}
    fields = {"b": "paid", "a": "orders", "c": "TBW102", "d": "4", "e": "0", "f": "0",
              "g": str(born_ms), "h": "0", "j": "0"}  # fmt: skip
    with Line(broker.nameserver, None) as line:
        table = decode_fastjson(line.ask(Request.GET_BROKER_CLUSTER_INFO).body)["brokerAddrTable"]
    (known,) = table.values()
    (address,) = known["brokerAddrs"].values()
    with Line(address, None) as line:
        for more in ({"UNIQ_KEY": "1" * 32}, half):
            text = "".join(f"{name}\x01{value}\x02" for name, value in more.items())
            assert line.ask(Request.SEND_MESSAGE_V2, fields | {"i": text}, b"body").code == 0
    for path in ("/messages/" + "1" * 32, "/transactions/" + "0" * 32):
        page = browser.get(f"{path}?topic=paid")
        assert page.status == 200, page.words()


def test_a_binary_body_of_four_megabytes_is_cut_and_told_whole_when_asked_for(
    broker: Broker, browser: Browser, api: Browser
) -> None:
    body = bytes(range(256)) * 16_000
    with escrowmq.Producer(broker.nameserver, group="orders", compression="") as producer:
        sent = producer.send("paid", body)
    path = f"/messages/{sent.message_id}?topic=paid"
    page = browser.get(path)
    assert len(page.body) < 60 * 1024
    assert "shown: the first 64.0 KiB of 3.9 MiB" in page.words()
    assert "Not valid UTF-8." in page.words()
    part = api.call("GET", path).json
    assert (part["bodySize"], len(base64.b64decode(part["bodyBase64"]))) == (len(body), 65_536)
    whole = api.call("GET", f"{path}&whole=1").json
    assert base64.b64decode(whole["bodyBase64"]) == body


def test_a_topic_is_followed_and_the_tail_is_bounded(
    broker: Broker, browser: Browser, api: Browser
) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        for nth in range(80):
            producer.send("paid", b"x", keys=[f"k-{nth}"])
        found = api.call("GET", "/topics/paid/messages?count=10").json
        keys = [f"k-{nth}" for nth in range(79, 69, -1)]
        assert [one["keys"][0] for one in found["items"]] == keys
        assert all(one["bodyBase64"] is None for one in found["items"])
        assert len(browser.get("/messages?topic=paid").body) < 60 * 1024
        producer.send("paid", b"x", keys=["newest"])
    until(lambda: "newest" in browser.get("/messages?topic=paid").words())
    assert api.call("GET", "/topics/paid/messages?count=101").status == 400


def test_a_copy_is_sent_after_a_preview(
    broker: Broker, browser: Browser, sent: escrowmq.SendResult
) -> None:
    fields = {"id": sent.message_id, "topic": "paid"}
    preview, done = browser.do("messages.resend", fields, back="/messages")
    assert "a new message that every group of it sees" in preview.words()
    assert done.status == 303
    assert broker.delivered("paid") == [b'{"order": 0}', b'{"order": 1}', b'{"order": 1}']


def test_a_half_is_shown_though_nobody_committed_it(broker: Broker, api: Browser) -> None:
    producer = escrowmq.Producer(broker.nameserver, group="orders")
    with producer, producer.transaction("paid", b"half", keys=["t-1"]) as tx:
        tx.detach()
        message_id = tx.results[0].message_id
    found = api.call("GET", f"/messages/{message_id}?topic=paid").json
    assert base64.b64decode(found["bodyBase64"]) == b"half"
