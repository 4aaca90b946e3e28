from __future__ import annotations

from collections import deque

from escrowmq.http2.streams import Stream, StreamTable


def test_unsent_bytes_are_taken_in_pieces() -> None:
    stream = Stream(1, window_in=1, window_out=1)
    stream.unsent = deque((memoryview(b"abcdef"), memoryview(b"gh")))
    stream.unsent_size = 8
    assert [stream.take_unsent(4) for _ in range(3)] == [b"abcd", b"ef", b"gh"]
    assert stream.unsent_size == 0
    assert not stream.unsent


def test_streams_that_were_given_up_are_remembered_up_to_a_bound() -> None:
    streams = StreamTable(given_up_max=2)
    for stream_id in (1, 3, 5):
        streams.remember_aborted(stream_id)
    assert [streams.was_aborted(stream_id) for stream_id in (1, 3, 5)] == [False, True, True]


def test_nothing_is_left_of_a_connection_that_is_over() -> None:
    streams = StreamTable(given_up_max=2)
    stream = Stream(1, window_in=1, window_out=1)
    stream.unsent = deque((memoryview(b"abcdef"),))
    streams.open[1] = stream
    streams.make_ready(stream)
    streams.remove_all()
    assert not streams.open
    assert streams.take_next_ready() is None


def test_a_stream_has_its_turn_when_it_has_bytes_and_room() -> None:
    streams = StreamTable(given_up_max=2)
    made = {number: Stream(number, window_in=1, window_out=window) for number, window in
            ((1, 0), (3, 1), (5, 1), (7, 1))}  # fmt: skip
    for number, stream in made.items():
        if number != 5:
            stream.unsent = deque((memoryview(b"abcdef"),))
        streams.open[number] = stream
        streams.make_ready(stream)
        streams.make_ready(stream)
    streams.remove_stream(made[7])
    assert streams.take_next_ready() is made[3]
    assert streams.take_next_ready() is None
    made[1].outflow.add_granted(5)
    streams.make_ready(made[1])
    streams.make_ready(made[3])
    assert [streams.take_next_ready(), streams.take_next_ready()] == [made[1], made[3]]
