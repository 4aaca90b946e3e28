"""What a master says that was replaced, and does not know it yet: nothing that its successor would
have to take back."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from escrowmq.base.codes import Request, Response
from escrowmq.base.fixed_limits import SERVED_AT_ONCE_MAX
from escrowmq.codec.signed_id import MAC_SIZE, SignedId, encode_signed_id, pack_signed_id
from tests.harness.caller import COMMIT, Caller, Half, Pending

from .test_failover import formed, prepared, sent, store_of

QUEUE = {"topic": "orders", "queueId": "0", "consumerGroup": "CG"}
NEW_KEY = SignedId(
    key_number=9, queue_offset=0, log_offset=0, message_crc=0, expires_s=1 << 31, broker_name="b"
)
SIGNED = {
    "escrowId": encode_signed_id(pack_signed_id(NEW_KEY), bytes(MAC_SIZE)),
    "commitOrRollback": "8",
}
BATCH = {"group": "PG", "epoch": "q/1"}
DENIED: dict[str, tuple[Callable[[Caller, Half], Pending], int]] = {
    "a half": (
        lambda c, _: c.begin_end(Half("orders", "PG", 7, 1_000_000, "key"), COMMIT),
        Response.SYSTEM_ERROR,
    ),
    "more messages of a transaction": (
        lambda c, half: c.begin_end(half, COMMIT, is_from_check=True, fields={"escrowCount": "2"}),
        Response.SYSTEM_ERROR,
    ),
    "the outcome of a half whose time is over": (
        lambda c, half: c.begin_end(half, COMMIT),
        Response.ILLEGAL_OPERATION,
    ),
    "a new signing key": (
        lambda c, _: c.begin(Request.END_TRANSACTION, SIGNED),
        Response.NO_PERMISSION,
    ),
    "the halves of a batch": (
        lambda c, _: c.begin(
            Request.ESCROW_DECIDE, body=msgspec.json.encode(BATCH | {"tokens": {"t": 1}})
        ),
        Response.SYSTEM_ERROR,
    ),
    "the decision of a batch": (
        lambda c, _: c.begin(Request.ESCROW_DECISION, body=msgspec.json.encode(BATCH)),
        Response.SUCCESS,
    ),
    "what was read": (lambda c, _: c.begin_pull("orders", 7), Response.PULL_OFFSET_MOVED),
    "what was read of a new queue": (
        lambda c, _: c.begin_pull("orders", 7, queue_id=1),
        Response.PULL_OFFSET_MOVED,
    ),
    "an offset": (
        lambda c, _: c.begin(Request.QUERY_CONSUMER_OFFSET, QUEUE | {"setZeroIfNotFound": "false"}),
        Response.QUERY_NOT_FOUND,
    ),
    "an offset that is 0 otherwise": (
        lambda c, _: c.begin(Request.QUERY_CONSUMER_OFFSET, QUEUE),
        Response.SUCCESS,
    ),
}


@pytest.mark.parametrize("what", DENIED)
def test_a_replaced_master_does_not_deny_what_its_successor_has(what: str) -> None:
    """It does not know yet that it was replaced, and is asked what its successor may have."""
    ask, code = DENIED[what]
    world, master = formed()
    assert master.broker is not None
    caller = master.broker.connect()
    sent(world, master, b"one")
    half = prepared(world, caller, immunity="1")
    first = caller.begin_pull("orders")  # the group is made, and in the tables of all
    world.until(lambda: first)
    world.advance(7_000)  # now the half is to be checked
    world.isolate(master.name)
    world.without_authority.add(master.name)
    stale = master.broker.connect()
    new = world.until(lambda: world.serving is not master and world.serving)
    denied = ask(new.broker.connect(), half)
    assert not denied
    world.until(lambda: denied)
    assert denied.now.code == code, denied.now
    assert stale.closed is None
    reply = ask(stale, half)
    world.advance(5_000)
    assert reply.now.code == Response.FLUSH_SLAVE_TIMEOUT, reply.now


def test_denials_of_one_turn_share_a_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever asks for many unknown offsets at once does not fill the log."""
    world, master = formed()
    sent(world, master, b"one")
    assert master.broker is not None
    caller, frames = master.broker.connect(), list[bytes]()
    count = 1 + SERVED_AT_ONCE_MAX
    with monkeypatch.context() as patch:
        patch.setattr(caller.exchange, "feed", lambda _, data: frames.append(data))
        denied = [caller.begin(Request.QUERY_CONSUMER_OFFSET, QUEUE) for _ in range(count)]
    begin = store_of(master).end_offset
    caller.exchange.feed(caller, frames[0])
    mark_size = store_of(master).end_offset - begin
    caller.exchange.feed(caller, b"".join(frames[1:]))
    assert store_of(master).end_offset == begin + 2 * mark_size
    world.until(lambda: all(denied))


def test_a_copy_takes_no_offset_and_denies_none_and_locks_nothing() -> None:
    """It was the master a moment ago, and clients ask it until they have new routes."""
    world, master = formed()
    sent(world, master, b"one")
    copy = next(host for host in world.hosts.values() if host is not master)
    assert copy.broker is not None
    caller = copy.broker.connect()
    lock = {"consumerGroup": "CG", "clientId": "x", "mqSet": [QUEUE | {"brokerName": "b"}]}
    replies = [
        caller.begin(Request.UPDATE_CONSUMER_OFFSET, QUEUE | {"commitOffset": "1"}),
        caller.begin(Request.QUERY_CONSUMER_OFFSET, QUEUE | {"setZeroIfNotFound": "false"}),
        caller.begin(Request.LOCK_BATCH_MQ, body=msgspec.json.encode(lock)),
        caller.begin(Request.UNLOCK_BATCH_MQ, body=msgspec.json.encode(lock)),
    ]
    world.until(lambda: all(replies))
    for reply in replies:
        assert reply.now.code == Response.SERVICE_NOT_AVAILABLE
        assert "the master is" in (reply.now.remark or "")
    assert copy.broker.core.broker.offsets.get("CG", "orders", 0) == -1


def test_denials_do_not_fill_the_log_however_many_there_are() -> None:
    world, master = formed()
    sent(world, master, b"one")
    assert master.broker is not None
    caller = master.broker.connect()
    nothing = Half("orders", "PG", 7, 1_000_000, "key")
    begin = store_of(master).end_offset
    for _ in range(500):
        caller.begin_end(nothing, COMMIT, is_one_way=True)
    assert store_of(master).end_offset == begin, "nobody waits for the answer"
    denied = [caller.begin_end(nothing, COMMIT) for _ in range(1_500)]
    most = store_of(master).end_offset
    denied += [caller.begin_end(nothing, COMMIT) for _ in range(500)]
    assert store_of(master).end_offset == most
    world.advance(200)
    assert all(denied)
    assert {one.now.code for one in denied} == {Response.SYSTEM_ERROR}
    sent(world, master, b"two")


def test_a_denial_that_waits_for_the_next_mark_is_confirmed_as_well() -> None:
    world, master = formed()
    sent(world, master, b"one")
    assert master.broker is not None
    caller = master.broker.connect()
    nothing = Half("orders", "PG", 7, 1_000_000, "key")
    first = [caller.begin_end(nothing, COMMIT) for _ in range(1_001)]
    world.until(lambda: all(first))
    world.isolate(master.name)
    world.without_authority.add(master.name)
    late = caller.begin_end(nothing, COMMIT)
    world.advance(5_000)
    assert late.now.code in (Response.FLUSH_SLAVE_TIMEOUT, Response.SERVICE_NOT_AVAILABLE)
