from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hpack import Decoder, Encoder
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.http2.request_headers import (
    CHECKED_FIELDS_MAX,
    KEPT_BLOCKS_MAX,
    HttpRequest,
    MalformedRequest,
    RequestDecoder,
    encode_literal,
    make_request,
)

from .wire import REQUEST, Fields


def reader() -> RequestDecoder:
    return RequestDecoder(list_size_max=16_384)


def size_of(fields: Fields) -> int:
    return sum(32 + len(name) + len(value) for name, value in fields)


def test_block_of_references_is_read_once() -> None:
    encoder, headers = Encoder(), reader()
    first = headers.decode_request(encoder.encode(REQUEST))
    again = headers.decode_request(encoder.encode(REQUEST))
    assert again == first
    assert headers.decode_request(encoder.encode(REQUEST)) is again


def test_kept_blocks_are_forgotten_when_the_table_changes() -> None:
    encoder, headers = Encoder(), reader()
    headers.decode_request(encoder.encode(REQUEST))
    block = encoder.encode(REQUEST)
    kept = headers.decode_request(block)
    assert headers.decode_fields(encoder.encode([(b"new", b"field")])) == [(b"new", b"field")]
    moved = encoder.encode(REQUEST)
    assert moved != block
    assert headers.decode_request(moved) == kept
    assert headers.decode_request(moved) is not kept
    assert headers.decode_fields(b"") == []
    assert headers.decode_fields(b"\x88") == [(b":status", b"200")]


def test_what_is_kept_is_bounded() -> None:
    encoder, headers = Encoder(), reader()
    for number in range(2 * CHECKED_FIELDS_MAX):
        headers.decode_request(encoder.encode([*REQUEST, (b"x", b"%d" % number)]))
    opening = encoder.encode(REQUEST)
    assert min(opening) >= 0x80
    for count in range(2 * KEPT_BLOCKS_MAX):
        assert headers.decode_request(opening + b"\x90" * count).path == "/a.Service/Method"


def test_what_is_kept_of_large_fields_is_little() -> None:
    """Of a stranger: more calls than may be remembered, with as large fields as may be."""
    encoder, headers = Encoder(), reader()
    for number in range(2 * CHECKED_FIELDS_MAX):
        path = (b":path", b"/%d" % number + b"x" * 7_000)
        fields = [*REQUEST[:2], path, *REQUEST[3:], (b"y", b"%d" % number + b"b" * 7_000)]
        assert headers.decode_request(encoder.encode(fields)).size > 14_000
    assert headers.cached_size < 10_000
    for number in range(20 * CHECKED_FIELDS_MAX):
        path = (b":path", b"/%d" % number + b"x" * 1_500)
        fields = [*REQUEST[:2], path, *REQUEST[3:], (b"y", b"%d" % number + b"b" * 1_500)]
        headers.decode_request(encoder.encode(fields))
        assert headers.cached_size < 300_000


def test_values_of_one_name_are_joined() -> None:
    found = make_request([*REQUEST[:4], (b"a", b"1"), (b"b", b"\xff"), (b"a", b"2")])
    assert found.metadata == {"a": "1,2", "b": "\xff"}


def without(name: bytes) -> Fields:
    return [each for each in REQUEST if each[0] != name]


@pytest.mark.parametrize(
    "fields",
    [
        [],
        without(b":method"),
        without(b":scheme"),
        [*without(b":path"), (b":path", b"/behind")],
        [(b":path", b""), *without(b":path")],
        [(b":path", b"/twice"), *REQUEST],
        [(b":status", b"200"), *REQUEST],
        [*REQUEST, (b"", b"no name")],
        [*REQUEST, (b"x", b"line\nbreak")],
        [*REQUEST, (b"x", b" blank")],
        [*REQUEST, (b"te", b"gzip")],
        [*REQUEST, (b"upgrade", b"h3")],
        [*REQUEST, (b"content-length", b"-1")],
        [*REQUEST, (b"content-length", b"1" * 19)],
    ],
)
def test_what_is_no_request_is_malformed(fields: Fields) -> None:
    with pytest.raises(MalformedRequest):
        make_request(fields)


def test_second_path_is_named_as_such_behind_a_known_opening() -> None:
    encoder, headers = Encoder(), reader()
    assert headers.decode_request(encoder.encode(REQUEST)) == make_request(
        REQUEST, size_of(REQUEST)
    )
    twice = [*REQUEST[:4], (b":path", b"/again")]
    with pytest.raises(MalformedRequest, match="there twice"):
        headers.decode_request(encoder.encode(twice))


MORE = st.lists(
    st.sampled_from(
        [
            (b"a", b"1"), (b"a", b"2"), (b"b", b""), (b"te", b"trailers"), (b"te", b"gzip"),
            (b"content-length", b"7"), (b"content-length", b"x"), (b":path", b"/again"),
            (b":status", b"200"), (b"upgrade", b"h3"), (b"x", b" blank"), (b"", b"no name"),
        ]
    ),
    max_size=4,
)  # fmt: skip


@given(st.lists(st.tuples(st.permutations(REQUEST[:4]), st.integers(0, 4), MORE)))
def test_what_is_remembered_of_calls_makes_no_difference(
    calls: list[tuple[Fields, int, Fields]],
) -> None:
    encoder, headers = Encoder(), reader()
    for opening, count, more in calls:
        fields = [*opening[:count], *more]
        found = outcome(headers.decode_request, encoder.encode(fields))
        assert found == outcome(lambda given: make_request(given, size_of(given)), fields)


def outcome(read: Callable[[Any], HttpRequest], given: object) -> HttpRequest | str:
    try:
        return read(given)
    except MalformedRequest as error:
        return str(error)


@given(st.binary(max_size=300), st.binary(max_size=70_000))
def test_literal_is_read_by_the_package(name: bytes, value: bytes) -> None:
    assert Decoder(1 << 20).decode(encode_literal(name, value), raw=True) == [(name, value)]
