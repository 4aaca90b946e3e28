"""Units that are set right by whoever reads their messages. All else is held by test_store."""

import pytest

from escrowmq.base.message import Topic
from escrowmq.testing.disk import SimDisk

from .stores import message, opened


@pytest.mark.parametrize("topic", ["orders", Topic.SCHEDULE])
def test_unit_that_is_set_right_says_what_it_said(topic: str) -> None:
    disk = SimDisk()
    store, _ = opened(disk)
    properties = {"DELAY": "3", "TAGS": "a"}
    for number in range(3):
        store.put(message(number, topic=topic, properties=properties), 1_000)
    units = store.read_units(topic, 0, 0, 3)
    store.close(2_000)
    disk.restart()
    disk.flip_bit(f"consumequeue/{topic}/0/{0:020d}", 27)
    store, _ = opened(disk)
    assert store.read_units(topic, 0, 1, 1) != units[1:2]
    assert store.get(topic, 0, 0).count == 3
    assert store.read_units(topic, 0, 0, 3) == units
