"""Limits of pops, and disks that are full."""

from __future__ import annotations

import errno
from itertools import pairwise

import pytest

from escrowmq.base import fixed_limits
from escrowmq.base.fixed_limits import PROPERTIES_SIZE_MAX
from escrowmq.broker.reads import pop_reader
from escrowmq.delivery.pop_check_points import PUT_OFF_MAX_MS
from escrowmq.delivery.pop_ledger import DUE_MAX, RETRY_MS
from escrowmq.delivery.revive_reader import GRACE_MS
from escrowmq.store.results import PutResult, PutStatus
from escrowmq.store.store import Store
from tests.unit.broker.consumer import PopConsumer
from tests.unit.broker.world import World, bodies


def make(count: int = 1) -> tuple[World, PopConsumer]:
    world = World()
    world.topic()
    for index in range(count):
        world.send(str(index))
    return world, PopConsumer(world)


def test_a_wake_settles_no_more_than_so_many_check_points() -> None:
    world, consumer = make(600)
    for _ in range(600):
        consumer.pop(maxMsgNums=1)
    world.now_ms += 10_000 + GRACE_MS
    ledger = world.core.assembly.pops.ledger
    assert [ledger.redeliver_due(world.now_ms) for _ in range(4)] == [
        DUE_MAX,
        DUE_MAX,
        600 - 2 * DUE_MAX,
        0,
    ]


def test_nothing_is_handed_out_beyond_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fixed_limits, "CHECK_POINTS_MAX", 2)
    _, consumer = make(3)
    gots = [got for _ in range(3) for got in consumer.pop(maxMsgNums=1)]
    assert [got.body for got in gots] == ["0", "1"]
    consumer.ack(gots[0])
    assert [got.body for got in consumer.pop()] == ["2"]


def test_a_group_that_acknowledges_nothing_leaves_room_for_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fixed_limits, "CHECK_POINTS_OF_GROUP_MAX", 2)
    world, consumer = make(3)
    assert sum(len(consumer.pop(maxMsgNums=1)) for _ in range(3)) == 2
    other = PopConsumer(world, group="other")
    assert [got.body for got in other.pop(maxMsgNums=1)] == ["0"]


def test_a_message_that_cannot_be_noted_anew_keeps_its_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, consumer = make(2)
    got, _ = consumer.pop()
    monkeypatch.setattr(fixed_limits, "CHECK_POINTS_MAX", 1)
    ledger = world.core.assembly.pops.ledger
    handle = next(iter(next(iter(ledger.popped._lines.values())).open.values())).identity()
    changed = ledger.change_invisible_time(
        handle, got.offset, old_ms=10_000, invisible_ms=90_000, now_ms=world.now_ms
    )
    assert changed is None
    world.run(10_000 + GRACE_MS)
    assert [again.body for again in consumer.pop()] == ["0", "1"]


def test_a_single_message_gets_more_time_at_the_limit_too(monkeypatch: pytest.MonkeyPatch) -> None:
    world, consumer = make()
    monkeypatch.setattr(fixed_limits, "CHECK_POINTS_MAX", 1)
    (got,) = consumer.pop()
    changed = consumer.change(got, 20_000)
    world.run(19_000)
    assert consumer.pop() == []
    consumer.ack(changed)
    world.run(10_000)
    assert consumer.pop() == []


def test_no_two_pops_of_a_millisecond_have_the_same_receipt() -> None:
    world, consumer = make(2)
    assert len(consumer.pop()) == 2
    world.core.broker.offsets.commit("G", "T", 0, 0, world.now_ms)
    assert consumer.pop() == []
    world.now_ms += 1
    assert len(consumer.pop()) == 2


def test_a_message_that_is_changed_all_the_time_keeps_no_other_from_coming_again() -> None:
    """No two of its check points have one pop time, so that those of one millisecond run ahead."""
    world, consumer = make(2)
    first, second = consumer.pop()
    for _ in range(5_000):
        first = consumer.change(first, 10_000)
    assert first.receipt.pop_ms == world.now_ms + 5_000
    consumer.change(second, 10_000)
    world.run(10_000 + GRACE_MS + 1_000)
    assert sorted(got.body for got in consumer.pop()) == ["0", "1"]


def use(world: World, percent: int) -> None:
    """So much of the disk is used, and the broker notices at once."""
    world.disk.used_percent = percent
    world.core.broker.store.disk_watch.check_disk(world.now_ms)


def test_what_a_full_disk_cannot_remember_is_not_handed_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world, consumer = make()
    use(world, 95)
    assert consumer.pop() == []
    assert consumer.pop() == []
    assert caplog.text.count("no ck record was stored: the disk is full") == 1
    use(world, 10)
    consumer.pop()
    world.run(10_000 + GRACE_MS - 1)
    use(world, 95)
    world.run(5_000)
    assert world.messages("%RETRY%G_T") == []
    use(world, 10)
    world.run(2_000)
    assert [got.reconsume_times for got in consumer.pop()] == [1]


def queue_file(topic: str) -> str:
    return f"consumequeue/{topic}/0/{0:020d}"


def test_a_queue_that_cannot_be_read_keeps_no_other_from_coming_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its message was due first, and what failed there ended the round for all groups."""
    caplog.set_level("INFO")
    world, consumer = make(2)
    world.topic("U")
    world.send("2", topic="U")
    other = PopConsumer(world, group="H", topic="U")
    consumer.pop(maxMsgNums=1)
    consumer.pop(maxMsgNums=1)
    other.pop()
    world.disk.unreadable.add(queue_file("T"))
    world.run(10_000 + GRACE_MS + 60_000)
    assert [got.body for got in other.pop()] == ["2"]
    assert world.core.rounds.failures == {}
    assert caplog.text.count("are redelivered to group G later") == 1
    assert caplog.text.count(queue_file("T")) == 1
    world.disk.unreadable.clear()
    world.run(PUT_OFF_MAX_MS + 1_000)
    assert sorted(got.body for got in consumer.pop()) == ["0", "1"]
    assert "messages of T/0 are redelivered to group G now" in caplog.text


def test_a_message_that_cannot_be_read_keeps_no_other_of_its_pop_from_coming_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, consumer = make(3)
    consumer.pop()
    read = Store.read_record
    (first, *_) = world.messages("T")

    def all_but_one(store: Store, log_offset: int, size: int) -> bytes:
        if log_offset == first.log_offset:
            raise OSError(errno.EIO, "Input/output error")
        return read(store, log_offset, size)

    with monkeypatch.context() as patch:
        patch.setattr(Store, "read_record", all_but_one)
        world.run(10_000 + GRACE_MS)
        assert [got.body for got in consumer.pop(invisibleTime=600_000)] == ["1", "2"]
    world.run(PUT_OFF_MAX_MS)
    assert [got.body for got in consumer.pop()] == ["0"]


def test_what_was_put_off_is_tried_more_and_more_seldom_and_can_be_acknowledged() -> None:
    world, consumer = make(1)
    (got,) = consumer.pop()
    ledger = world.core.assembly.pops.ledger
    world.disk.unreadable.add(queue_file("T"))
    tries = []
    world.now_ms = end_ms = world.now_ms + 10_000 + GRACE_MS
    for _ in range(8):
        world.core.wake(world.now_ms)
        tries.append((ledger.wake_at_ms() - end_ms) // 1_000)
        world.now_ms = ledger.wake_at_ms()
    gaps = [after - before for before, after in pairwise(tries)]
    assert gaps == sorted(gaps)
    assert gaps[-2:] == [PUT_OFF_MAX_MS // 1_000] * 2
    assert ledger.popped.oldest_records() == {0: 0}
    consumer.ack(got)
    assert ledger.popped.count == 0
    world.disk.unreadable.clear()
    world.run(2 * PUT_OFF_MAX_MS)
    assert world.messages("%RETRY%G_T") == []


def test_what_was_put_off_comes_again_after_a_start() -> None:
    world, consumer = make(2)
    consumer.pop(maxMsgNums=1)
    world.disk.unreadable.add(queue_file("T"))
    world.run(10_000 + GRACE_MS)
    world.run(10_000)  # offsets are saved
    world.disk.unreadable.clear()
    world.crash()
    world.run(10_000)
    assert [got.body for got in consumer.pop()] == ["0", "1"]


def test_a_queue_that_cannot_be_read_keeps_nobody_from_popping_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What had been found in the others was hidden, and handed to nobody, again and again."""
    world = World()
    world.topic("T", queues=3)
    consumer = PopConsumer(world)
    for queue in range(3):
        world.send(str(queue), queue=queue)
    world.disk.unreadable.add(f"consumequeue/T/1/{0:020d}")
    gots = consumer.pop()
    assert sorted(got.body for got in gots) == ["0", "2"]
    consumer.ack(*gots)
    assert consumer.pop() == []
    assert caplog.text.count("consumequeue/T/1/") == 1
    world.disk.unreadable.clear()
    for queue in range(3):
        world.send("more", queue=queue)
    world.disk.unreadable |= {f"consumequeue/T/{queue}/{0:020d}" for queue in range(3)}
    reply = consumer.ask()
    assert (reply.code, "Input/output error" in (reply.remark or "")) == (1, True)
    world.disk.unreadable.clear()
    assert sorted(got.body for got in consumer.pop()) == ["1", "more", "more", "more"]


def test_what_came_again_before_the_disk_failed_is_noted_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world, consumer = make(2)
    consumer.pop()
    ledger = world.core.assembly.pops.ledger
    read, reads = Store.read_record, iter([0])

    def first_only(store: Store, log_offset: int, size: int) -> bytes:
        if next(reads, None) is None:
            raise OSError(errno.EIO, "Input/output error")
        return read(store, log_offset, size)

    monkeypatch.setattr(Store, "read_record", first_only)
    ledger.redeliver_due(world.now_ms + 10_000 + GRACE_MS)
    ledger.note_progress(world.now_ms)  # which expects it
    monkeypatch.undo()
    world.crash()
    world.run(10_000 + GRACE_MS)
    assert [got.body for got in consumer.pop()] == ["0", "1"]


def test_acks_are_taken_on_a_full_disk() -> None:
    world, consumer = make()
    (got,) = consumer.pop()
    world.core.broker.store.disk_watch.set_full("full")
    consumer.ack(got)
    world.crash()
    world.run(60_000)
    assert consumer.pop() == []


@pytest.mark.parametrize("appends_crc", [False, True])
def test_a_message_without_room_for_another_property_comes_again(*, appends_crc: bool) -> None:
    """What is noted of its first pop made its properties too long: it was warned of, and lost."""
    world, consumer = make(0)
    world.store_settings.appends_crc = appends_crc
    world.restart()
    sizes = range(31_500, PROPERTIES_SIZE_MAX - 123 - 21 * appends_crc, 7)
    for size in sizes:
        world.send(str(size), P="x" * size)
    for _ in range(3):
        seen = []
        while gots := consumer.pop():
            seen += [int(got.body) for got in gots]
        assert sorted(seen) == [*sizes]
        world.run(10_000 + GRACE_MS)


def test_what_no_store_takes_is_not_tried_for_ever(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of the retry topic is longer than a folder's name can be. Older releases let such a
    group pop."""
    monkeypatch.setattr(pop_reader, "TOPIC_SIZE_MAX_LONG", 300)
    group = "g" * 249
    world = World()
    world.topic()
    world.send("m")
    consumer = PopConsumer(world, group=group)
    assert len(consumer.pop()) == 1
    ledger = world.core.assembly.pops.ledger
    assert ledger.popped.count == 1
    world.run(10_000 + GRACE_MS)
    assert ledger.popped.count == 0
    before = caplog.text.count("not redelivered")
    world.run(600_000)
    assert caplog.text.count("not redelivered") == before == 1


def test_what_is_gone_gets_nothing_again() -> None:
    world, consumer = make()
    consumer.pop()
    world.core.broker.topics.delete("T", world.now_ms)
    world.run(60_000)
    assert world.messages("%RETRY%G_T") == []
    assert world.core.assembly.pops.ledger.popped.count == 0


def test_a_filter_that_finds_nothing_reads_on_without_keeping_others_waiting() -> None:
    world, consumer = make()
    reads = world.core.broker.store_settings.filter_scan_size // 20 * pop_reader.FILTER_ROUNDS_MAX
    for _ in range(reads):
        world.send("no", TAGS="no")
    world.send("yes", TAGS="yes")
    consumer.wait(exp="yes", expType="TAG")
    assert world.take_replies() == []
    world.run(1)
    assert bodies(world.reply()) == ["yes"]


def test_a_message_that_is_deleted_meanwhile_is_given_up_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world, consumer = make(2)
    consumer.pop()
    entries = Store.read_units

    def without_first(
        store: Store, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        is_gone = topic == "T" and queue_offset == 0
        return [] if is_gone else entries(store, topic, queue_id, queue_offset, count)

    monkeypatch.setattr(Store, "read_units", without_first)
    world.run(10_000 + GRACE_MS)
    assert [message.body for message in world.messages("%RETRY%G_T")] == [b"1"]
    assert world.core.assembly.pops.ledger.popped.count == 0
    assert caplog.text.count("T/0 no longer has message 0") == 1


def test_a_retry_topic_is_its_groups_from_its_first_message_on() -> None:
    world, consumer = make()
    consumer.pop()
    world.run(10_000 + GRACE_MS)
    assert world.core.broker.offsets.get("G", "%RETRY%G_T", 0) == 0


def test_a_group_that_is_deleted_gets_nothing_again() -> None:
    world, consumer = make()
    consumer.pop()
    world.core.broker.groups.delete("G", world.now_ms)
    world.run(10_000 + GRACE_MS)
    assert world.messages("%RETRY%G_T") == []
    assert world.core.assembly.pops.ledger.popped.count == 0


@pytest.mark.parametrize(("reason", "said"), [("full", "full"), ("", "service not available")])
def test_what_cannot_be_stored_is_said_with_its_reason_and_tried_again_after_a_while(
    reason: str, said: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world, consumer = make(2)
    assert len(consumer.pop(maxMsgNums=1)) == 1
    world.now_ms += 10_000 + GRACE_MS
    calls = []

    def refuse(store: Store, *_: object, **__: object) -> PutResult:
        calls.append(store)
        return PutResult(PutStatus.SERVICE_NOT_AVAILABLE, reason=reason)

    ledger = world.core.assembly.pops.ledger
    with monkeypatch.context() as patched:
        patched.setattr(Store, "put", refuse)
        assert [ledger.redeliver_due(world.now_ms) for _ in range(3)] == [0, 0, 0]
        assert len(calls) == 1
        assert consumer.pop() == []
    assert f"T: not redelivered: {said}" in caplog.text
    assert f"no ck record was stored: {said}" in caplog.text
    world.now_ms += RETRY_MS
    assert ledger.wake_at_ms() == world.now_ms
    assert [ledger.redeliver_due(world.now_ms - 1), ledger.redeliver_due(world.now_ms)] == [0, 1]


def test_pops_create_no_retry_topics_beyond_the_limit_of_topics(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """One client popped with any number of groups, and each got a topic, which name servers refused
    to register beyond their limit."""
    world, _ = make()
    groups = [PopConsumer(world, group=f"G{number}") for number in range(3)]
    assert [len(group.pop()) for group in groups] == [1, 1, 1]
    topics = world.core.broker.topics
    topics._count_max = len(topics.names()) + 2
    world.run(10_000 + GRACE_MS)
    assert [group.pop()[0].reconsume_times for group in groups[:2]] == [1, 1]
    assert groups[2].pop() == []
    assert len(topics.names()) == topics._count_max
    assert caplog.text.count("are redelivered to group G2 later: there are ") == 1
    refused = PopConsumer(world, group="G3").ask()
    assert refused.code == 1
    assert "no retry topic for what G3 does not acknowledge: there are " in (refused.remark or "")
    topics.delete("%RETRY%G0_T", world.now_ms)
    world.run(PUT_OFF_MAX_MS + 1_000)
    assert [got.reconsume_times for got in groups[2].pop()] == [1], "nothing is lost"
