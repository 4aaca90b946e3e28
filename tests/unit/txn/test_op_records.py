from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.fixed_limits import PROPERTIES_SIZE_MAX
from escrowmq.base.message import Message, Topic
from escrowmq.base.own_properties import ENDED_BY
from escrowmq.codec.properties import decode_properties, encode_properties
from escrowmq.txn.bundle import BundleId
from escrowmq.txn.op_records import STATES, bundles_ended_in, decode_op, encode_op, encode_plain_op

DONE = st.lists(st.tuples(st.integers(0, (1 << 63) - 1), st.sampled_from("crx")), max_size=400)


@given(DONE)
def test_op_record_names_what_it_was_made_of(done: list[tuple[int, str]]) -> None:
    op = encode_op(done, host=bytes(8), now_ms=5)
    assert (op.topic, op.queue_id, op.born_ms) == (Topic.OP, 0, 5)
    assert op.body == b"".join(b"%d," % offset for offset, _ in done)
    assert decode_op(op) == done


@given(DONE)
def test_op_record_of_plain_ends_is_the_same_as_others(done: list[tuple[int, str]]) -> None:
    op = encode_op(list(dict(done).items()), host=bytes(8), now_ms=5)
    stored = op.body, encode_properties(op.properties)
    assert encode_plain_op({offset: STATES[letter] for offset, letter in done}) == stored


@pytest.mark.parametrize("who", ["", "admin: ticket 7"])
def test_op_record_says_who_ended_its_halves_unless_it_was_a_producer(who: str) -> None:
    op = encode_op([(1, "c")], host=bytes(8), now_ms=5, who=who)
    assert op.properties.get(ENDED_BY, "") == who
    assert (ENDED_BY in op.properties) == bool(who)


@pytest.mark.parametrize("who", ["x" * 40_000, "\u20ac" * 40_000, "a\x02escrowOutcomes\x01r\x02"])
def test_a_reason_neither_fills_an_op_record_nor_adds_properties(who: str) -> None:
    """If it could not be stored, no later op record would be."""
    bundles = {f"{number:016}": "c" for number in range(400)}
    done = [(number, "c") for number in range(400)]
    op = encode_op(done, host=bytes(8), now_ms=5, who=who, bundles=bundles)
    encoded = encode_properties(op.properties)
    assert len(encoded) < PROPERTIES_SIZE_MAX
    assert decode_properties(encoded)["escrowOutcomes"] == "c" * 400


@given(st.dictionaries(st.builds(BundleId, *[st.text()] * 3), st.sampled_from("crx"), max_size=40))
def test_op_record_says_which_transactions_of_several_messages_it_ends(
    bundles: dict[BundleId, str],
) -> None:
    letters = {name.digest: letter for name, letter in bundles.items()}
    op = encode_op([(1, "c")], bundles=letters, host=bytes(8), now_ms=5)
    assert bundles_ended_in(op) == [(digest, STATES[letter]) for digest, letter in letters.items()]
    assert ("escrowEnded" in op.properties) == bool(bundles)


@pytest.mark.parametrize("text", ["", "c", "c" * 16, "?" * 17, "?" * 34 + "c"])
def test_ended_transactions_that_cannot_be_read_are_passed_over(text: str) -> None:
    assert bundles_ended_in(op_of(b"1,", escrowEnded=text)) == []


def op_of(body: bytes, **properties: str) -> Message:
    return Message(topic=Topic.OP, body=body, properties={"TAGS": "d", **properties})


@pytest.mark.parametrize(
    ("body", "named"),
    [
        (b"5", [5]),
        (b"5,", [5]),
        (b"0,1,", [0, 1]),
        (b"1,1,", [1, 1]),
        (b"", []),
        (b",", []),
        (b"x,7,-1, 8,\xff,9223372036854775808", [7, 9223372036854775808]),
        (b"1" * 20, []),
        ("\u0661,2,".encode(), [2]),
    ],
)
def test_both_forms_of_the_peer_are_read_and_what_cannot_be_is_passed_over(
    body: bytes, named: list[int]
) -> None:
    assert decode_op(op_of(body)) == [(offset, "-") for offset in named]


@pytest.mark.parametrize("outcomes", ["", "c", "crc", "c?"])
def test_outcomes_that_do_not_fit_are_not_told(outcomes: str) -> None:
    found = decode_op(op_of(b"1,2,", escrowOutcomes=outcomes))
    assert found == ([(1, "c"), (2, "-")] if outcomes == "c?" else [(1, "-"), (2, "-")])


@pytest.mark.parametrize("tags", ["", "x", "D", "dd"])
def test_record_with_another_tag_names_nothing(tags: str) -> None:
    assert decode_op(Message(topic=Topic.OP, body=b"1,", properties={"TAGS": tags})) == []
    assert decode_op(Message(topic=Topic.OP, body=b"1,")) == []
