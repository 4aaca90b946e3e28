from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec import fastjson
from escrowmq.codec.fastjson import QueueId
from escrowmq.errors import RemoteProtocolError


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (b'{"a":1}', {"a": 1}),
        (b'{0:"x",1:[1,2,]}', {"0": "x", "1": [1, 2]}),
        (b'{{"b":2,"a":1}:5}', {'{"a":1,"b":2}': 5}),
        (b' { "t" : { {"q":0} : {} , } } ', {"t": {'{"q":0}': {}}}),
        (b"{true:null}", {"true": None}),
        (b'{-1:1.5e3,"\\u00e9\\"":"\\n"}', {"-1": 1500.0, 'é"': "\n"}),
        (b"[]", []),
        (b"{}", {}),
    ],
)
def test_dialect_is_read(text: bytes, value: object) -> None:
    assert fastjson.decode_fastjson(text) == value


@pytest.mark.parametrize(
    "text", [b"", b"{", b"{1}", b"{1:}", b"{:1}", b"[1 2]", b"{1:2}x", b"{1:2,,}", b"]", b"{0:01}",
             b"{0:'x'}", b"{" * 65, b'{0:"\xff"}', b"[" * 100_000]
)  # fmt: skip
def test_what_is_not_even_the_dialect_is_refused(text: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        fastjson.decode_fastjson(text)


QUEUES = st.builds(
    QueueId, st.text('ab\u00e9"', max_size=5), st.integers(0, 99), st.text(max_size=5)
)


@given(st.dictionaries(QUEUES, st.integers(0, 1 << 62), max_size=5))
def test_map_of_queues_is_read_as_written(table: dict[QueueId, int]) -> None:
    data = b'{"offsetTable":' + fastjson.encode_fastjson_map(table.items()) + b"}"
    assert fastjson.decode_queue_map(fastjson.decode_fastjson(data)["offsetTable"]) == table
