from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.client.core.batch_cuts import split_into_batches
from escrowmq.client.core.message import Message
from escrowmq.client.core.sending import encode_properties, properties_of
from escrowmq.codec.batch_body import encode_batch

MESSAGES = st.lists(
    st.builds(
        Message,
        topic=st.just("T"),
        body=st.binary(max_size=3_000),
        properties=st.dictionaries(
            st.text("ab", min_size=1, max_size=9), st.text("é", max_size=99)
        ),
    ),
    min_size=1,
    max_size=20,
)


def test_tags_and_order_keys_count_too() -> None:
    plain = Message("T", b"x", tag="t" * 9_000, order_key="é" * 4_000)
    messages = [plain] * 4
    batches = split_into_batches(messages, range(4), size_max=40_000)
    pieces = [
        [
            (
                0,
                b"x",
                encode_properties(properties_of(messages[index], unique_key="K" * 32)).encode(),
            )
            for index in batch
        ]
        for batch in batches
    ]
    assert all(len(encode_batch(piece)) <= 40_000 for piece in pieces)


def test_a_batch_is_filled_to_its_last_byte() -> None:
    messages = [Message("T", b"x" * 100)] * 3
    assert split_into_batches(messages, range(3), size_max=2 * 356) == [[0, 1], [2]]
    assert split_into_batches(messages, range(3), size_max=2 * 356 - 1) == [[0], [1], [2]]


@pytest.mark.parametrize(
    "fields", [{"tag": "t" * 10}, {"order_key": "o" * 10}, {"properties": {"name": "values"}}]
)
def test_each_text_counts(fields: dict[str, Any]) -> None:
    messages = [Message("T", b"", **fields)] * 2
    assert split_into_batches(messages, range(2), size_max=2 * 296) == [[0, 1]]
    assert split_into_batches(messages, range(2), size_max=2 * 296 - 1) == [[0], [1]]


def test_fields_without_a_value_take_no_room() -> None:
    nothing: Any = None
    empty = Message("T", b"", tag=nothing, order_key=nothing, properties=nothing)
    assert split_into_batches([empty] * 2, range(2), size_max=2 * 256) == [[0, 1]]


@given(MESSAGES, st.integers(1, 8_000))
def test_each_message_is_in_one_batch_in_order_and_no_batch_is_too_large(
    messages: list[Message], size_max: int
) -> None:
    batches = split_into_batches(messages, range(len(messages)), size_max=size_max)
    assert [index for batch in batches for index in batch] == list(range(len(messages)))
    for batch in batches:
        found = [messages[index] for index in batch]
        size = sum(
            len(each.body) + sum(len((k + v).encode()) + 2 for k, v in each.properties.items())
            for each in found
        )
        assert size <= size_max or len(batch) == 1
