from __future__ import annotations

from collections import deque

from escrowmq.http2.streams import Stream, Streams


def test_unsent_bytes_are_taken_in_pieces() -> None:
    stream = Stream(1, window_in=1, window_out=1)
    stream.unsent = deque((memoryview(b"abcdef"), memoryview(b"gh")))
    stream.unsent_size = 8
    assert [stream.take_unsent(4) for _ in range(3)] == [b"abcd", b"ef", b"gh"]
    assert stream.unsent_size == 0
    assert not stream.unsent


def test_streams_that_were_given_up_are_remembered_up_to_a_bound() -> None:
    streams = Streams(given_up_max=2)
    for stream_id in (1, 3, 5):
        streams.give_up(stream_id)
    assert [streams.was_given_up(stream_id) for stream_id in (1, 3, 5)] == [False, True, True]


def test_nothing_is_left_of_a_connection_that_is_over() -> None:
    streams = Streams(given_up_max=2)
    stream = Stream(1, window_in=1, window_out=1)
    streams.open[1] = streams.waiting[1] = stream
    streams.drop_all()
    assert not streams.open
    assert not streams.waiting
