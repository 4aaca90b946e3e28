"""What transactions of ours can do beyond RocketMQ's (docs/extensions.md)."""

from __future__ import annotations

import msgspec
import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Request
from escrowmq.base.command import Command
from escrowmq.base.fixed_limits import BUNDLE_MESSAGES_MAX
from escrowmq.base.message import Topic
from escrowmq.codec.hashes import java_hash
from escrowmq.codec.ids import offset_id
from escrowmq.testing.disk import CrashLoss
from escrowmq.txn.state import OutcomeLedger
from tests.harness.exchange import COMMIT, ROLLBACK, SMALL, Caller, Exchange, Half, half_of_check

CHECK = Request.CHECK_TRANSACTION_STATE
SYNCED = msgspec.structs.replace(SMALL, is_sync_flush=True)


def three(producer: Caller, name: str = "tx-1") -> list[Half]:
    """One transaction over two topics."""
    return [
        producer.prepare(topic, body, escrowTransaction=name)
        for topic, body in [("T", b"a"), ("U", b"b"), ("T", b"c")]
    ]


def seen(exchange: Exchange) -> tuple[list[bytes], list[bytes]]:
    reader = exchange.connect()
    return reader.bodies("T"), reader.bodies("U")


ALL = ([b"a", b"c"], [b"b"])
NONE: tuple[list[bytes], list[bytes]] = ([], [])


# -- several messages ----------------------------------------------------------------------------


@pytest.mark.parametrize("named", [0, 1, 2])
def test_end_of_any_message_ends_all_of_its_transaction(named: int) -> None:
    exchange = Exchange()
    producer = exchange.connect()
    halves = three(producer)
    assert seen(exchange) == NONE
    reply = producer.end(halves[named], COMMIT)
    assert reply.code == 0
    assert reply.ext == {
        "escrowOutcome": "committed",
        "escrowDurability": "memory",
        "escrowCount": "3",
    }
    assert seen(exchange) == ALL
    for half in halves:
        assert producer.end(half, COMMIT).code == 0
        assert producer.end(half, ROLLBACK).code == 200
    assert seen(exchange) == ALL


def test_rollback_drops_all_messages() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    halves = three(producer)
    assert producer.end(halves[2], ROLLBACK).code == 0
    assert [producer.end(half, COMMIT).code for half in halves] == [201] * 3
    assert seen(exchange) == NONE


def test_end_with_another_count_of_messages_settles_nothing() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    halves = three(producer)
    reply = producer.end(halves[0], COMMIT, fields={"escrowCount": "4"})
    assert reply.code == 1
    assert "3 messages" in (reply.remark or "")
    assert seen(exchange) == NONE
    assert producer.end(halves[0], COMMIT, fields={"escrowCount": "3"}).code == 0
    assert seen(exchange) == ALL


def test_one_check_asks_for_all_messages_and_its_answer_ends_all() -> None:
    exchange = Exchange()
    producer = exchange.connect("client")
    producer.heartbeat(producer="PG")
    three(producer)
    exchange.advance(6_100)
    (check,) = producer.take(CHECK)
    exchange.advance(25_000)
    assert producer.take(CHECK) == []
    assert producer.end(half_of_check(check), COMMIT, is_from_check=True).code == 0
    assert seen(exchange) == ALL
    exchange.advance(100_000)
    assert producer.take(CHECK) == []


def test_half_that_comes_after_the_end_is_refused() -> None:
    producer = Exchange().connect()
    halves = three(producer)
    producer.end(halves[0], ROLLBACK)
    reply = producer.send("T", TRAN_MSG="true", PGROUP="PG", escrowTransaction="tx-1")
    assert reply.code == 13
    assert "tx-1 is ROLLED_BACK already" in (reply.remark or "")
    other = producer.send("T", TRAN_MSG="true", PGROUP="OTHER", escrowTransaction="tx-1")
    assert other.code == 0, "names of one group are another's business"


@pytest.mark.parametrize("is_pictured", [False, True], ids=["from the log", "from a snapshot"])
@pytest.mark.parametrize(
    ("verdict", "word"), [(COMMIT, "COMMITTED"), (ROLLBACK, "ROLLED_BACK")], ids=["commit", "roll"]
)
def test_half_that_comes_after_the_end_is_refused_by_the_next_process_too(
    verdict: int, word: str, is_pictured: bool
) -> None:
    """It was taken for the first of another transaction: committed by a check, it was visible
    without those of its own that had been rolled back."""
    exchange = Exchange(store_settings=SYNCED)
    transactions = exchange.core.transactions
    transactions.snapshot_ms, transactions.snapshot_min = (
        (1_000, 1) if is_pictured else (1 << 60, 9)
    )
    producer = exchange.connect()
    assert producer.end(three(producer)[0], verdict).code == 0
    producer.prepare("T")
    exchange.advance(10_000)
    exchange.crash(CrashLoss.PREFIX)
    producer = exchange.connect()
    reply = producer.send("T", TRAN_MSG="true", PGROUP="PG", escrowTransaction="tx-1")
    assert reply.code == 13
    assert f"tx-1 is {word} already" in (reply.remark or "")
    other = producer.send("T", TRAN_MSG="true", PGROUP="OTHER", escrowTransaction="tx-1")
    assert other.code == 0, "names of one group are another's business"


def test_transaction_has_a_bounded_number_of_messages_and_a_short_name() -> None:
    producer = Exchange().connect()
    for _ in range(BUNDLE_MESSAGES_MAX):
        producer.prepare("T", b"m", escrowTransaction="t")
    reply = producer.send("T", TRAN_MSG="true", PGROUP="PG", escrowTransaction="t")
    assert reply.code == 13
    assert str(BUNDLE_MESSAGES_MAX) in (reply.remark or "")
    reply = producer.send("T", TRAN_MSG="true", PGROUP="PG", escrowTransaction="t" * 65)
    assert reply.code == 13


def test_transaction_is_whole_after_a_restart() -> None:
    exchange = Exchange()
    halves = three(exchange.connect())
    exchange.reopen()
    assert seen(exchange) == NONE
    assert exchange.connect().end(halves[1], COMMIT, fields={"escrowCount": "3"}).code == 0
    assert seen(exchange) == ALL


def test_transaction_that_nobody_settles_is_given_up_whole() -> None:
    exchange = Exchange(BrokerSettings(transaction_checks_max=2))
    producer = exchange.connect("client")
    producer.heartbeat(producer="PG")
    three(producer)
    exchange.advance(300_000)
    assert len(producer.take(CHECK)) == 2
    assert exchange.connect().bodies(Topic.CHECK_MAX_TIME) == [b"a", b"b", b"c"]
    assert seen(exchange) == NONE


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(200))
def test_transaction_is_visible_whole_or_not_at_all_after_a_loss_of_power(seed: int) -> None:
    exchange = Exchange(store_settings=SYNCED, seed=seed)
    halves = three(exchange.connect())
    exchange.holds_syncs = True
    pending = exchange.connect().begin_end(halves[0], COMMIT)
    assert not pending
    exchange.holds_syncs = False
    exchange.crash(CrashLoss.SECTORS, seed=seed)
    assert seen(exchange) in (ALL, NONE)
    if seen(exchange) == NONE:
        assert exchange.connect().end(halves[2], COMMIT).code == 0
    assert seen(exchange) == ALL
    exchange.reopen()
    assert seen(exchange) == ALL


# -- delay and order -----------------------------------------------------------------------------


def test_delay_of_a_half_counts_from_the_commit_on() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    half = producer.prepare("T", b"later", DELAY="3", escrowDelay="true")
    exchange.advance(60_000)
    assert producer.end(half, COMMIT).code == 0
    exchange.advance(9_000)
    assert producer.bodies("T") == []
    exchange.advance(2_000)
    assert producer.bodies("T") == [b"later"]
    assert producer.end(half, COMMIT).code == 0
    exchange.reopen()
    exchange.advance(20_000)
    assert exchange.connect().bodies("T") == [b"later"]


def test_end_of_a_delayed_half_that_nobody_remembers_is_told_the_outcome() -> None:
    """The record that was delivered does not say of which half it is, as others do."""
    exchange = Exchange()
    producer = exchange.connect()
    producer.send("U", b"so that the half has another place than 0")
    half = producer.prepare("T", b"later", DELAY="3", escrowDelay="true")
    assert producer.end(half, COMMIT).code == 0
    exchange.advance(11_000)
    assert producer.bodies("T") == [b"later"]
    # As when so many have ended since.
    exchange.core.transactions.engine.halves.ledger = OutcomeLedger()
    reply = producer.end(half, COMMIT)
    assert (reply.code, (reply.ext or {})["escrowOutcome"]) == (0, "committed")


def test_delivery_time_of_a_half_is_kept() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    at_ms = exchange.now_ms + 30_000
    half = producer.prepare("T", b"later", TIMER_DELIVER_MS=str(at_ms), escrowDelay="true")
    past = producer.prepare("T", b"past", TIMER_DELIVER_MS=str(at_ms), escrowDelay="true")
    producer.end(half, COMMIT)
    exchange.advance(29_000)
    assert producer.bodies("T") == []
    exchange.advance(2_000)
    assert producer.bodies("T") == [b"later"]
    producer.end(past, COMMIT)
    assert producer.bodies("T") == [b"later", b"past"]


def test_delivery_time_that_was_accepted_is_kept_when_it_is_too_far_by_now() -> None:
    """The half came while the clock was days ahead, or the bound was lowered since. It was
    delivered at its commit (the simulator's seed 578)."""
    exchange = Exchange(BrokerSettings(timer_delay_max_s=86_400))
    producer = exchange.connect()
    at_ms = exchange.now_ms + 80_000_000
    half = producer.prepare("T", b"later", TIMER_DELIVER_MS=str(at_ms), escrowDelay="true")
    exchange.core.broker.settings.timer_delay_max_s = 3_600
    assert producer.end(half, COMMIT).code == 0
    assert producer.bodies("T") == []
    exchange.reopen()
    exchange.advance(79_000_000)
    assert exchange.connect().bodies("T") == []
    exchange.advance(1_002_000)
    assert exchange.connect().bodies("T") == [b"later"]


def test_delay_is_dropped_when_the_sender_does_not_mean_the_commit() -> None:
    producer = Exchange().connect()
    half = producer.prepare("T", b"now", DELAY="3")
    producer.end(half, COMMIT)
    assert producer.bodies("T") == [b"now"]


def test_delay_that_cannot_be_kept_is_refused_before_anything_is_stored() -> None:
    exchange = Exchange()
    reply = exchange.connect().send(
        "T", TRAN_MSG="true", PGROUP="PG", TIMER_DELAY_SEC="99999999", escrowDelay="true"
    )
    assert reply.code == 13
    assert exchange.core.broker.store.bounds(Topic.HALF, 0) == (0, 0)


def test_queue_is_chosen_by_the_order_key_at_the_commit() -> None:
    exchange = Exchange()
    exchange.create_topic("T", queues=5)
    producer = exchange.connect()
    halves = [
        producer.prepare("T", b"%d" % n, queue_id=n % 5, escrowOrderKey="customer 7")
        for n in range(6)
    ]
    for n in (3, 0, 5, 1):
        producer.end(halves[n], COMMIT)
    queue_id = abs(java_hash("customer 7")) % 5
    assert producer.bodies("T", queue_id) == [b"3", b"0", b"5", b"1"]


# -- signed ids ----------------------------------------------------------------------------------


def test_whoever_has_the_id_settles_the_transaction_after_any_restart() -> None:
    exchange = Exchange()
    half = exchange.connect().prepare("T", b"paid", wants_id=True)
    assert half.escrow_id
    exchange.crash(CrashLoss.NOTHING)
    other = exchange.connect()
    assert other.end_by_id(half.escrow_id, COMMIT).code == 0
    assert other.end_by_id(half.escrow_id, ROLLBACK).code == 200
    assert other.bodies("T") == [b"paid"]


def test_id_is_given_only_to_who_asks_for_it() -> None:
    assert Exchange().connect().prepare("T").escrow_id == ""


@pytest.mark.parametrize("bad", ["", "x", "A" * 60, "A" * 600, "é" * 50, "====", "-_-_" * 20])
def test_id_that_is_none_is_refused(bad: str) -> None:
    producer = Exchange().connect()
    half = producer.prepare("T", b"paid", wants_id=True)
    assert producer.end_by_id(bad, COMMIT).code in (1, 16)
    changed = half.escrow_id[:20] + ("B" if half.escrow_id[20] == "A" else "A")
    assert producer.end_by_id(changed + half.escrow_id[21:], COMMIT).code == 16
    assert producer.bodies("T") == []


def test_id_of_another_store_is_refused() -> None:
    half = Exchange(seed=1).connect().prepare("T", b"paid", wants_id=True)
    other = Exchange(seed=2).connect()
    mine = other.prepare("T", b"paid", wants_id=True)
    assert other.end_by_id(half.escrow_id, COMMIT).code == 16
    assert other.end_by_id(mine.escrow_id, COMMIT).code == 0


def test_id_runs_out_when_the_log_forgets_the_half() -> None:
    exchange = Exchange(store_settings=msgspec.structs.replace(SMALL, reserved_hours=1))
    half = exchange.connect().prepare("T", b"paid", wants_id=True)
    exchange.now_ms += 3_700_000
    reply = exchange.connect().end_by_id(half.escrow_id, COMMIT)
    assert reply.code == 16
    assert "expired" in (reply.remark or "")


def test_keys_are_private_and_a_rotation_leaves_old_ids_good() -> None:
    exchange = Exchange()
    producer = exchange.connect(host="127.0.0.1")
    first = producer.prepare("T", b"1", wants_id=True)
    reply = producer.ask(Request.ESCROW_KEY_ROTATE, body=b'{"reason":"a key was seen"}')
    assert reply.body == b'{"key":2}'
    second = producer.prepare("T", b"2", wants_id=True)
    assert producer.end_by_id(first.escrow_id, COMMIT).code == 0
    assert producer.end_by_id(second.escrow_id, COMMIT).code == 0
    assert producer.bodies("T") == [b"1", b"2"]


def test_no_half_is_stored_when_the_key_for_its_id_cannot_be_kept() -> None:
    exchange = Exchange()
    exchange.create_topic("T")
    producer = exchange.connect()
    exchange.disk.room = 0
    ext = {"escrowWantsId": "true"}
    reply = producer.send("T", TRAN_MSG="true", PGROUP="PG", fields=ext)
    assert reply.code != 0
    assert exchange.core.broker.store.bounds(Topic.HALF, 0) == (0, 0)


# -- safety --------------------------------------------------------------------------------------


def safety_of(reply: Command) -> tuple[str | None, str | None]:
    ext = reply.ext or {}
    return ext.get("escrowDurability"), ext.get("escrowCopies")


@pytest.mark.parametrize("is_sync", [True, False])
def test_a_sender_that_asks_is_told_how_safe_its_message_is(is_sync: bool) -> None:
    store = msgspec.structs.replace(SMALL, is_sync_flush=is_sync)
    producer = Exchange(store_settings=store).connect()
    wants = {"escrowWantsSafety": "true"}
    kept = "disk" if is_sync else "memory"
    assert safety_of(producer.send("T", fields=wants)) == (kept, None)
    assert safety_of(producer.send("T", fields=wants, WAIT="false")) == ("memory", None)
    assert safety_of(producer.send("T", fields=wants, TRAN_MSG="true", PGROUP="PG")) == (kept, None)
    assert safety_of(producer.send("T")) == (None, None)
    assert safety_of(producer.send("T", fields={"escrowWantsSafety": "no"})) == (None, None)


# -- outcomes ------------------------------------------------------------------------------------


def test_end_of_one_that_was_given_up_is_told_so() -> None:
    exchange = Exchange(BrokerSettings(transaction_checks_max=1))
    producer = exchange.connect("client")
    producer.heartbeat(producer="PG")
    half = producer.prepare("T", b"late")
    exchange.advance(100_000)
    reply = producer.end(half, COMMIT)
    assert (reply.code, (reply.ext or {})["escrowOutcome"]) == (202, "expired")


def test_too_many_pending_transactions_are_refused_and_their_ends_are_served() -> None:
    producer = Exchange(BrokerSettings(pending_max=2)).connect()
    halves = [producer.prepare("T", b"1"), producer.prepare("T", b"2")]
    reply = producer.send("T", TRAN_MSG="true", PGROUP="PG")
    assert reply.code == 2
    assert "escrowPendingMax" in (reply.remark or "")
    assert producer.end(halves[0], COMMIT).code == 0
    producer.prepare("T", b"3")


# -- checks --------------------------------------------------------------------------------------


def test_checks_delivered_are_remembered_over_a_restart() -> None:
    exchange = Exchange(BrokerSettings(transaction_checks_max=3))
    producer = exchange.connect("client")
    producer.heartbeat(producer="PG")
    producer.prepare("T", b"late")
    exchange.advance(40_000)
    assert len(producer.take(CHECK)) == 2
    exchange.crash(CrashLoss.NOTHING)
    producer = exchange.connect("client")
    producer.heartbeat(producer="PG")
    exchange.advance(200_000)
    (check,) = producer.take(CHECK)
    assert half_of_check(check).topic == Topic.HALF
    assert exchange.connect().bodies(Topic.CHECK_MAX_TIME) == [b"late"]


def test_members_that_publish_the_topic_are_asked_before_others() -> None:
    exchange = Exchange()
    others = [exchange.connect(f"other-{n}") for n in range(3)]
    publisher, origin = exchange.connect("publisher"), exchange.connect("origin")
    for caller in (*others, publisher, origin):
        caller.heartbeat(producer="PG")
    publisher.end(publisher.prepare("T", b"before"), COMMIT)
    origin.prepare("T", b"asked about")
    order = []
    for _ in range(5):
        exchange.advance(30_100)
        order += [c.client_id for c in (*others, publisher, origin) if c.take(CHECK)]
    assert order[:2] == ["origin", "publisher"]
    assert sorted(order[2:]) == ["other-0", "other-1", "other-2"]


# -- pressure ------------------------------------------------------------------------------------


def test_halves_are_shed_before_sends_and_ends_never() -> None:
    exchange = Exchange()
    producer = exchange.connect()
    first, second = producer.prepare("T", b"1"), producer.prepare("T", b"2")
    exchange.waited_ms = 51
    reply = producer.send("T", TRAN_MSG="true", PGROUP="PG")
    assert reply.code == 2
    assert "[TIMEOUT_CLEAN_QUEUE]broker busy" in (reply.remark or "")
    assert producer.send("T", b"plain").code == 0
    assert producer.end(first, COMMIT).code == 0
    exchange.waited_ms = 201
    assert producer.send("T", b"plain").code == 2
    assert producer.end(second, COMMIT).code == 0
    exchange.waited_ms = 0
    assert producer.send("T", TRAN_MSG="true", PGROUP="PG").code == 0
    assert producer.bodies("T") == [b"plain", b"1", b"2"]


def test_nothing_is_shed_when_the_setting_says_so() -> None:
    exchange = Exchange(BrokerSettings(sheds_load=False))
    exchange.waited_ms = 10_000
    assert exchange.connect().send("T", TRAN_MSG="true", PGROUP="PG").code == 0


@pytest.mark.parametrize("verdict", [COMMIT, ROLLBACK])
def test_sender_of_one_that_was_resumed_is_told_how_that_ended(verdict: int) -> None:
    exchange = Exchange(BrokerSettings(transaction_checks_max=1))
    producer = exchange.connect()
    producer.heartbeat(producer="PG")
    half = producer.prepare("T", b"paid")
    exchange.advance(6_100 + 30_100)
    (kept,) = producer.messages(Topic.CHECK_MAX_TIME)
    producer.take()
    ext = {"msgId": offset_id(kept.store_host, kept.log_offset)}
    assert producer.ask(Request.RESUME_CHECK_HALF_MESSAGE, ext).code == 0
    exchange.advance(6_100)
    (check,) = producer.take(CHECK)
    producer.end(half_of_check(check), verdict, is_from_check=True)
    wanted = {COMMIT: "committed", ROLLBACK: "rolled_back"}[verdict]
    reply = producer.end(half, verdict)
    assert (reply.code, (reply.ext or {})["escrowOutcome"]) == (0, wanted)
