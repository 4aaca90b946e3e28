from __future__ import annotations

import pytest

from escrowmq.base.message import Message, Topic
from escrowmq.codec import fastjson
from escrowmq.delivery import delay_queues
from escrowmq.delivery.delay_progress import BATCH_MAX, NEVER_MS, RETRY_MS
from escrowmq.delivery.delayed_messages import DelayRules
from escrowmq.errors import StorageError
from escrowmq.store.store import Store

from .later import START_MS, Later


def test_a_message_is_delivered_at_its_time_and_not_before() -> None:
    world = Later()
    world.send(b"later", queue_id=3, DELAY="2", TAGS="a")
    assert world.wake() == 0
    assert world.wake_at_ms() == START_MS + 5_000
    world.run(4_999)
    assert world.bodies(queue_id=3) == []
    world.run(1)
    (message,) = world.messages(queue_id=3)
    assert message.body == b"later"
    assert message.stored_ms == START_MS + 5_000
    assert message.born_ms == START_MS
    assert message.properties == {
        "DELAY": "2", "TAGS": "a", "REAL_TOPIC": "T", "REAL_QID": "3",
    }  # fmt: skip
    assert world.delays.wake_at_ms() == NEVER_MS


def test_each_level_keeps_its_order() -> None:
    world = Later()
    for number in range(5):
        world.send(b"%d" % number, DELAY="1")
        world.send(b"%d" % number, topic="U", DELAY="2")
        world.now_ms += 10
    world.run(10_000)
    assert world.bodies() == world.bodies("U") == [b"0", b"1", b"2", b"3", b"4"]


def test_a_failed_put_is_tried_again_and_nothing_overtakes_it() -> None:
    world = Later()
    world.send(b"one", DELAY="1")
    world.send(b"two", DELAY="1")
    world.run(999)
    world.puts_fail = True
    world.now_ms += 1
    assert world.wake() == 0
    assert world.wake_at_ms() == world.now_ms + RETRY_MS
    world.puts_fail = False
    world.run(RETRY_MS)
    assert world.bodies() == [b"one", b"two"]


def test_a_level_that_cannot_be_read_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = Later()
    for level in ("1", "2"):
        world.send(level.encode(), DELAY=level)
    entries = Store.read_units

    def fail(
        store: Store, topic: str, queue_id: int, queue_offset: int, count: int
    ) -> list[tuple[int, int, int]]:
        if (topic, queue_id) == (Topic.SCHEDULE, 0):
            raise StorageError("asked to fail")
        return entries(store, topic, queue_id, queue_offset, count)

    monkeypatch.setattr(Store, "read_units", fail)
    world.run(20_000)
    assert world.bodies() == [b"2"]
    assert caplog.text.count("level 1 is delivered later") == 1
    monkeypatch.undo()
    world.run(RETRY_MS)
    assert world.bodies() == [b"2", b"1"]


def test_one_wake_delivers_a_bounded_number() -> None:
    world = Later(segment_size=1 << 20)
    for level in ("1", "1", "2"):
        for _ in range(BATCH_MAX):
            world.send(b"x", DELAY=level)
    world.now_ms += 5_000
    assert [world.wake() for _ in range(4)] == [BATCH_MAX] * 3 + [0]
    assert len(world.bodies()) == 3 * BATCH_MAX


def test_a_due_time_beyond_the_level_s_span_is_due_now() -> None:
    world = Later()
    world.now_ms = START_MS + 3_600_000
    world.send(b"from a fast clock", DELAY="1")
    world.sync()
    world.store.close(world.now_ms)
    world.disk.restart()
    world.now_ms = START_MS
    world.open()
    assert world.wake_at_ms() <= START_MS
    world.wake()
    assert world.bodies() == [b"from a fast clock"]


@pytest.mark.parametrize(
    "properties",
    [{}, {"REAL_TOPIC": Topic.HALF, "REAL_QID": "0"}, {"REAL_TOPIC": "U", "REAL_QID": "x"}],
)
def test_a_record_without_a_place_does_not_hold_up_the_rest(properties: dict[str, str]) -> None:
    world = Later()
    lost = Message(
        topic=Topic.SCHEDULE, body=b"x", queue_id=0, properties={"DELAY": "1", **properties}
    )
    world.store.put(lost, world.now_ms)
    world.send(b"next", DELAY="1")
    world.run(1_000)
    assert world.bodies() == [b"next"]
    assert world.delays.deliverer.dropped_count == 1


def test_a_damaged_record_does_not_hold_up_the_rest() -> None:
    world = Later()
    put = world.send(b"x" * 100, DELAY="1")
    world.send(b"next", DELAY="1")
    world.disk.flip_bit("commitlog/00000000000000000000", put.log_offset + 7)
    world.run(1_000)
    assert world.bodies() == [b"next"]
    assert world.delays.deliverer.dropped_count == 1


def test_the_file_has_the_peer_s_form() -> None:
    world = Later()
    world.send(b"x", DELAY="2")
    world.run(5_000)
    world.sync()
    data = world.delays.content_to_save(world.now_ms)
    assert data is not None
    file = fastjson.decode_fastjson(data)
    assert file["offsetTable"]["2"] == 1
    assert set(file) == {"dataVersion", "escrowLogOffset", "offsetTable"}
    assert world.delays.content_to_save(world.now_ms) is None
    assert world.delays.encode().startswith(b'{"dataVersion":{"counter":')
    assert b'"offsetTable":{1:0,2:1,3:0' in world.delays.encode()
    assert world.delays.backlog()[2] == (1, 1)


def test_the_peer_s_file_is_taken_over() -> None:
    world = Later()
    for body in (b"delivered by the peer", b"not yet"):
        world.send(body, DELAY="1")
    world.disk.replace(
        delay_queues.PATH,
        b'{\n\t"dataVersion":{"counter":3,"stateVersion":0,"timestamp":5},'
        b'\n\t"offsetTable":{1:1,2:77,99:1\n\t}\n}',
    )
    world.crash()
    world.run(1_000)
    assert world.bodies() == [b"not yet"]
    assert world.delays.version.counter == 3
    assert world.delays.backlog()[2] == (0, 0)


def of_rocketmq(world: Later, **offsets: int) -> None:
    """RocketMQ, which saves its progress every ten seconds, is killed."""
    table = ",".join(f"{level.removeprefix('level')}:{at}" for level, at in offsets.items())
    world.disk.replace(delay_queues.PATH, b'{"offsetTable":{%b}}' % table.encode())
    world.crash()


def test_the_log_says_what_rocketmq_delivered_after_it_had_saved_its_progress() -> None:
    world = Later()
    for body in (b"a", b"b"):
        world.send(body, DELAY="1")
    world.send(b"c", DELAY="3")
    world.run(2_000)
    of_rocketmq(world, level1=1)
    world.run(20_000)
    assert world.bodies() == [b"a", b"b", b"c"]


def test_a_twin_of_what_rocketmq_has_delivered_is_delivered_too() -> None:
    world = Later()
    world.send(b"far", DELAY="18")
    world.send(b"x", DELAY="1")
    world.run(1_000)
    properties = {"DELAY": "1", "REAL_TOPIC": "T", "REAL_QID": "0"}
    twin = Message(topic=Topic.SCHEDULE, body=b"x", properties=properties, born_ms=START_MS)
    world.store.put(twin, world.now_ms)
    of_rocketmq(world, level1=1)
    world.run(2_000)
    assert world.bodies() == [b"x", b"x"]


def test_progress_is_not_saved_before_its_deliveries_are_durable() -> None:
    world = Later()
    world.sync()
    world.save()
    world.send(b"x", DELAY="1")
    world.run(1_000)
    assert world.delays.content_to_save(world.now_ms) is None
    world.sync()
    assert world.delays.content_to_save(world.now_ms) is not None


def with_levels(world: Later, levels: str) -> None:
    world.store_settings.delay_levels = levels
    world.rules = DelayRules(world.store_settings, world.broker_settings)
    world.restart()


def test_nothing_is_doubled_when_levels_were_fewer_for_a_while() -> None:
    world = Later()
    world.send(b"one", DELAY="1")
    world.send(b"two", DELAY="2")
    world.run(6_000)
    with_levels(world, "1s")
    world.send(b"three", DELAY="1")
    world.run(2_000)
    with_levels(world, "1s 5s")
    world.run(10_000)
    assert world.bodies() == [b"one", b"two", b"three"]


@pytest.mark.parametrize("is_saved", [True, False])
def test_a_level_that_is_not_configured_any_more_delivers_what_it_holds(
    is_saved: bool, caplog: pytest.LogCaptureFixture
) -> None:
    world = Later()
    put = world.send(b"in an hour", DELAY="17")
    with_levels(world, "1s 5s")
    if not is_saved:
        world.disk.remove(delay_queues.PATH)
        world.crash()
    assert "delay level 17 is not in messageDelayLevel any more" in caplog.text
    world.run(3_599_999)
    assert world.delays.oldest_needed_offset() == put.log_offset
    assert world.delays.backlog()[17] == (0, 1)
    assert world.bodies() == []
    world.run(1)
    assert world.bodies() == [b"in an hour"]
    caplog.clear()
    world.restart()
    world.run(8_000_000)
    assert world.bodies() == [b"in an hour"]
    assert "messageDelayLevel" not in caplog.text


def test_a_message_that_becomes_visible_in_a_former_level_is_delivered() -> None:
    world = Later(is_sync_flush=True)
    with_levels(world, "1s")
    message = Message(
        topic=Topic.SCHEDULE, queue_id=1, body=b"x",
        properties={"DELAY": "2", "REAL_TOPIC": "T", "REAL_QID": "0"},
    )  # fmt: skip
    world.store.put(message, world.now_ms)
    world.sync()
    world.run(5_000)
    world.sync()
    assert world.bodies() == [b"x"]
