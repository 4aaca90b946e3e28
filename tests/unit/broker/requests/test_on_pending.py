from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from msgspec.structs import replace

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.message import Topic
from escrowmq.broker.requests import on_pending
from escrowmq.codec.ids import offset_id
from escrowmq.codec.own_signature import NUMBER, SESSION, sign_request
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE, sign_fields
from escrowmq.testing.disk import CrashLoss
from escrowmq.txn.end_claim import Claim, EndResult
from escrowmq.txn.state import Verdict
from tests.harness.exchange import (
    COMMIT,
    ROLLBACK,
    SMALL,
    UNKNOWN,
    Caller,
    Exchange,
    half_of_check,
)
from tests.unit.store.stores import sync

LIST, COUNT, SHOW, SETTLE, CHECK, DISCARDED, RESUME = range(7701, 7708)
ASKED = Request.CHECK_TRANSACTION_STATE


def operator_of(exchange: Exchange) -> Caller:
    return exchange.connect("operator", host="127.0.0.1")


def ask(caller: Caller, code: int, **body: object) -> Any:
    reply = caller.ask(code, body=json.dumps(body).encode())
    assert reply.code == 0, reply.remark
    return json.loads(reply.body)


def refused(caller: Caller, code: int, body: bytes = b"{}") -> tuple[int, str]:
    reply = caller.ask(code, body=body)
    return reply.code, reply.remark or ""


@pytest.fixture
def exchange() -> Exchange:
    """Five pending halves, of two groups and topics, a second apart."""
    found = Exchange()
    producer = found.connect("sender")
    for n in range(5):
        topic, group = [("T", "PG"), ("U", "PG"), ("T", "OTHER")][n % 3]
        producer.prepare(topic, b"%d" % n, group=group, KEYS=f"k{n}", TAGS="a")
        found.now_ms += 1_000
    return found


def offsets(answer: Any) -> list[int]:
    return [item["halfOffset"] for item in answer["items"]]


# -- looking -------------------------------------------------------------------------------------


def test_pending_halves_are_listed_by_pages_and_filters(exchange: Exchange) -> None:
    operator = operator_of(exchange)
    first = ask(operator, LIST, limit=2)
    assert (offsets(first), first["next"]) == ([0, 1], 1)
    second = ask(operator, LIST, limit=3, after=first["next"])
    assert (offsets(second), second["next"]) == ([2, 3, 4], 4)
    assert ask(operator, LIST, after=4) == {"items": [], "next": -1}
    assert offsets(ask(operator, LIST, topic="U")) == [1, 4]
    assert offsets(ask(operator, LIST, group="OTHER")) == [2]
    assert offsets(ask(operator, LIST, minAgeMs=3_000)) == [0, 1, 2]
    assert offsets(ask(operator, LIST, maxAgeMs=3_000)) == [2, 3, 4]
    assert offsets(ask(operator, LIST, state="parked")) == []
    exchange.advance(7_000)
    assert offsets(ask(operator, LIST, state="parked")) == [0, 1, 2, 3, 4]


def test_item_says_what_it_is(exchange: Exchange) -> None:
    (item,) = ask(operator_of(exchange), LIST, group="OTHER")["items"]
    assert item["topic"] == "T"
    assert (item["keys"], item["tags"], item["bodySize"]) == ("k2", "a", 1)
    assert (item["state"], item["checks"], item["ageMs"]) == ("waiting", 0, 3_000)
    assert item["nextCheckMs"] == item["storedMs"] + 6_000
    assert item["id"] == "", "no id was asked for yet: there is no key"


def test_pending_halves_are_counted(exchange: Exchange) -> None:
    operator = operator_of(exchange)
    counts = ask(operator, COUNT)
    assert (counts["count"], counts["parked"]) == (5, 0)
    assert counts["byTopic"] == {"T": 3, "U": 2}
    assert counts["byGroup"] == {"PG": 4, "OTHER": 1}
    assert exchange.now_ms - counts["oldestMs"] == 5_000
    assert ask(operator, COUNT, topic="U")["byGroup"] == {"PG": 2}
    exchange.advance(7_000)
    assert ask(operator, COUNT)["parked"] == 5
    assert ask(operator, COUNT, group="OTHER")["parked"] == 1
    assert ask(operator_of(Exchange()), COUNT)["oldestMs"] == -1


def walk(caller: Caller, code: int, **body: object) -> list[Any]:
    """The answers of requests that follow `next` to the end."""
    answers = [ask(caller, code, **body)]
    while (after := answers[-1].get("next", -1)) >= 0:
        answers.append(ask(caller, code, after=after, **body))
    return answers


def test_a_long_index_is_counted_by_stretches(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_pending, "_SCANNED_MAX", 2)
    operator = operator_of(exchange)
    answers = walk(operator, COUNT, group="PG")
    assert [(one["count"], one["next"]) for one in answers] == [(2, 1), (1, 3), (1, -1)]
    assert [exchange.now_ms - one["oldestMs"] for one in answers] == [5_000, 2_000, 1_000]
    assert ask(operator, COUNT, group="OTHER")["oldestMs"] == -1
    whole = ask(operator, COUNT)
    assert (whole["count"], whole["next"]) == (5, -1)


def test_halves_of_one_transaction_are_counted_and_checked_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(on_pending, "_READ_MAX", 2)
    exchange = Exchange()
    operator, producer = operator_of(exchange), exchange.connect()
    producer.heartbeat(producer="PG")
    for n in range(6):
        producer.prepare("T", b"%d" % n, escrowTransaction="odd" if n % 2 else "even")
    counts = walk(operator, COUNT, transaction="odd")
    assert [one["count"] for one in counts] == [1, 1, 1]
    found = walk(operator, LIST, transaction="odd")
    assert [offset for page in found for offset in offsets(page)] == [1, 3, 5]
    assert sum(one["count"] for one in walk(operator, CHECK, transaction="odd")) == 3


def test_many_checks_are_made_due_by_stretches(
    exchange: Exchange, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(on_pending, "_CHECKED_MAX", 2)
    operator = operator_of(exchange)
    assert [one["count"] for one in walk(operator, CHECK, topic="T")] == [2, 1]


def events_of(caller: Caller, message_id: str) -> list[str]:
    (item,) = ask(caller, SHOW, messageId=message_id)["items"]
    return [event["what"] for event in item["events"]]


def test_timeline_of_a_transaction_is_shown_to_its_end() -> None:
    exchange = Exchange()
    operator, producer = operator_of(exchange), exchange.connect("sender")
    producer.heartbeat(producer="PG")
    half = producer.prepare("T", b"paid")
    assert events_of(operator, half.unique_key) == ["stored"]
    exchange.advance(6_100)
    (check,) = producer.take(ASKED)
    (item,) = ask(operator, SHOW, messageId=half.unique_key)["items"]
    assert (item["state"], item["checks"], item["origin"]) == ("asked", 1, "sender")
    producer.begin_end(half_of_check(check), UNKNOWN, is_from_check=True)
    exchange.advance(40_000)
    producer.end(half, COMMIT)
    found = events_of(operator, half.unique_key)
    assert found == ["stored", "asked", "said unknown", "asked", "unanswered", "committed"]
    assert events_of(operator, producer.prepare("T", b"next").unique_key) == ["stored"]
    exchange.crash(CrashLoss.NOTHING)
    operator = operator_of(exchange)
    assert events_of(operator, half.unique_key) == ["stored", "committed"]
    (item,) = ask(operator, SHOW, messageId=half.unique_key)["items"]
    assert item["state"] == "committed"


def test_who_settled_it_and_when_is_shown() -> None:
    exchange = Exchange(BrokerSettings(transaction_checks_max=1))
    operator, producer = operator_of(exchange), exchange.connect("sender")
    producer.heartbeat(producer="PG")
    halves = [producer.prepare("T", b"%d" % number) for number in range(3)]

    def fate(number: int) -> tuple[str, str, int]:
        (item,) = ask(operator, SHOW, messageId=halves[number].unique_key)["items"]
        return item["endedBy"], item["endedWho"], item["endedMs"]

    assert fate(0) == ("", "", -1)
    exchange.advance(10)
    producer.end(halves[0], COMMIT)
    assert fate(0) == ("producer", "", exchange.now_ms)
    exchange.advance(6_100)
    first, _ = producer.take(ASKED)
    producer.begin_end(half_of_check(first), ROLLBACK, is_from_check=True)
    ended_ms = exchange.now_ms
    found = [fate(number) for number in (1, 2)]
    ((who, address, at_ms),) = [one for one in found if one[0]]
    assert (who, at_ms) == ("check", ended_ms)
    assert address.startswith("10.0.0.9:")
    exchange.advance(120_000)  # the other is given up
    by = {fate(number)[0] for number in (1, 2)}
    assert by == {"check", "broker"}


def test_what_cannot_be_found_is_told(exchange: Exchange) -> None:
    operator = operator_of(exchange)
    assert refused(operator, SHOW, b'{"messageId":"nobody"}') == (
        1, "no half message of nobody is known",
    )  # fmt: skip
    assert refused(operator, SHOW)[0] == 1
    assert "not a transaction id" in refused(operator, SHOW, b'{"id":"x"}')[1]


@pytest.mark.parametrize("code", range(7701, 7709))
@pytest.mark.parametrize("body", [b"[]", b"\xff", b'{"limit":0}', b'{"state":"odd"}', b"{"])
def test_bad_bodies_are_refused(exchange: Exchange, code: int, body: bytes) -> None:
    operator = operator_of(exchange)
    assert refused(operator, code, body)[0] == 1
    assert ask(operator, COUNT)["count"] == 5


# -- deciding ------------------------------------------------------------------------------------


def test_operator_settles_and_it_is_on_record(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "escrowmq.audit")
    exchange = Exchange()
    operator, producer = operator_of(exchange), exchange.connect()
    half = producer.prepare("T", b"paid", CHECK_IMMUNITY_TIME_IN_SECONDS="10")
    exchange.advance(60_000)
    body = {"messageId": half.unique_key, "verdict": "commit", "reason": "ticket 7"}
    reply = operator.ask(SETTLE, body=json.dumps(body).encode())
    assert (reply.code, (reply.ext or {})["escrowOutcome"]) == (0, "committed")
    assert producer.bodies("T") == [b"paid"]
    assert producer.end(half, ROLLBACK).code == 200
    assert 'what="commit of half 0: DONE" reason="ticket 7"' in caplog.text
    (item,) = ask(operator, SHOW, messageId=half.unique_key)["items"]
    assert item["events"][-1]["who"].endswith("ticket 7")
    assert (item["endedBy"], item["reason"]) == ("operator", "ticket 7")
    assert item["endedWho"].startswith("127.0.0.1:")
    assert item["endedMs"] == item["events"][-1]["atMs"]
    reply = operator.ask(SETTLE, body=json.dumps(body | {"verdict": "rollback"}).encode())
    assert reply.code == 200


@pytest.mark.parametrize("reason", ["x" * 1_001, "x" * 40_000])
def test_a_reason_that_is_too_long_is_refused_and_stops_no_other_end(reason: str) -> None:
    exchange = Exchange()
    operator, producer = operator_of(exchange), exchange.connect()
    halves = [producer.prepare("T", b"%d" % number) for number in range(2)]
    body = {"messageId": halves[0].unique_key, "verdict": "commit", "reason": reason}
    assert refused(operator, SETTLE, json.dumps(body).encode()) == (
        1, f"a reason of {len(reason)} characters; 1000 are allowed",
    )  # fmt: skip
    assert producer.end(halves[1], ROLLBACK).code == 0
    body["reason"] = reason[:1_000]
    assert operator.ask(SETTLE, body=json.dumps(body).encode()).code == 0
    assert exchange.core.broker.store.bounds(Topic.OP, 0) == (0, 2)
    assert producer.bodies("T") == [b"0"]


def test_operator_settles_a_transaction_of_several_messages_by_its_id() -> None:
    exchange = Exchange()
    operator, producer = operator_of(exchange), exchange.connect()
    halves = [
        producer.prepare("T", b"%d" % n, escrowTransaction="tx", wants_id=True) for n in range(3)
    ]
    body = {"id": halves[1].escrow_id, "verdict": "commit"}
    reply = operator.ask(SETTLE, body=json.dumps(body).encode())
    assert (reply.code, (reply.ext or {})["escrowCount"]) == (0, "3")
    assert producer.bodies("T") == [b"0", b"1", b"2"]


def test_verdict_is_needed(exchange: Exchange) -> None:
    (item,) = ask(operator_of(exchange), LIST, group="OTHER")["items"]
    body = json.dumps({"messageId": item["messageId"]}).encode()
    assert refused(operator_of(exchange), SETTLE, body)[0] == 1


def test_check_now_does_not_wait_for_its_time() -> None:
    exchange = Exchange()
    operator, producer = operator_of(exchange), exchange.connect()
    producer.heartbeat(producer="PG")
    halves = [producer.prepare("T", b"%d" % n) for n in range(3)]
    assert ask(operator, CHECK, messageId=halves[1].unique_key)["count"] == 1
    exchange.advance(60)
    assert [half_of_check(check).queue_offset for check in producer.take(ASKED)] == [1]
    assert ask(operator, CHECK, topic="T")["count"] == 3
    exchange.advance(60)
    assert len(producer.take(ASKED)) == 3


def test_one_request_looks_at_some_of_those_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_pending, "_READ_MAX", 2)
    exchange = Exchange(BrokerSettings(transaction_checks_max=1))
    operator, producer = operator_of(exchange), exchange.connect("sender")
    producer.heartbeat(producer="PG")
    for n in range(5):
        producer.prepare("T" if n in (0, 4) else "U", b"%d" % n)
    exchange.advance(120_000)
    pages = [ask(operator, DISCARDED, topic="T", after=after) for after in (-1, 1, 3)]
    assert [len(page["items"]) for page in pages] == [1, 0, 1]
    assert [page["next"] for page in pages] == [1, 3, -1]
    assert ask(operator, RESUME, topic="T") == {"count": 1, "next": 1}
    assert ask(operator, RESUME, topic="T", after=1) == {"next": 3}
    assert ask(operator, RESUME, topic="T", after=3) == {"count": 1}


def test_those_given_up_are_listed_and_asked_about_again() -> None:
    exchange = Exchange(BrokerSettings(transaction_checks_max=1))
    operator, producer = operator_of(exchange), exchange.connect("sender")
    producer.heartbeat(producer="PG")
    halves = [producer.prepare("T" if n else "U", b"%d" % n) for n in range(4)]
    exchange.advance(120_000)
    page = ask(operator, DISCARDED, limit=3)
    assert ([item["state"] for item in page["items"]], page["next"]) == (["expired"] * 3, 2)
    assert [item["checks"] for item in page["items"]] == [1, 1, 1], "how often it was asked"
    rest = ask(operator, DISCARDED, after=2)
    assert [item["messageId"] for item in rest["items"]] == [halves[3].unique_key]
    assert ask(operator, DISCARDED, topic="U")["items"][0]["topic"] == "U"
    offset_id = page["items"][0]["offsetId"]
    assert ask(operator, RESUME, offsetId=offset_id, reason="x") == {"count": 1}
    assert ask(operator, RESUME, topic="T") == {"count": 3}
    assert ask(operator, RESUME) == {}, "they are pending, and not given up"
    assert ask(operator, COUNT)["count"] == 4
    assert [item.get("checks", 0) for item in ask(operator, LIST)["items"]] == [0] * 4, "anew"
    producer.take(ASKED)
    exchange.advance(6_100)
    for check in producer.take(ASKED):
        producer.end(half_of_check(check), COMMIT, is_from_check=True)
    assert sorted(producer.bodies("T") + producer.bodies("U")) == [b"0", b"1", b"2", b"3"]
    assert exchange.connect().bodies(Topic.CHECK_MAX_TIME) == [b"0", b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("admin_from", "host", "is_allowed"),
    [
        ("loopback", "127.0.0.1", True),
        ("loopback", "::1", True),
        ("loopback", "10.0.0.9", False),
        ("everybody", "10.0.0.9", True),
        ("nobody", "127.0.0.1", False),
    ],
)
def test_only_those_who_may_are_served(admin_from: Any, host: str, is_allowed: bool) -> None:
    exchange = Exchange(BrokerSettings(admin_from=admin_from))
    caller = exchange.connect(host=host)
    codes = {caller.ask(code).code for code in range(7701, 7709)}
    assert (codes == {16}) is not is_allowed
    assert (16 in codes) is not is_allowed


def test_the_console_of_the_process_is_served_from_any_address() -> None:
    for settings in (BrokerSettings(), BrokerSettings(admin_from="nobody")):
        exchange = Exchange(settings)
        exchange.core.broker.identity.operator = ("console", "its secret")
        caller = exchange.connect(host="10.0.0.9")
        is_allowed = settings.admin_from == "loopback"
        body = b'{"limit":5}'
        replayable = {ACCESS_KEY: "console"}
        replayable[SIGNATURE] = sign_fields(replayable, body, secret="its secret")
        assert caller.ask(LIST, replayable, body).code == (7750 if is_allowed else 16)
        session = (caller.ask(Request.ESCROW_SESSION).ext or {})[SESSION]
        signed = {ACCESS_KEY: "console", NUMBER: "1"}
        signed[SIGNATURE] = sign_request(LIST, signed, body, secret="its secret", session=session)
        other = exchange.connect(host="10.0.0.9")
        other.ask(Request.ESCROW_SESSION)
        assert other.ask(LIST, signed, body).code == 16
        assert caller.ask(COUNT, signed, body).code == 16
        assert caller.ask(LIST, signed, b'{"limit":6}').code == 16
        assert caller.ask(LIST, {**signed, ACCESS_KEY: "other"}, body).code == 16
        assert (caller.ask(LIST, signed, body).code == 0) is is_allowed
        assert caller.ask(LIST, signed, body).code == 16  # it was sent before


def test_progress_stays_before_an_end_that_no_op_record_names_yet() -> None:
    """That one was given up is said by its op record alone, for which a full disk may have no room:
    a start that begins behind its half would not know it."""
    exchange = Exchange(BrokerSettings(transaction_checks_max=1))
    producer = exchange.connect()
    for number in range(3):
        producer.prepare("T", b"%d" % number)
    transactions = exchange.core.transactions
    halves = transactions.engine.halves

    def kept() -> int:
        before = transactions.progress_to_save(exchange.now_ms)
        exchange.now_ms += 60_000
        while sync(exchange.core.broker.store, exchange.now_ms):
            pass
        progress = transactions.progress_to_save(exchange.now_ms) or before
        assert progress is not None
        return progress.half_offset

    assert kept() == 0
    claim = Claim(
        log_offset=halves.pending.log_offset(0), queue_offset=0, group="PG",
        verdict=Verdict.ROLLBACK,
    )  # fmt: skip
    assert transactions.ends.end(claim, exchange.now_ms).answer is EndResult.DONE
    assert halves.pending.oldest_offset() == 1
    assert kept() == 0
    transactions.engine.unsealed.seal(exchange.now_ms)
    assert kept() == 1


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_resumption_is_answered_when_it_is_on_disk(*, is_ours: bool) -> None:
    exchange = Exchange(
        BrokerSettings(transaction_checks_max=1),
        replace(SMALL, is_sync_flush=True),
    )
    operator = operator_of(exchange)
    operator.heartbeat(producer="PG")
    operator.prepare("T", b"paid")
    exchange.advance(36_300)
    (kept,) = operator.messages(Topic.CHECK_MAX_TIME)
    name = offset_id(kept.store_host, kept.log_offset)
    exchange.holds_syncs = True
    if is_ours:
        body = json.dumps({"offsetId": name}).encode()
        resumed = operator.begin(RESUME, {}, body)
    else:
        resumed = operator.begin(Request.RESUME_CHECK_HALF_MESSAGE, {"msgId": name})
    assert not resumed
    exchange.sync()
    assert resumed.now.code == 0
