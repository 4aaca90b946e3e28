"""Batches of streaming queries: one decision makes all of one attempt visible, or none."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.codec.properties import encode_properties
from escrowmq.testing.disk import CrashLoss
from escrowmq.txn.decisions import LastDecision, StreamQuery
from escrowmq.txn.epoch_decision import EpochDecider
from tests.harness.caller import Half
from tests.harness.exchange import COMMIT, ROLLBACK, SMALL, Exchange
from tests.unit.txn.ground import HOST, Ground

TIMEOUT_MS = 900_000


class Sink:
    """A writer of batches; `token` tells its attempts apart."""

    def __init__(self, exchange: Exchange, query: str = "q-1") -> None:
        self.exchange = exchange
        self.query = query
        self.caller = exchange.connect("sink")

    def write(self, batch: int, token: str, *bodies: bytes, topic: str = "rows") -> list[Half]:
        return [
            self.caller.prepare(
                topic, body, escrowEpoch=f"{self.query}/{batch}", escrowToken=token,
                UNIQ_KEY=f"{token}-{body.decode()}",
            )
            for body in bodies
        ]  # fmt: skip

    def ask(self, code: int, batch: int, **more: object) -> Command:
        body = {"group": "PG", "epoch": f"{self.query}/{batch}", **more}
        return self.caller.ask(code, body=json.dumps(body).encode())

    def decide(self, batch: int, **tokens: int) -> dict[str, Any]:
        reply = self.ask(Request.ESCROW_DECIDE, batch, tokens=tokens)
        assert reply.code == 0, reply.remark
        return dict(json.loads(reply.body))

    def refused(self, batch: int, **tokens: int) -> str:
        reply = self.ask(Request.ESCROW_DECIDE, batch, tokens=tokens)
        assert reply.code == 1
        return reply.remark or ""

    def abandon(self, batch: int, *tokens: str) -> int:
        reply = self.ask(Request.ESCROW_ABANDON, batch, tokens=list(tokens))
        return int(json.loads(reply.body)["count"])

    def decision(self, batch: int) -> dict[str, Any]:
        return dict(json.loads(self.ask(Request.ESCROW_DECISION, batch).body))


def make(**settings: Any) -> tuple[Exchange, Sink]:
    exchange = Exchange(BrokerSettings(**settings))
    exchange.create_topic("rows")
    return exchange, Sink(exchange)


def visible(exchange: Exchange) -> list[bytes]:
    return exchange.connect("reader").bodies("rows")


def pending_count(exchange: Exchange) -> int:
    return len(exchange.core.transactions.engine.halves.pending)


def test_all_tokens_of_a_decision_become_visible_and_no_other_one() -> None:
    exchange, sink = make()
    sink.write(7, "a", b"1", b"2")
    sink.write(7, "b", b"3")
    sink.write(7, "zombie", b"1", b"2")
    assert visible(exchange) == []
    assert sink.decide(7, a=2, b=1) == {"decided": "now", "tokens": {"a": 2, "b": 1}, "count": 3}
    assert sorted(visible(exchange)) == [b"1", b"2", b"3"]
    assert pending_count(exchange) == 0


def test_a_decision_is_told_again_and_the_halves_of_another_try_are_dropped() -> None:
    exchange, sink = make()
    sink.write(7, "a", b"1")
    sink.decide(7, a=1)
    again = sink.decide(7, late=5)
    assert again == {"decided": "before", "tokens": {"a": 1}, "count": 1}
    assert sink.decide(7, a=1)["decided"] == "before"
    assert visible(exchange) == [b"1"]


def test_a_batch_before_the_last_decided_one_is_decided_though_not_known_for_whom() -> None:
    exchange, sink = make()
    sink.write(7, "old", b"0")
    sink.write(8, "a", b"1")
    sink.decide(8, a=1)
    assert pending_count(exchange) == 0
    assert sink.decide(7, old=1) == {"decided": "before", "tokens": {}, "count": 0}
    assert visible(exchange) == [b"1"]


def test_a_half_for_a_decided_batch_is_refused() -> None:
    _, sink = make()
    sink.decide(3)
    reply = sink.caller.send(
        "rows", TRAN_MSG="true", PGROUP="PG", escrowEpoch="q-1/3", escrowToken="late"
    )
    assert reply.code == 202
    assert "batch 3 of q-1 is decided already" in (reply.remark or "")


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"escrowEpoch": "q"}, "<query>/<number of the batch>"),
        ({"escrowEpoch": "q/x", "escrowToken": "t"}, "<query>/<number of the batch>"),
        ({"escrowEpoch": "/1", "escrowToken": "t"}, "<query>/<number of the batch>"),
        ({"escrowEpoch": "q/" + "1" * 19, "escrowToken": "t"}, "<query>/<number"),
        ({"escrowEpoch": "q" * 300 + "/1", "escrowToken": "t"}, "at most 255 characters"),
        ({"escrowEpoch": "q/1"}, "escrowToken has 0 characters"),
        ({"escrowEpoch": "q/1", "escrowToken": "t" * 65}, "escrowToken has 65 characters"),
        (
            {"escrowEpoch": "q/1", "escrowToken": "t", "escrowTransaction": "x"},
            "escrowEpoch and escrowTransaction are both on the message",
        ),
    ],
)
def test_an_epoch_that_cannot_be_read_is_refused(properties: dict[str, str], said: str) -> None:
    exchange, sink = make()
    text = encode_properties({"TRAN_MSG": "true", "PGROUP": "PG", **properties}).decode()
    reply = sink.caller.send("rows", fields={"i": text})
    assert reply.code != 0
    assert said in (reply.remark or "")
    assert pending_count(exchange) == 0


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"group":"PG","epoch":"q/1"}',
                                  b'{"group":"PG","epoch":"q/1","tokens":{"a":-1}}',
                                  b'{"group":"PG","epoch":"q/1","tokens":{"":1}}',
                                  b'{"group":"PG","epoch":"no number","tokens":{}}'])  # fmt: skip
def test_a_request_that_cannot_be_read_is_refused(body: bytes) -> None:
    _, sink = make()
    assert sink.caller.ask(Request.ESCROW_DECIDE, body=body).code == 1


def test_a_token_with_another_number_of_halves_changes_nothing() -> None:
    _, sink = make()
    sink.write(1, "a", b"1")
    for count in (0, 2):
        said = f"token a has 1 pending halves in batch 1 of q-1, not {count}"
        assert said in sink.refused(1, a=count)
    assert "token b has 0 pending" in sink.refused(1, a=1, b=1)
    assert sink.decision(1) == {"decided": "no", "tokens": {}, "count": 0}
    assert sink.decide(1, a=1)["decided"] == "now"


def test_abandoned_halves_are_gone_and_those_decided_for_are_not() -> None:
    exchange, sink = make()
    sink.write(1, "a", b"1", b"2")
    assert sink.abandon(1, "a", "b") == 2
    assert pending_count(exchange) == 0
    sink.write(1, "b", b"3")
    sink.decide(1, b=1)
    assert sink.abandon(1, "b") == 0
    assert visible(exchange) == [b"3"]


def test_an_end_of_a_half_of_an_epoch_is_refused() -> None:
    _, sink = make()
    (half,) = sink.write(1, "a", b"1")
    for verdict in (COMMIT, ROLLBACK):
        reply = sink.caller.end(half, verdict)
        assert (reply.code, "request 7709" in (reply.remark or "")) == (1, True)
    assert sink.decide(1, a=1)["count"] == 1


def test_groups_and_queries_do_not_meddle_with_each_other() -> None:
    exchange, sink = make()
    other = Sink(exchange, "q-2")
    sink.write(5, "a", b"1")
    other.write(1, "a", b"2")
    sink.decide(5, a=1)
    assert pending_count(exchange) == 1
    assert other.decide(1, a=1)["decided"] == "now"


def test_nobody_is_asked_about_a_half_of_an_epoch_and_it_is_dropped_in_the_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    exchange, sink = make()
    sink.caller.heartbeat(producer="PG")
    sink.write(1, "a", b"1", b"2")
    exchange.advance(TIMEOUT_MS - 1_000)
    assert pending_count(exchange) == 2
    exchange.advance(2_000)
    assert pending_count(exchange) == 0
    assert sink.caller.take(Request.CHECK_TRANSACTION_STATE) == []
    assert "token a has 0 pending" in sink.refused(1, a=2)
    assert [r.message for r in caplog.records if "there was no decision in time" in r.message] == [
        "there was no decision in time about batch 1 of q-1: the halves of token a are dropped"
    ]


def test_a_check_that_an_operator_wants_does_not_end_an_epoch() -> None:
    exchange, sink = make(admin_from="everybody")
    sink.write(1, "a", b"1")
    assert sink.caller.ask(Request.ESCROW_CHECK, body=b"{}").code == 0
    exchange.advance(1_000)
    assert sink.decide(1, a=1)["count"] == 1


def test_a_large_batch_is_visible_when_its_decision_is_answered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("escrowmq.txn.epoch_decision._AT_ONCE_COUNT", 3)
    exchange, sink = make()
    sink.write(1, "a", *[b"%d" % n for n in range(10)])
    body = {"group": "PG", "epoch": "q-1/1", "tokens": {"a": 10}}
    asked = sink.caller.begin(Request.ESCROW_DECIDE, body=json.dumps(body).encode())
    assert not asked
    assert len(visible(exchange)) == 3
    exchange.advance(100)
    assert asked.now.code == 0
    assert len(visible(exchange)) == 10


def test_large_attempts_are_dropped_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escrowmq.txn.epoch_decision._AT_ONCE_COUNT", 3)
    exchange, sink = make()
    for token in ("a", "b"):
        sink.write(1, token, *[b"%d" % n for n in range(10)])
    assert sink.abandon(1, "a", "b") == 20
    assert pending_count(exchange) == 17
    assert "was abandoned" in sink.refused(1, b=10)
    exchange.advance(100)
    assert pending_count(exchange) == 0
    sink.write(1, "b", b"again")
    assert sink.decide(1, b=1)["decided"] == "now"
    assert visible(exchange) == [b"again"]


def test_a_batch_of_large_messages_is_dropped_step_by_step(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    exchange, sink = make()
    sink.write(1, "a", *[b"%d" % n for n in range(3)])
    halves = exchange.core.transactions.engine.halves
    half = halves.read_half(0)
    assert half is not None
    monkeypatch.setattr("escrowmq.txn.epoch_decision._AT_ONCE_SIZE", 2 * half.record_size)
    sink.abandon(1, "a")
    assert pending_count(exchange) == 1
    exchange.advance(100)
    assert pending_count(exchange) == 0


def test_a_decision_makes_no_half_of_a_later_batch_due() -> None:
    exchange, sink = make()
    sink.write(1, "a", b"1")
    sink.write(2, "a", b"2")
    pending = exchange.core.transactions.engine.halves.pending
    before = pending.row(1).due_ms
    sink.decide(1, a=1)
    assert pending.row(1).due_ms == before
    assert visible(exchange) == [b"1"]


def test_a_half_that_cannot_be_read_keeps_no_other_from_its_decision() -> None:
    exchange, sink = make()
    sink.write(1, "a", b"1", b"2")
    halves = exchange.core.transactions.engine.halves
    log_offset = halves.pending.log_offset(0)
    halves.recent.remove(0)
    segment = next(path for path in exchange.disk.files if path.startswith("commitlog/"))
    exchange.disk.flip_bit(segment, log_offset + 4)
    assert sink.decide(1, a=2)["decided"] == "now"
    assert (visible(exchange), list(halves.quarantine)) == ([b"2"], [0])


@pytest.mark.parametrize("is_clean", [True, False])
def test_what_a_crash_leaves_of_a_large_batch_is_done_at_the_start(
    monkeypatch: pytest.MonkeyPatch, *, is_clean: bool
) -> None:
    monkeypatch.setattr("escrowmq.txn.epoch_decision._AT_ONCE_COUNT", 3)
    exchange, sink = make()
    sink.write(1, "a", *[b"%d" % n for n in range(10)])
    sink.write(1, "zombie", b"x")
    body = {"group": "PG", "epoch": "q-1/1", "tokens": {"a": 10}}
    sink.caller.begin(Request.ESCROW_DECIDE, body=json.dumps(body).encode())
    exchange.reopen() if is_clean else exchange.crash()
    exchange.advance(1_000)
    assert sorted(visible(exchange)) == [b"%d" % n for n in range(10)]
    assert pending_count(exchange) == 0


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_new_start_knows_what_was_decided_and_what_was_written(*, is_clean: bool) -> None:
    exchange, sink = make()
    sink.write(1, "a", b"1")
    sink.decide(1, a=1)
    sink.write(2, "b", b"2")
    exchange.reopen() if is_clean else exchange.crash()
    sink = Sink(exchange)
    assert sink.decision(1) == {"decided": "before", "tokens": {"a": 1}, "count": 1}
    assert sink.decide(2, b=1)["decided"] == "now"
    assert visible(exchange) == [b"1", b"2"]


def test_a_decision_outlives_its_record(caplog: pytest.LogCaptureFixture) -> None:
    """Records are deleted for their age; the file of decisions stays."""
    exchange, sink = make()
    sink.write(1, "a", b"1")
    sink.decide(1, a=1)
    exchange.advance(10_000)
    assert exchange.disk.read("escrow/decisions") is not None
    exchange.reopen()
    sink = Sink(exchange)
    assert sink.decision(1)["tokens"] == {"a": 1}
    exchange.disk.replace("escrow/decisions", b"torn")
    exchange.crash()
    assert Sink(exchange).decision(1)["tokens"] == {"a": 1}
    assert "escrow/decisions" in caplog.text


def test_a_decision_with_sync_flush_is_answered_when_it_is_durable() -> None:
    settings = msgspec.structs.replace(SMALL, is_sync_flush=True)
    exchange = Exchange(store_settings=settings)
    exchange.create_topic("rows")
    sink = Sink(exchange)
    sink.write(1, "a", b"1")
    exchange.holds_syncs = True
    body = {"group": "PG", "epoch": "q-1/1", "tokens": {"a": 1}}
    asked = sink.caller.begin(Request.ESCROW_DECIDE, body=json.dumps(body).encode())
    told = sink.caller.begin(Request.ESCROW_DECISION, body=b'{"group": "PG", "epoch": "q-1/1"}')
    assert not asked
    assert not told
    while exchange.syncs:
        exchange.sync()
    assert json.loads(asked.now.body)["decided"] == "now"
    assert json.loads(told.now.body)["decided"] == "before"


def test_without_power_an_unsynced_decision_is_none() -> None:
    settings = msgspec.structs.replace(SMALL, is_sync_flush=True)
    exchange = Exchange(store_settings=settings)
    exchange.create_topic("rows")
    sink = Sink(exchange)
    sink.write(1, "a", b"1")
    exchange.holds_syncs = True
    body = {"group": "PG", "epoch": "q-1/1", "tokens": {"a": 1}}
    sink.caller.begin(Request.ESCROW_DECIDE, body=json.dumps(body).encode())
    exchange.crash(CrashLoss.ALL)
    exchange.holds_syncs = False
    sink = Sink(exchange)
    assert sink.decision(1)["decided"] == "no"
    assert sink.decide(1, a=1)["decided"] == "now"
    assert visible(exchange) == [b"1"]


def test_clients_cannot_write_decisions() -> None:
    _, sink = make()
    sink.decide(1)
    reply = sink.caller.send("rmq_sys_ESCROW_DECISIONS", b"{}")
    assert reply.code != 0


def test_a_decision_that_cannot_be_stored_changes_nothing() -> None:
    exchange, sink = make()
    sink.write(1, "a", b"1")
    sink.decide(0)  # it makes a topic, which wants room for its table
    exchange.disk.room = exchange.disk.used
    while sink.caller.send("rows", bytes(60_000)).code == 0:
        pass
    other = Sink(exchange, "q-2")
    reply = other.ask(Request.ESCROW_DECIDE, 1, tokens={})
    assert (reply.code, "disk" in (reply.remark or "")) == (14, True)
    exchange.disk.room = None
    exchange.advance(20_000)
    assert other.decision(1)["decided"] == "no"
    assert other.decide(1)["decided"] == "now"


QUERY = StreamQuery("PG", "q")


def decider_of(ground: Ground) -> EpochDecider:
    return EpochDecider(ground.engine, ground.store, host=HOST)


def decided(ground: Ground) -> EpochDecider:
    decider = decider_of(ground)
    decider.decide(QUERY, 1, {}, ground.now_ms)
    return decider


def test_decisions_whose_records_are_gone_are_known_from_the_file(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "escrowmq.txn.epoch_decision")
    saved = decided(Ground()).save()
    ground = Ground()
    decider_of(ground).load(saved, ground.now_ms)
    assert ground.engine.halves.epochs.decision(QUERY, 1) == LastDecision(1, {})
    assert caplog.text == "", "no half is ended"


def test_the_file_is_written_when_there_is_a_new_decision_alone() -> None:
    ground = Ground()
    assert decider_of(ground).save() is None
    decider = decided(ground)
    assert decider.save() is not None
    assert decider.save() is None
    decider.decide(QUERY, 2, {}, ground.now_ms)
    assert decider.save() is not None


def test_a_start_logs_how_many_messages_of_decided_batches_it_ends(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "escrowmq.txn.epoch_decision")
    saved = decided(Ground()).save()
    ground = Ground()
    for number in range(2):
        ground.prepare(b"%d" % number, escrowEpoch="q/1", escrowToken="a")
    decider_of(ground).load(saved, ground.now_ms)
    assert caplog.messages == ["2 halves of decided batches are ended now"]


def test_a_decision_that_ends_nothing_leaves_the_reserve_of_a_full_disk_to_ends() -> None:
    exchange, sink = make()
    half = sink.caller.prepare("rows", b"a transaction")
    sink.write(1, "a", b"1")
    sink.write(9, "a", b"later")
    exchange.disk.room = exchange.disk.used
    while sink.caller.send("rows", bytes(3_000)).code == 0:
        pass
    for batch in (0, 0, 0):
        assert sink.ask(Request.ESCROW_DECIDE, batch, tokens={}).code != 0
    assert sink.decision(0)["decided"] == "no"
    assert sink.decide(1, a=1)["decided"] == "now"
    assert sink.caller.end(half, COMMIT).code == 0
    exchange.disk.room = None
    exchange.advance(20_000)
    assert visible(exchange)[-2:] == [b"1", b"a transaction"]


def test_a_token_without_halves_is_not_kept() -> None:
    exchange, sink = make()
    sink.write(1, "b", b"1")
    assert sink.decide(1, a=0, b=1)["tokens"] == {"b": 1}
    assert sink.decision(1)["tokens"] == {"b": 1}
    exchange.crash()
    sink.caller = exchange.connect()
    assert sink.decision(1)["tokens"] == {"b": 1}


def test_decisions_of_one_group_make_none_of_another_forgotten() -> None:
    _, sink = make()
    sink.write(5, "a", b"batch 5")
    sink.decide(5, a=1)
    for number in range(10_001):
        body = {"group": "other", "epoch": f"x{number}/0", "tokens": {}}
        assert sink.caller.ask(Request.ESCROW_DECIDE, body=json.dumps(body).encode()).code == 0
    assert sink.decision(5)["tokens"] == {"a": 1}
