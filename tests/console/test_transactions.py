"""Transactions seen and settled, one and many, by page and by call."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

import escrowmq
from escrowmq.testing import Broker
from tests.harness.console import VIEWER, Browser, before, program, until


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(sockets=True, settings={"transactionCheckMax": "1"}) as broker:
        yield broker


@pytest.fixture
def port(broker: Broker) -> Iterator[int]:
    with before(broker) as port:
        yield port


def leave_pending(broker: Broker, topic: str, keys: list[str], group: str = "orders") -> list[str]:
    """Transactions that nobody ended; their ids."""
    found = []
    with escrowmq.Producer(broker.nameserver, group=group) as producer:
        for key in keys:
            with producer.transaction(topic, key.encode(), keys=[key]) as tx:
                found.append(tx.detach())
    return found


def test_what_is_pending_is_listed_in_pages_and_counted_by_age(
    broker: Broker, browser: Browser, api: Browser
) -> None:
    keys = [f"k-{nth}" for nth in range(7)]
    leave_pending(broker, "paid", keys)
    found = api.call("GET", "/transactions?size=5").json
    assert [one["keys"] for one in found["items"]] == keys[:5]
    assert found["hasMore"] is True
    until(lambda: bool(api.call("GET", "/transactions?size=5").json["total"] == 7))
    rest = api.call("GET", "/transactions?size=5&page=2").json
    assert [one["keys"] for one in rest["items"]] == keys[5:]
    assert (rest["hasMore"], rest["total"]) == (False, 7)
    assert api.call("GET", "/transactions?topic=stock").json["items"] == []
    counted = api.call("GET", "/transactions/count").json
    assert counted["counts"]["byGroup"] == {"orders": 7}
    assert [one["count"] for one in counted["ages"]] == [7, 0, 0, 0, 0, 0]
    broker.advance(seconds=61)
    counted = api.call("GET", "/transactions/count?topic=paid").json
    assert [one["count"] for one in counted["ages"]] == [0, 7, 0, 0, 0, 0]
    words = browser.get("/transactions").words()
    assert "k-6" in words
    assert "Commit all that match" in words


def test_one_is_settled_after_a_preview_that_changes_nothing(
    broker: Broker, browser: Browser, api: Browser
) -> None:
    (name,) = leave_pending(broker, "paid", ["k-1"])
    page = browser.get(f"/transactions/{name}")
    assert "Half stored" in page.words()
    fields = {"transaction": name}
    preview = browser.send("/do/transactions.commit", {**fields, "back": "/transactions"})
    assert preview.status == 200
    assert "It cannot be taken back" in preview.words()
    assert broker.delivered("paid") == []
    assert api.call("POST", f"/transactions/{name}/commit?dry_run=1").json["isDryRun"] is True
    assert broker.delivered("paid") == []
    done = browser.send(
        "/do/transactions.commit",
        {**fields, "confirmed": "yes", "back": "/transactions", "reason": "seen in the shop"},
    )
    assert (done.status, done.headers["location"]) == (303, "/transactions")
    assert broker.delivered("paid") == [b"k-1"]
    assert "The transaction is committed." in browser.get("/transactions").words()
    fate = api.call("GET", f"/transactions/{name}").json[0]
    assert fate["message"]["state"] == "committed"
    assert fate["message"]["endedBy"] == "operator"
    assert fate["message"]["reason"] == "admin at the console: seen in the shop"


def test_what_was_done_and_by_whom_is_in_the_audit_log(
    broker: Broker, browser: Browser, api: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "escrowmq.audit")
    one, other = leave_pending(broker, "paid", ["k-1", "k-2"])
    assert api.call("POST", f"/transactions/{one}/commit?dry_run=1").status == 200
    browser.send("/do/transactions.commit", {"transaction": one, "back": "/"})
    assert "event=console_" not in caplog.text
    assert api.call("POST", f"/transactions/{one}/commit?dry_run=0").status == 200
    line = "event=console_call who=admin peer=127.0.0.1 call=transactions.commit said="
    assert line in caplog.text
    fields = {"transaction": other, "confirmed": "yes", "back": "/"}
    browser.send("/do/transactions.rollback", fields)
    assert "event=console_deed who=admin peer=127.0.0.1 call=transactions.rollback" in caplog.text
    browser.send("/login", {"name": "x\nevent=login", "password": "a guess"}, csrf="")
    assert 'event=console_login_failed name="x\\nevent=login" peer=127.0.0.1' in caplog.text


def test_two_operators_at_once_have_one_outcome(
    broker: Broker, port: int, browser: Browser
) -> None:
    (name,) = leave_pending(broker, "paid", ["k-1"])
    other = Browser(port)
    other.log_in()
    other.get("/")
    fields = {"transaction": name, "back": "/"}
    assert browser.send("/do/transactions.rollback", fields).status == 200
    assert other.send("/do/transactions.commit", fields).status == 200
    assert browser.send("/do/transactions.rollback", {**fields, "confirmed": "yes"}).status == 303
    late = other.send("/do/transactions.commit", {**fields, "confirmed": "yes"})
    assert late.status == 409
    assert broker.delivered("paid") == []
    again = other.send("/do/transactions.commit", fields)
    assert (again.status, "already" in again.words()) == (409, True)


def test_the_life_of_one_tells_how_far_its_consumers_are(broker: Broker, api: Browser) -> None:
    with escrowmq.Producer(broker.nameserver, group="orders") as producer:
        for key in ("k-1", "k-2"):
            with producer.transaction("paid", key.encode(), keys=[key]) as tx:
                name = tx.id
    with escrowmq.Consumer(broker.nameserver, group="mailer", topic="paid") as consumer:
        for nth, delivery in enumerate(consumer):
            delivery.ack()
            if nth == 1:
                break
    fate = api.call("GET", f"/transactions/{name}").json[0]
    assert fate["queue"].startswith("broker-a/")
    assert [(one["group"], one["state"]) for one in fate["deliveries"]] == [("mailer", "done")]


def test_all_that_match_are_settled_in_the_background(
    broker: Broker, browser: Browser, api: Browser
) -> None:
    leave_pending(broker, "paid", [f"k-{nth}" for nth in range(30)])
    leave_pending(broker, "stock", ["s-1"])
    preview = api.call("POST", "/transactions/commit?dry_run=1", {"topic": "paid"}).json
    assert (preview["count"], len(preview["rows"]), preview["job"]) == (30, 20, None)
    assert broker.delivered("paid") == []
    fields = {"topic": "paid", "back": "/transactions"}
    assert "30 pending transactions" in browser.send("/do/transactions.commit-all", fields).words()
    done = browser.send("/do/transactions.commit-all", {**fields, "confirmed": "yes"})
    assert done.headers["location"] == "/jobs"
    until(lambda: api.call("GET", "/jobs/1").json["state"] != "running")
    job = api.call("GET", "/jobs/1").json
    assert (job["state"], job["done"], job["failed"], job["who"]) == ("done", 30, 0, "admin")
    assert len(broker.delivered("paid")) == 30
    assert broker.pending("stock") == [b"s-1"]
    assert "Commit transactions of topic paid" in browser.get("/jobs").words()
    nothing = api.call("POST", "/transactions/rollback", {"topic": "paid"}).json
    assert (nothing["count"], nothing["job"]) == (0, None)


def test_what_began_after_the_preview_is_not_settled(
    broker: Broker, browser: Browser, api: Browser
) -> None:
    """Its producer may still decide it."""
    leave_pending(broker, "paid", ["old"])
    broker.advance(seconds=60)
    preview = browser.send("/do/transactions.commit-all", {"topic": "paid", "back": "/"})
    asked = api.call("POST", "/transactions/rollback?dry_run=1", {"topic": "paid"}).json
    hidden = re.findall(r'type="hidden" name="([^"]+)" value="([^"]*)"', preview.text)
    leave_pending(broker, "paid", ["new"])
    fields = {name: value for name, value in hidden if name != "csrf"}
    browser.send("/do/transactions.commit-all", fields)
    until(lambda: broker.delivered("paid") == [b"old"])
    until(lambda: api.call("GET", "/jobs/1").json["state"] == "done")
    assert broker.pending("paid") == [b"new"]
    which = {"topic": "paid", "as_of_ms": asked["asOfMs"]}
    rest = api.call("POST", "/transactions/rollback", which).json
    assert (rest["count"], rest["job"]) == (0, None)
    assert api.call("POST", "/transactions/check", which).json["count"] == 0
    assert broker.pending("paid") == [b"new"]


def test_what_was_given_up_is_asked_about_again(
    broker: Broker, browser: Browser, api: Browser
) -> None:
    def unknown(message: escrowmq.ReceivedMessage) -> escrowmq.Outcome:
        return escrowmq.Outcome.UNKNOWN

    with escrowmq.Producer(broker.nameserver, group="orders", check=unknown) as producer:
        with producer.transaction("paid", b"k-1", keys=["k-1"]) as tx:
            tx.detach()
        broker.check_now()
        for _ in range(5):
            broker.advance(seconds=61)
            if broker.discarded("paid"):
                break
        assert broker.discarded("paid") == [b"k-1"]

    def is_registered() -> bool:
        broker.advance(seconds=1)  # minutes without a word: the name server took it for gone
        found = api.call("GET", "/brokers").json
        return isinstance(found, list) and any(one["state"] == "registered" for one in found)

    until(is_registered)
    (one,) = api.call("GET", "/transactions/discarded").json["items"]
    assert (one["keys"], one["state"]) == ("k-1", "expired")
    assert "k-1" in browser.get("/transactions/discarded").words()
    preview, done = browser.do(
        "transactions.resume", {"offset_id": one["offsetId"]}, back="/transactions"
    )
    assert "pending again" in preview.words()
    assert done.status == 303, done.words()
    assert broker.pending("paid") == [b"k-1"]
    refused = api.call("POST", "/transactions/discarded/resume", {})
    assert (refused.status, refused.json["code"]) == (400, "bad_request")


def test_who_may_only_look_is_offered_nothing_and_refused(broker: Broker, port: int) -> None:
    (name,) = leave_pending(broker, "paid", ["k-1"])
    reader = Browser(port)
    reader.log_in(VIEWER)
    for path in ("/transactions", f"/transactions/{name}", "/transactions/discarded"):
        assert "/do/" not in reader.get(path).text
    refused = reader.send("/do/transactions.commit", {"transaction": name, "confirmed": "yes"})
    assert (refused.status, "has read access" in refused.words()) == (403, True)
    call = program(port, VIEWER).call("POST", f"/transactions/{name}/commit", {})
    assert (call.status, call.json["code"]) == (403, "read_only")
    assert broker.delivered("paid") == []


def test_a_deed_without_the_sessions_mark_does_nothing(broker: Broker, browser: Browser) -> None:
    (name,) = leave_pending(broker, "paid", ["k-1"])
    fields = {"transaction": name, "confirmed": "yes"}
    for csrf in ("", "guess", browser.cookie):
        assert browser.send("/do/transactions.commit", fields, csrf=csrf).status == 403
    assert broker.delivered("paid") == []
    browser.cookie = ""
    assert browser.send("/do/transactions.commit", fields).headers["location"] == "/login"


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/transactions/C0A80001000100000000000000000000", 404),
        ("/transactions/nothing-like-an-id", 400),
        ("/transactions?page=0", 400),
        ("/transactions?page=1000000", 400),
        ("/transactions?state=lost", 400),
        ("/transactions?min_age_ms=-5", 400),
        ("/transactions?broker=nowhere", 404),
    ],
)
def test_what_is_not_there_or_cannot_be_is_told(api: Browser, path: str, status: int) -> None:
    reply = api.call("GET", path)
    assert reply.status == status, reply.text
    assert reply.json["message"]


def test_names_of_others_are_shown_and_not_obeyed(broker: Broker, browser: Browser) -> None:
    key = "<script>alert(1)</script>"
    (name,) = leave_pending(broker, "paid", [key])
    for path in ("/transactions", f"/transactions/{name}"):
        page = browser.get(path)
        assert "<script>alert" not in page.text
        assert key in page.words()


def test_a_page_is_there_before_a_count_that_takes_long(
    broker: Broker, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_pending(broker, "paid", ["k-1"])
    monkeypatch.setattr("escrowmq.console.site.SOON_S", 0)
    page = browser.get("/transactions?topic=paid")
    assert "Counting: the figures will appear in a moment." in page.words()
    assert "k-1" in page.words()
    assert "/api/v1/transactions/count?topic=paid" in page.text
    monkeypatch.undo()
    assert "Pending 1" in browser.get("/transactions?topic=paid").words()
