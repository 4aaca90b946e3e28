"""A stream's place as JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import UsageError
from escrowmq.pipeline.source.stream_place import StreamPosition, decode_position, encode_position

AT = {MessageQueue("t", "b", 10): 5, MessageQueue("t", "b", 2): 6, MessageQueue("s", "c", 0): 7}


def test_a_place_comes_back_from_the_checkpoint() -> None:
    for began in (None, {MessageQueue("t", "b", 2): 1}):
        place = StreamPosition(AT, began, began is None, {MessageQueue("t", "b", 2): (0, 17)})
        assert decode_position(json.loads(json.dumps(encode_position(place)))) == place
    place = StreamPosition(AT, gone=frozenset([MessageQueue("t", "b", 10)]))
    assert decode_position(json.loads(json.dumps(encode_position(place)))) == place


def test_equal_places_make_equal_texts() -> None:
    turned = dict(reversed(AT.items()))
    one, two = (json.dumps(encode_position(StreamPosition(at))) for at in (AT, turned))
    assert one == two
    assert one == '{"v": 1, "q": {"s": {"c": {"0": 7}}, "t": {"b": {"2": 6, "10": 5}}}}'


def test_a_checkpoint_of_another_release_is_refused() -> None:
    with pytest.raises(UsageError, match="an offset of version 2, and this release reads 1"):
        decode_position({"v": 2, "q": {}})


@pytest.mark.parametrize(
    "offset",
    [
        {"v": 1},
        {"v": 1, "q": ["t"]},
        {"v": 1, "q": {"t": {"b": {"zero": 5}}}},
        {"v": 1, "q": {"t": {"b": {"0": "5"}}}},
        {"v": 1, "q": {"t": {"b": None}}},
        {"v": 1, "q": {}, "from": 3},
        {"v": 1, "q": {}, "born": {"t": {"b": {"0": [1]}}}},
    ],
)
def test_a_damaged_checkpoint_is_refused(offset: Any) -> None:
    with pytest.raises(UsageError, match=r"a damaged offset: .* begin with another"):
        decode_position(offset)


def test_what_is_no_offset_of_ours_is_refused() -> None:
    offset: Any = [17]
    with pytest.raises(UsageError, match=r"an offset of version \[17\]"):
        decode_position(offset)
