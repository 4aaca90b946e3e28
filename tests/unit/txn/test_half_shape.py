from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.properties import encode_properties
from escrowmq.txn.check_immunity import immunity_ms
from escrowmq.txn.half_records import recorded_checks
from escrowmq.txn.half_shape import ShapeCache

from .ground import Ground

SHORT = st.text("ab1", min_size=1, max_size=2)
PROPERTIES = st.fixed_dictionaries(
    {"PGROUP": SHORT, "REAL_TOPIC": SHORT, "UNIQ_KEY": SHORT, "REAL_QID": st.sampled_from("0123")},
    optional={
        "KEYS": SHORT,
        "__transactionId__": SHORT,
        "CHECK_IMMUNITY_TIME_IN_SECONDS": st.sampled_from(["1", "9", "-1", "x"]),
        "TRANSACTION_CHECK_TIMES": st.sampled_from(["0", "3"]),
        "TRAN_PREPARED_QUEUE_OFFSET": SHORT,
        "escrowTransaction": SHORT,
        "MYKEYS": SHORT,
        "TAGS": SHORT,
    },
)


@given(st.lists(PROPERTIES, min_size=1, max_size=30))
def test_shape_says_what_the_properties_say(halves: list[dict[str, str]]) -> None:
    """Most have the size of another and differ somewhere: none may be taken for that one."""
    shapes = ShapeCache()
    for properties in halves:
        found = shapes.shape_of(encode_properties(properties))
        assert (found.group, found.topic) == (properties["PGROUP"], properties["REAL_TOPIC"])
        assert found.wait_ms == immunity_ms(properties)
        assert recorded_checks(found.properties) == recorded_checks(properties)
        assert found.is_plain == properties.keys().isdisjoint(
            ("TRANSACTION_CHECK_TIMES", "TRAN_PREPARED_QUEUE_OFFSET", "escrowTransaction")
        )


@given(st.binary(max_size=60))
def test_any_bytes_have_a_shape(encoded: bytes) -> None:
    shapes = ShapeCache()
    assert shapes.shape_of(encoded) == shapes.shape_of(encoded)


def test_halves_that_differ_in_keys_and_queues_share_one_shape() -> None:
    shapes = ShapeCache()
    found = {
        id(shapes.shape_of(encode_properties(
            {"KEYS": f"k{n}", "PGROUP": "g", "UNIQ_KEY": f"U{n}", "REAL_QID": str(n)}
        )))
        for n in range(8)
    }  # fmt: skip
    assert len(found) == 1


@given(st.lists(PROPERTIES, max_size=12))
def test_index_is_the_same_after_a_restart(halves: list[dict[str, str]]) -> None:
    ground = Ground()
    for nth, properties in enumerate(halves):
        named = {k: v for k, v in properties.items() if k not in ("PGROUP", "UNIQ_KEY")}
        ground.prepare(b"%d" % nth, group=properties["PGROUP"], **named)
        ground.now_ms += 40
    before = {at: ground.engine.halves.pending.row(at) for at in ground.engine.halves.pending}
    groups, topics = ground.engine.halves.meter.groups, ground.engine.halves.meter.pending
    ground.reopen()
    after = {at: ground.engine.halves.pending.row(at) for at in ground.engine.halves.pending}
    assert after == before
    assert (ground.engine.halves.meter.groups, ground.engine.halves.meter.pending) == (
        groups,
        topics,
    )
    assert ground.engine.halves.pending.take_due(ground.now_ms + 100_000, 100) == sorted(
        before, key=lambda at: (before[at].due_ms // 50, at)
    )


def test_a_property_whose_name_ends_like_a_varying_one_is_the_same_in_all_halves() -> None:
    shapes = ShapeCache()
    first, other = ({"UNIQ_KEY": "u", "MYKEYS": value} for value in "ab")
    shapes.shape_of(encode_properties(first))
    (known,) = shapes.by_size.values()
    for properties, is_alike in ((first, True), (first | {"UNIQ_KEY": "v"}, True), (other, False)):
        encoded = encode_properties(properties)
        assert bool(known.is_alike(encoded, 0, len(encoded))) == is_alike


def test_a_bounded_number_of_shapes_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("escrowmq.txn.half_shape._SHAPES_MAX", 3)
    shapes = ShapeCache()
    for size in range(1, 10):
        encoded = encode_properties({"UNIQ_KEY": "k" * size, "PGROUP": "G"})
        assert shapes.shape_of(encoded).group == "G"
        assert len(encoded) in shapes.by_size
        assert len(shapes.by_size) <= 3


def test_halves_that_name_a_property_twice_are_alike_only_if_both_values_are() -> None:
    shapes = ShapeCache()
    first, other = (b"UNIQ_KEY\1%b\2UNIQ_KEY\1z\2" % value for value in (b"a", b"b"))
    shapes.shape_of(first)
    (known,) = shapes.by_size.values()
    assert known.is_alike(first, 0, len(first))
    assert not known.is_alike(other, 0, len(other))
