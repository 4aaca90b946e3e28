"""What a sender says of himself and of others: names, flags and properties that are not his."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .place import A, B, C, Line, Place, heartbeat, sending

REPLIES = "DefaultCluster_REPLY_TOPIC"
REPLY = 325
PUSHED = 326


@pytest.fixture(name="a")
def of_a(place: Place) -> Iterator[Line]:
    with place.line(A) as found:
        yield found


@pytest.fixture(name="b")
def of_b(place: Place) -> Iterator[Line]:
    with place.line(B) as found:
        yield found


def transaction(*names: str) -> dict[str, str]:
    return {"escrowTransaction": "-".join(names)}


# -- transactions of others ------------------------------------------------------------------------


@pytest.mark.parametrize("what", [8, 12], ids=["commit", "rollback"])
def test_a_half_of_another_account_holds_up_no_transaction(a: Line, b: Line, what: int) -> None:
    named = transaction("joined", str(what), b.who or "", os.urandom(4).hex())
    first = b.half("TB", b"joined %d" % what, **named)
    a.half("TA", b"spoiler", **named)
    second = b.half("TB", b"joined %d" % what, **named)
    assert second.reply.code == 0, second.reply.remark
    ended = b.end(first, what)
    assert ended.code == 0, ended.remark
    count = b.bodies("TB", "GB").count(b"joined %d" % what)
    assert count == (2 if what == 8 else 0)


def test_a_transaction_is_not_filled_by_another_account(a: Line, b: Line) -> None:
    named = transaction("filled", os.urandom(4).hex())
    b.half("TB", b"first", **named)
    for _ in range(256):
        if a.half("TA", b"f", **named).reply.code:
            break
    last = b.half("TB", b"last", **named).reply
    assert last.code == 0, last.remark


def test_an_id_is_not_used_up_by_another_account(a: Line, b: Line) -> None:
    named = transaction("used up", os.urandom(4).hex())
    spoiler = a.half("TA", b"f", **named)
    a.end(spoiler, 12)
    begun = b.half("TB", b"own", **named).reply
    assert begun.code == 0, begun.remark


def test_an_account_that_began_first_ends_no_message_of_another(a: Line, b: Line) -> None:
    body = os.urandom(4).hex().encode()
    named = transaction("led", os.urandom(4).hex())
    led = a.half("TA", b"first", **named)
    b.half("TB", body, **named)
    a.end(led)
    assert body not in b.bodies("TB", "GB")


def test_a_batch_of_a_query_is_its_accounts(a: Line, b: Line) -> None:
    epoch = f"query-{os.urandom(4).hex()}/1"
    named = {"escrowEpoch": epoch, "escrowToken": "token-b"}
    for number in range(3):
        assert b.half("TB", b"e%d" % number, **named).reply.code == 0
    a.half("TA", b"foreign", **named)
    wanted = {"group": "PGB", "epoch": epoch, "tokens": {"token-b": 3}}
    for code in (7709, 7710):
        refused = a.ask(code, {}, json.dumps(wanted | {"tokens": {}}).encode())
        assert "permission" in (refused.remark or "")
    decided = b.ask(7709, {}, json.dumps(wanted).encode())
    assert decided.code == 0, decided.remark


# -- names that say more than they are -------------------------------------------------------------


def test_a_group_keeps_its_right_whatever_topics_others_make(a: Line, b: Line) -> None:
    beat = heartbeat("b", billing_orders="TB")
    assert b.ask(34, {}, beat).code == 0
    assert a.send("orders").code == 0
    joined = b.ask(34, {}, beat)
    assert joined.code == 0, joined.remark
    offsets = {"consumerGroup": "billing_orders", "topic": "TB", "queueId": 0, "commitOffset": 0}
    assert b.ask(14, offsets).code in (0, 22)


@pytest.mark.parametrize("end", ["\n", "/../../x", "\x1b[2J", "\x00", " ", "\u202e"])
def test_a_groups_name_is_judged_whole(place: Place, end: str) -> None:
    with place.line("operator") as operator:
        name = "g" * 110 + end
        body = json.dumps({"groupName": name}).encode()
        operator.ask(200, {}, body)
        groups: dict[str, Any] = {name: "TA"}
        operator.ask(34, {}, heartbeat("c", **groups))
        kept = operator.ask(201).body + operator.ask(21).body
        assert json.dumps(name)[1:-1].encode() not in kept
        assert name.encode() not in kept


# -- replies ---------------------------------------------------------------------------------------


def test_a_reply_goes_to_nobody_who_merely_says_the_askers_name(place: Place) -> None:
    named = f"10.0.0.5@4711#{os.urandom(4).hex()}"
    with place.line(A) as thief, place.line(B) as asker, place.line(B) as responder:
        thief.ask(34, {}, heartbeat(named, producers=("a-group",)))
        asker.ask(34, {}, heartbeat(named, producers=("b-group",)))
        fields = sending(
            REPLIES, "PG", 0,
            {"REPLY_TO_CLIENT": named, "CORRELATION_ID": "c", "CLUSTER": "DefaultCluster",
             "MSG_TYPE": "reply"},
        )  # fmt: skip
        responder.tell(REPLY, fields, b"only for B")
        responder.ask(9_999)
        thief.ask(9_999)
        assert [command.code for command in thief.asked] == []


def test_an_account_without_rights_pushes_no_reply(place: Place) -> None:
    named = f"10.0.0.6@4711#{os.urandom(4).hex()}"
    with place.line(B) as asker, place.line(C) as forger:
        asker.ask(34, {}, heartbeat(named, producers=("b-group",)))
        properties = {"REPLY_TO_CLIENT": named, "CORRELATION_ID": "c", "CLUSTER": "DefaultCluster"}
        forger.tell(REPLY, sending(REPLIES, "PG", 0, properties), b"forged")
        forger.ask(9_999)
        asker.ask(9_999)
        assert [command.code for command in asker.asked] == []


# -- flags and marks, before and after a start -----------------------------------------------------


@pytest.mark.parametrize("way", [signal.SIGTERM, signal.SIGKILL], ids=lambda way: way.name)
def test_no_message_ends_or_replaces_a_half_at_a_start(tmp_path: Path, way: signal.Signals) -> None:
    with Place(tmp_path) as place:
        with place.line(A) as a, place.line(B) as b:
            halves = [b.half("TB", b"half 0"), b.half("TB", b"half 1", TRANSACTION_CHECK_TIMES="1")]
            halves.append(b.half("TB", b"half 2"))
            for half in halves:
                a.send("TA", b"no commit", sys_flag=8, UNIQ_KEY=half.key)
            a.half("TA", b"a copy", key=halves[2].key, TRANSACTION_CHECK_TIMES="1")
        place.again(way)
        with place.line(B) as b:
            for half in halves:
                ended = b.end(half)
                assert ended.code == 0, ended.remark
            assert b.bodies("TB", "GB") == [b"half 0", b"half 1", b"half 2"]
