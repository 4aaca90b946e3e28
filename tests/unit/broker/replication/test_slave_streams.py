"""The master's end at the replication port: what senders wait for, and who is closed out."""

from __future__ import annotations

import pytest

from escrowmq.base.codes import Response
from escrowmq.base.effects import Close
from escrowmq.base.replica_settings import ReplicaSettings
from escrowmq.base.store_settings import StoreSettings
from escrowmq.base.wire import Wire
from escrowmq.replica.replicas import CONNECTIONS_MAX
from tests.harness.exchange import COMMIT, SMALL, Exchange
from tests.harness.pair import Pair

SYNC = ReplicaSettings(role="SYNC_MASTER", in_sync_copies=2)


def alone(replica: ReplicaSettings) -> Exchange:
    return Exchange(replica=replica)


# -- what a put answers ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "replica",
    [
        ReplicaSettings(),
        ReplicaSettings(role="SYNC_MASTER"),
        ReplicaSettings(role="ASYNC_MASTER", in_sync_copies=3),
    ],
)
def test_without_copies_to_wait_for_senders_are_answered_at_once(replica: ReplicaSettings) -> None:
    assert alone(replica).connect().send("orders").code == Response.SUCCESS


def test_without_a_slave_a_sender_is_told_so_and_the_message_is_delivered() -> None:
    broker = alone(SYNC)
    caller = broker.connect()
    waiting = caller.begin_send("orders", b"kept")
    broker.advance(2_999)
    assert not waiting
    broker.advance(2)
    assert waiting.now.code == Response.FLUSH_SLAVE_TIMEOUT
    assert caller.bodies("orders", int((waiting.now.ext or {})["queueId"])) == [b"kept"]


def test_a_half_that_no_slave_has_is_no_success() -> None:
    broker = alone(SYNC)
    caller = broker.connect()
    caller.heartbeat(producer="p")
    waiting = caller.begin_send("orders", b"half", TRAN_MSG="true", PGROUP="p", UNIQ_KEY="U1")
    broker.advance(3_001)
    assert waiting.now.code == Response.FLUSH_SLAVE_TIMEOUT


def test_who_does_not_want_to_wait_does_not() -> None:
    reply = alone(SYNC).connect().send("orders", WAIT="false")
    assert reply.code == Response.SUCCESS


def test_with_a_slave_senders_are_answered_when_it_has_their_messages() -> None:
    pair = Pair(master=SYNC)
    pair.introduce()
    pair.advance(100)
    caller = pair.master.connect()
    caller.heartbeat(producer="p")
    assert caller.send("orders").code == Response.SUCCESS
    assert caller.send("orders").code == Response.SUCCESS
    half = caller.prepare("orders", b"half", group="p")
    assert caller.end(half, COMMIT).code == Response.SUCCESS
    ends = pair.master.core.broker.store.ends
    assert ends.confirmed == pair.slave.core.broker.store.end_offset


def test_a_slave_that_is_back_counts_within_ten_seconds() -> None:
    pair = Pair(master=SYNC)
    pair.introduce()
    pair.advance(100)
    pair.cut()
    caller = pair.master.connect()
    waiting = caller.begin_send("orders")
    pair.advance(3_100)
    assert waiting.now.code == Response.FLUSH_SLAVE_TIMEOUT
    pair.mend()
    pair.advance(10_000)
    assert caller.send("orders").code == Response.SUCCESS


def test_three_copies_need_two_slaves() -> None:
    pair = Pair(master=ReplicaSettings(role="SYNC_MASTER", in_sync_copies=3))
    pair.introduce()
    pair.advance(100)
    waiting = pair.master.connect().begin_send("orders")
    pair.advance(3_100)
    assert waiting.now.code == Response.FLUSH_SLAVE_TIMEOUT


def test_with_sync_flush_both_are_waited_for() -> None:
    settings = StoreSettings(
        is_sync_flush=True,
        log_segment_size=SMALL.log_segment_size,
        queue_segment_size=SMALL.queue_segment_size,
        index_slots_count=SMALL.index_slots_count,
        index_entries_max=SMALL.index_entries_max,
    )
    pair = Pair(master=SYNC, store=settings)
    pair.introduce()
    pair.advance(100)
    pair.master.holds_syncs = True
    waiting = pair.master.connect().begin_send("orders")
    pair.advance(100)
    assert not waiting
    pair.master.sync()
    assert waiting.now.code == Response.SUCCESS


# -- strangers ------------------------------------------------------------------------------------


def stranger(broker: Exchange, peer: int, data: bytes = b"") -> None:
    """Somebody comes in by the replication port, and says something."""
    broker.core.connected(peer, f"10.9.{peer >> 8}.{peer & 255}", 4_000, broker.now_ms, Wire.HA)
    if data:
        broker.core.receive(peer, data, broker.now_ms)


def closed(broker: Exchange) -> list[int]:
    """Who is to be closed by now."""
    return [effect.peer for effect in broker.core.take_effects() if isinstance(effect, Close)]


@pytest.mark.parametrize(
    "data",
    [b"GET / HTTP/1.1\r\n\r\n", b"\x7f" + b"\xff" * 7, b"\xff" * 8, b"\x00" * 7 + b"\x01" * 9],
)
def test_a_stranger_is_no_copy(data: bytes) -> None:
    broker = alone(SYNC)
    stranger(broker, 900, data)
    assert closed(broker) == [900]
    waiting = broker.connect().begin_send("orders")
    broker.advance(3_001)
    assert waiting.now.code == Response.FLUSH_SLAVE_TIMEOUT


def test_strangers_are_bounded_in_number_and_time() -> None:
    broker = alone(ReplicaSettings())
    for nth in range(CONNECTIONS_MAX + 5):
        stranger(broker, 900 + nth)
    assert closed(broker) == [900, 901, 902, 903, 904]
    broker.now_ms += 20_000
    broker.core.wake(broker.now_ms)
    assert len(closed(broker)) == CONNECTIONS_MAX


def test_questions_are_not_answered_there() -> None:
    broker = alone(ReplicaSettings())
    stranger(broker, 900, bytes(8))
    dialogue = broker.core.broker.peers.by_id[900].dialogue
    dialogue.send_request(1, 1, None, b"", is_one_way=True)
    dialogue.lift_stranger_limits()
    assert closed(broker) == []
