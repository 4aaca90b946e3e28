from __future__ import annotations

import struct

import pytest

from escrowmq.base.message import Message, Topic
from escrowmq.delivery import timer, timer_file, timer_snapshot
from escrowmq.delivery.delay_progress import BATCH_MAX, NEVER_MS, RETRY_MS
from escrowmq.store.store import PutStatus

from .later import START_MS, Later


def test_a_message_is_delivered_at_its_very_millisecond() -> None:
    world = Later()
    world.send(b"at", TIMER_DELIVER_MS=str(START_MS + 2_345))
    world.send(b"after", TIMER_DELAY_MS="2346")
    world.send(b"on the border", topic="U", TIMER_DELAY_SEC="3")
    world.run(2_344)
    assert world.bodies() == []
    world.run(1)
    assert world.bodies() == [b"at"]
    world.run(1)
    assert world.bodies() == [b"at", b"after"]
    world.run(653)
    assert world.bodies("U") == []
    world.run(1)
    (message,) = world.messages("U")
    assert message.properties == {
        "TIMER_DELAY_SEC": "3", "TIMER_OUT_MS": str(START_MS + 2_000), "REAL_TOPIC": "U",
        "REAL_QID": "0", "TIMER_ENQUEUE_MS": str(START_MS),
        "TIMER_DEQUEUE_MS": str(START_MS + 3_000),
    }  # fmt: skip
    assert world.timer.wake_at_ms() == NEVER_MS


def test_messages_far_ahead_wait_for_their_time() -> None:
    world = Later()
    world.send(b"in three days", TIMER_DELAY_SEC="259200")
    world.run(259_199_999)
    assert world.bodies() == []
    world.run(1)
    assert world.bodies() == [b"in three days"]


def test_order_is_by_time_and_then_by_arrival() -> None:
    world = Later()
    for body, span in ((b"c", "3000"), (b"a", "1000"), (b"b", "2000"), (b"d", "3000")):
        world.send(body, TIMER_DELAY_MS=span)
    world.run(5_000)
    assert world.bodies() == [b"a", b"b", b"c", b"d"]


def test_a_failed_put_is_tried_again() -> None:
    world = Later()
    world.send(b"x", TIMER_DELAY_SEC="1")
    world.run(999)
    world.puts_fail = True
    world.now_ms += 1
    assert world.wake() == 0
    assert world.wake_at_ms() == world.now_ms + RETRY_MS
    world.puts_fail = False
    world.run(RETRY_MS)
    assert world.bodies() == [b"x"]


def test_one_wake_takes_in_and_delivers_a_bounded_number() -> None:
    world = Later(segment_size=1 << 20)
    for _ in range(3 * BATCH_MAX):
        world.send(b"x", TIMER_DELAY_SEC="1")
    world.now_ms += 1_000
    world.wake()
    assert world.timer.next_read_offset == 512
    assert len(world.bodies()) == BATCH_MAX
    world.wake()
    world.wake()
    assert len(world.bodies()) == 3 * BATCH_MAX
    assert world.timer.pending_count == 0


def test_memory_is_bounded_and_goes_on_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timer, "PENDING_MAX", 64)
    world = Later()
    for _ in range(200):
        world.send(b"x", TIMER_DELAY_SEC="1")
    world.wake()
    assert world.timer.pending_count == 64
    world.run(1_000)
    assert len(world.bodies()) == 200


def test_a_recall_drops_its_message_and_no_other() -> None:
    world = Later()
    at = str(START_MS + 5_000)
    world.send(b"called back", UNIQ_KEY="u1", TIMER_DELIVER_MS=at)
    world.send(b"stays", UNIQ_KEY="u2", TIMER_DELIVER_MS=at)
    world.send(b"other time", UNIQ_KEY="u1", TIMER_DELIVER_MS=str(START_MS + 9_000))
    world.wake()
    world.send(b"0", UNIQ_KEY="u1", TIMER_DEL_UNIQKEY="T+u1", TIMER_DELIVER_MS=at)
    world.run(10_000)
    assert world.bodies() == [b"stays", b"other time"]


def test_a_recall_counts_for_the_whole_slot() -> None:
    world = Later()
    world.send(b"called back", UNIQ_KEY="u1", TIMER_DELIVER_MS=str(START_MS + 5_700))
    world.send(
        b"0", UNIQ_KEY="u1", TIMER_DEL_UNIQKEY="T+u1", TIMER_DELIVER_MS=str(START_MS + 5_001)
    )
    world.run(10_000)
    assert world.bodies() == []


def test_no_recall_replaces_another_or_names_the_message_of_another_topic() -> None:
    world = Later()
    at, later = str(START_MS + 5_000), str(START_MS + 9_000)
    world.send(b"called back", UNIQ_KEY="u1", TIMER_DELIVER_MS=at)
    world.send(b"stays", UNIQ_KEY="u2", TIMER_DELIVER_MS=at)
    world.send(b"0", UNIQ_KEY="u1", TIMER_DEL_UNIQKEY="T+u1", TIMER_DELIVER_MS=at)
    world.send(b"0", UNIQ_KEY="u1", TIMER_DEL_UNIQKEY="T+u1", TIMER_DELIVER_MS=later)
    world.send(b"0", topic="U", UNIQ_KEY="u2", TIMER_DEL_UNIQKEY="T+u2", TIMER_DELIVER_MS=at)
    world.run(10_000)
    assert world.bodies() == [b"stays"]


def test_a_recall_outlives_a_restart() -> None:
    world = Later()
    at = str(START_MS + 5_000)
    world.send(b"called back", UNIQ_KEY="u1", TIMER_DELIVER_MS=at)
    world.send(b"0", UNIQ_KEY="u1", TIMER_DEL_UNIQKEY="T+u1", TIMER_DELIVER_MS=at)
    world.run(1_000)
    world.restart()
    world.run(10_000)
    assert world.bodies() == []


@pytest.mark.parametrize("properties", [{}, {"TIMER_OUT_MS": "x"}, {"TIMER_OUT_MS": "1"}])
def test_a_record_without_time_or_place_does_not_hold_up_the_rest(
    properties: dict[str, str],
) -> None:
    world = Later()
    world.store.put(Message(topic=Topic.TIMER, body=b"x", properties=properties), world.now_ms)
    world.send(b"next", TIMER_DELAY_SEC="1")
    world.run(1_000)
    assert world.bodies() == [b"next"]
    assert world.timer.deliverer.dropped_count == 1


def test_a_damaged_record_does_not_hold_up_the_rest() -> None:
    world = Later()
    put = world.send(b"x" * 100, TIMER_DELAY_SEC="1")
    world.send(b"next", TIMER_DELAY_SEC="1")
    world.wake()
    world.disk.flip_bit("commitlog/00000000000000000000", put.log_offset + 7)
    world.run(1_000)
    assert world.bodies() == [b"next"]
    assert world.timer.deliverer.dropped_count == 1


def test_entries_that_are_gone_are_passed_over() -> None:
    world = Later()
    world.send(b"x", TIMER_DELAY_SEC="1")
    world.wake()
    world.store.delete_topic(Topic.TIMER)
    world.run(1_000)
    assert world.bodies() == []
    assert world.timer.deliverer.dropped_count == 1


def test_a_message_that_can_never_be_stored_is_counted_and_passed_over() -> None:
    world = Later()
    world.send(b"x", TIMER_DELAY_SEC="1")
    world.puts_fail, world.fault = True, PutStatus.MESSAGE_ILLEGAL
    world.run(1_000)
    assert world.timer.deliverer.dropped_count == 1
    assert world.timer.pending_count == 0


def test_twins_are_both_delivered_once_over_a_crash() -> None:
    world = Later()
    world.sync()
    world.save()
    for _ in range(2):
        world.send(b"twin", UNIQ_KEY="u", TIMER_DELAY_SEC="1")
    world.run(1_500)
    world.crash()
    world.run(1_500)
    assert world.bodies() == [b"twin", b"twin"]


def test_progress_is_noted_again_when_late_records_are_delivered() -> None:
    world = Later(is_sync_flush=True)
    world.send(b"first", TIMER_DELAY_MS="100")
    world.sync()
    world.now_ms += 10
    world.send(b"late", TIMER_DELAY_MS="50")  # not visible before the next sync
    world.run(100)
    assert world.store.bounds("T", 0)[1] == 0
    world.sync()
    world.run(100)
    world.sync()
    world.save()
    world.crash()
    world.run(1_000)
    world.sync()
    assert world.bodies() == [b"first", b"late"]


def test_properties_without_room_for_the_timer_s_own_are_delivered_without() -> None:
    world = Later(segment_size=1 << 17)
    world.send(b"x", TIMER_DELAY_SEC="1", KEYS="k" * 32_690)
    world.run(1_000)
    assert world.bodies() == [b"x"]


def test_the_file_tells_the_peer_what_is_not_delivered() -> None:
    world = Later()
    for span in ("1", "9", "1"):
        world.send(b"x", TIMER_DELAY_SEC=span)
    world.run(2_000)
    world.sync()
    data = world.timer.content_to_save(world.now_ms)
    assert data is not None
    assert len(data) == 4096
    read_ms, log_position, offset, master_offset, _, at_ms, counter = struct.unpack_from(
        ">7q", data
    )
    assert (read_ms, at_ms) == (START_MS + 1_000, START_MS + 2_000)
    assert (log_position, offset, master_offset) == (0, 1, 1), "what is delivered is not read again"
    assert counter == 1
    assert world.timer.content_to_save(world.now_ms) is None
    world.run(8_000)
    world.sync()
    data = world.timer.content_to_save(world.now_ms)
    assert data is not None
    assert struct.unpack_from(">7q", data)[2:4] == (3, 3)


def test_the_peer_is_told_to_look_at_slots_from_the_first_pending_one_on() -> None:
    world = Later(is_sync_flush=True)
    world.send(b"x", TIMER_DELAY_MS="2500")
    world.sync()
    world.wake()
    world.puts_fail = True
    world.run(9_000)
    world.sync()
    data = world.timer.content_to_save(world.now_ms)
    assert data is not None
    assert struct.unpack_from(">q", data) == (START_MS + 2_000,)
    world.puts_fail = False
    world.run(1_000)  # delivered, but not visible before the next sync
    world.sync()
    data = world.timer.content_to_save(world.now_ms)
    assert data is not None
    assert struct.unpack_from(">q", data)[0] < START_MS + 2_000


def told_read_ms(world: Later) -> int:
    """The read time in the file, and in the answer to a slave."""
    world.sync()
    read_ms: int
    (read_ms,) = struct.unpack_from(">q", world.timer.progress_for_slave(world.now_ms))
    data = world.timer.content_to_save(world.now_ms)
    assert data is None or struct.unpack_from(">q", data) == (read_ms,)
    return read_ms


def test_the_peer_is_told_to_look_at_slots_of_records_not_read_yet() -> None:
    world = Later(segment_size=1 << 20)
    for _ in range(BATCH_MAX):
        world.send(b"early", TIMER_DELAY_SEC="3")
    for _ in range(512 - BATCH_MAX):
        world.send(b"late", TIMER_DELAY_SEC="9")
    world.now_ms += 3_000
    world.send(b"behind", TIMER_DELAY_MS="1500")
    world.now_ms += 4_000
    world.wake()
    assert world.bodies() == [b"early"] * BATCH_MAX
    assert told_read_ms(world) <= START_MS + 4_000
    world.wake()
    assert told_read_ms(world) == START_MS + 7_000


def test_a_slave_is_told_to_look_at_slots_of_records_that_a_start_has_not_read() -> None:
    world = Later(is_sync_flush=True)
    world.send(b"x", TIMER_DELAY_SEC="2")
    world.sync()
    world.wake()
    world.now_ms += 1_500
    world.restart()
    world.now_ms += 9_000
    assert told_read_ms(world) <= START_MS + 1_000


def peer_file(*, read_ms: int, queue_offset: int) -> bytes:
    head = struct.pack(">7q", read_ms, 520, queue_offset, queue_offset, 0, 5, 7)
    return head.ljust(4096, b"\0")


def test_the_peer_s_progress_is_taken_over_and_its_wheel_removed() -> None:
    world = Later()
    for body, span in ((b"delivered", "1000"), (b"pending", "5000"), (b"new", "500")):
        world.send(body, TIMER_DELAY_MS=span)
    world.disk.replace(timer_file.PATH, peer_file(read_ms=START_MS + 3_000, queue_offset=2))
    world.disk.replace("timerlog/00000000000000000000", b"\0" * 52)
    world.disk.replace("timerwheel", b"\0" * 64)
    world.now_ms = START_MS + 3_000
    world.crash()
    world.wake()
    assert world.bodies() == [b"new"]
    assert world.disk.names("timerlog") == []
    assert world.disk.size("timerwheel") is None
    ours = world.disk.read(timer_file.PATH)
    assert ours is not None
    assert struct.unpack_from(">7q", ours)[1:4] == (0, 0, 0)
    world.run(5_000)
    assert world.bodies() == [b"new", b"pending"]


def test_the_log_says_what_was_delivered_after_the_peer_has_written_the_file() -> None:
    world = Later()
    world.send(b"a", TIMER_DELAY_MS="500")
    world.run(1_000)
    world.sync()
    data = world.timer.content_to_save(world.now_ms)
    assert data is not None
    peers = peer_file(read_ms=0, queue_offset=0)[:56] + data[56:]
    world.disk.replace(timer_file.PATH, peers)
    world.crash()
    world.run(1_000)
    assert world.bodies() == [b"a"]


def test_a_twin_of_what_the_peer_delivered_is_delivered_too() -> None:
    world = Later()
    properties = {"TIMER_OUT_MS": str(START_MS + 1_000), "REAL_TOPIC": "T", "REAL_QID": "0"}

    def put() -> None:
        twin = Message(topic=Topic.TIMER, body=b"x", properties=properties, born_ms=START_MS)
        world.store.put(twin, world.now_ms)

    put()
    world.run(2_500)
    assert world.bodies() == [b"x"]
    put()
    world.disk.replace(timer_file.PATH, peer_file(read_ms=START_MS + 2_000, queue_offset=1))
    world.crash()
    world.run(1_000)
    assert world.bodies() == [b"x", b"x"]


DAY_MS = 86_400_000


def roll(world: Later, body: bytes, *, after_ms: int, times: int = 1) -> None:
    """The first record of the timer is stored again, as RocketMQ does when it has been long in its
    wheel."""
    world.now_ms = START_MS + after_ms
    (source,) = world.messages(Topic.TIMER)[:1]
    assert source.body == body
    copy = Message(
        topic=Topic.TIMER, body=body, born_ms=source.born_ms, born_host=source.born_host,
        properties={**source.properties, "TIMER_ROLL_TIMES": f"{times}"},
    )  # fmt: skip
    world.store.put(copy, world.now_ms)


def taken_over(world: Later, *, queue_offset: int) -> None:
    world.disk.replace(timer_file.PATH, peer_file(read_ms=world.now_ms, queue_offset=queue_offset))
    world.disk.replace("timerwheel", b"\0" * 64)
    world.crash()


@pytest.mark.parametrize("is_copy_read", [True, False])
@pytest.mark.parametrize("restarts", ["no", "with the snapshot", "without it"])
def test_a_record_that_the_peer_has_rolled_is_delivered_once(
    restarts: str, *, is_copy_read: bool
) -> None:
    world = Later()
    world.send(b"far", TIMER_DELAY_SEC="259200")
    roll(world, b"far", after_ms=2 * DAY_MS)
    taken_over(world, queue_offset=1 + is_copy_read)
    if restarts != "no":
        world.run(1_000)
        world.restart()
    if restarts == "without it":
        world.disk.remove(timer_snapshot.PATH)
        world.crash()
    world.run(2 * DAY_MS)
    assert world.bodies() == [b"far"]
    assert world.timer.counts.waiting() == {}


def test_a_record_that_the_peer_had_no_need_to_roll_is_delivered() -> None:
    world = Later()
    world.send(b"far", TIMER_DELAY_SEC=f"{5 * DAY_MS // 2_000}")
    world.run(DAY_MS)  # RocketMQ begins here: its wheel has room for the rest
    world.now_ms += DAY_MS // 2
    taken_over(world, queue_offset=1)
    world.run(2 * DAY_MS)
    assert world.bodies() == [b"far"]


def test_a_recall_outlives_that_the_peer_rolls_its_message() -> None:
    """The copy's delay counts from its own store time: it is due at the end of its slot."""
    world = Later()
    world.send(b"far", UNIQ_KEY="u", TIMER_DELAY_MS=f"{2 * DAY_MS + 300_500}")
    at = str(START_MS + 2 * DAY_MS + 300_500)
    world.send(b"0", UNIQ_KEY="u", TIMER_DEL_UNIQKEY="T+u", TIMER_DELIVER_MS=at)
    roll(world, b"far", after_ms=DAY_MS)
    taken_over(world, queue_offset=3)
    world.run(3 * DAY_MS)
    assert world.bodies() == []
    assert len(world.timer.recalls) == 0


@pytest.mark.parametrize("precision_ms", [1_000, 100])
def test_a_record_that_the_peer_has_rolled_sooner_is_delivered_once(precision_ms: int) -> None:
    world = Later()
    with_precision(world, precision_ms)
    world.send(b"near", TIMER_DELAY_SEC="86400")
    hours_ms = 3_600_000
    for times in range(1, 5):
        roll(world, b"near", after_ms=times * 5 * hours_ms, times=times)
    taken_over(world, queue_offset=5)
    world.wake()
    is_known = precision_ms == 100  # else RocketMQ's timerRollWindowSlot is another one
    assert world.timer.counts.waiting() == {"T": 1 if is_known else 5}
    world.run(DAY_MS)
    assert world.bodies() == [b"near"]
    assert world.timer.counts.waiting() == {}


def with_precision(world: Later, precision_ms: int) -> None:
    world.broker_settings.timer_precision_ms = precision_ms
    world.restart()


@pytest.mark.parametrize("precisions", [(1000, 100), (100, 1000), (1000, 100, 1000), (100, 300)])
def test_another_precision_loses_and_doubles_nothing(precisions: tuple[int, ...]) -> None:
    world = Later()
    with_precision(world, precisions[0])
    bodies = [b"%d" % n for n in range(100)]
    for n, body in enumerate(bodies):
        world.send(body, TIMER_DELIVER_MS=str(START_MS + 1_000 + 37 * n))
    world.send(b"far", topic="U", TIMER_DELAY_SEC="3600")  # holds the oldest offset
    world.run(1_510)
    for precision_ms in precisions[1:]:
        with_precision(world, precision_ms)
        world.run(1_110)
    with_precision(world, precisions[0])
    world.run(10_000)
    assert world.bodies() == bodies


def test_a_recall_drops_its_message_under_a_finer_precision() -> None:
    world = Later()
    world.send(b"called back", UNIQ_KEY="u1", TIMER_DELIVER_MS=str(START_MS + 5_700))
    with_precision(world, 100)
    at = str(START_MS + 5_001)
    world.send(b"0", UNIQ_KEY="u1", TIMER_DEL_UNIQKEY="T+u1", TIMER_DELIVER_MS=at)
    world.run(10_000)
    assert world.bodies() == []


@pytest.mark.parametrize(("precision_ms", "told_ms"), [(100, 2_000), (300, 1_000)])
def test_the_peer_is_told_of_slots_of_a_former_precision(precision_ms: int, told_ms: int) -> None:
    world = Later()
    world.send(b"x", TIMER_DELAY_MS="2950")
    with_precision(world, precision_ms)
    world.send(b"y", TIMER_DELAY_MS="2940")
    world.run(2_940)
    world.sync()
    data = world.timer.content_to_save(world.now_ms)
    assert data is not None
    assert START_MS + told_ms - precision_ms < struct.unpack_from(">q", data)[0]
    assert struct.unpack_from(">q", data)[0] <= START_MS + told_ms
