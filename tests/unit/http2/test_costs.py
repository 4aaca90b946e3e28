"""What one read of a stranger may cost: the work that it makes is bounded by the bytes that it
takes, whatever is open on the connection. Counted in lines of Python that are run."""

from __future__ import annotations

import struct
from collections.abc import Callable

import pytest

from escrowmq.http2 import frames
from escrowmq.http2.frames import ErrorCode, FrameKind, Http2Setting
from escrowmq.http2.limits import STREAMS_MAX, Http2Limits
from tests.harness.work import lines_run

from .wire import REQUEST, Client

READ_SIZE = 65_536
LINES_MAX = 300_000
"""Of one read: what as many frames of DATA with one byte each cost, which are calls' own."""

_SETTING = struct.Struct(">HI")


def setting(*values: int) -> bytes:
    """SETTINGS that name INITIAL_WINDOW_SIZE so often."""
    pairs = b"".join(_SETTING.pack(Http2Setting.INITIAL_WINDOW_SIZE, value) for value in values)
    return frames.encode_frame(FrameKind.SETTINGS, pairs)


def busy(limits: Http2Limits | None = None) -> Client:
    """A client with as many streams open as it may have, each with bytes that wait for room."""
    client = Client(limits, settings={Http2Setting.INITIAL_WINDOW_SIZE: 0})
    for nth in range((limits or Http2Limits()).streams_max):
        client.write(client.headers(2 * nth + 1))
        client.connection.send_data(2 * nth + 1, data=b"x" * 500)
    client.read()
    return client


def _resizing(client: Client) -> bytes:
    values = [1 + (nth & 1) for nth in range(2_700)]
    return setting(*values) * 4


def _windows_of_one_stream(client: Client) -> bytes:
    return frames.encode_window_update(1, 1) * (READ_SIZE // 13)


def _windows_of_all_streams(client: Client) -> bytes:
    return b"".join(frames.encode_window_update(2 * (n % STREAMS_MAX) + 1, 1) for n in range(5_000))


def _windows_of_closed_streams(client: Client) -> bytes:
    client.write(frames.encode_reset(1, ErrorCode.CANCEL))
    return frames.encode_window_update(1, 1) * (READ_SIZE // 13)


def _windows_without_data(client: Client) -> bytes:
    client.write(client.headers(2 * STREAMS_MAX + 1))
    return frames.encode_window_update(2 * STREAMS_MAX - 1, 1_000) + frames.encode_window_update(
        2 * STREAMS_MAX - 1, 1
    ) * (READ_SIZE // 13 - 1)


def _windows_of_the_connection(client: Client) -> bytes:
    client.write(setting(1_000))
    client.connection._outflow.left = 0
    return frames.encode_window_update(0, 1) * (READ_SIZE // 13)


def _sizes_of_the_table(client: Client) -> bytes:
    block = b"\x20\x3f\xe1\x1f" * 4_000
    return frames.encode_headers(2 * STREAMS_MAX + 1, block, is_end=False) * 4


def _small_settings(client: Client) -> bytes:
    return b"".join(setting(nth & 1) for nth in range(READ_SIZE // 15))


def _empty_data_of_given_up(client: Client) -> bytes:
    client.connection.reset_stream(1, ErrorCode.CANCEL)
    return client.data(1, b"") * (READ_SIZE // 9)


def _priorities(client: Client) -> bytes:
    return frames.encode_frame(FrameKind.PRIORITY, bytes(5), stream_id=1) * (READ_SIZE // 14)


def _resets(client: Client) -> bytes:
    return b"".join(frames.encode_reset(2 * n + 1, ErrorCode.CANCEL) for n in range(5_000))


def _refused_streams(client: Client) -> bytes:
    first = 2 * STREAMS_MAX + 1
    return b"".join(client.headers(first + 2 * n) for n in range(5_000))


def _bytes_of_data(client: Client) -> bytes:
    return client.data(1, b"x") * (READ_SIZE // 10)


@pytest.mark.parametrize(
    "attack",
    [
        _resizing,
        _windows_of_one_stream,
        _windows_of_all_streams,
        _windows_of_closed_streams,
        _windows_without_data,
        _windows_of_the_connection,
        _sizes_of_the_table,
        _small_settings,
        _empty_data_of_given_up,
        _priorities,
        _resets,
        _refused_streams,
        _bytes_of_data,
    ],
)
def test_one_read_costs_little(attack: Callable[[Client], bytes]) -> None:
    client = busy()
    data = attack(client)
    assert lines_run(lambda: client.write(data[:READ_SIZE])) < LINES_MAX


@pytest.mark.parametrize("count", [20, 64, 400])
def test_fields_that_are_a_byte_each_are_read_in_several_turns(count: int) -> None:
    """A field of the table is one byte of a block; a literal in front of them, which changes the
    table, keeps the block from being known."""
    client = Client()
    fields = [*REQUEST, *[(b"a", b"b")] * (count - len(REQUEST))]
    data, nth = b"", 0
    while len(data) < READ_SIZE:
        data += client.headers(2 * nth + 1, [*fields, (b"z", b"%d" % nth)])
        nth += 1
    assert lines_run(lambda: client.write(data)) < LINES_MAX
    turns = 1
    while client.connection.has_more_events:
        assert lines_run(lambda: client.write(b"")) < LINES_MAX
        turns += 1
    assert 6 < turns < 24
    assert client.connection.open_count == min(nth, STREAMS_MAX)


def test_settings_that_resize_windows_again_and_again_end_the_connection() -> None:
    client = busy()
    data = _resizing(client)
    lines = lines_run(lambda: [client.write(data) for _ in range(1_000)])
    assert client.connection.is_over
    assert lines < 2 * LINES_MAX


def test_a_client_that_measures_its_link_may_resize_its_windows() -> None:
    """As grpc-go does while it learns how much fits into the link: a dozen times, doubled each."""
    client = busy()
    for nth in range(12):
        client.write(setting(65_535 << nth) + frames.encode_window_update(0, 65_535))
    assert not client.connection.is_over
    assert client.connection.unsent_size == 0


def test_of_the_values_of_one_frame_the_last_counts() -> None:
    client = Client()
    client.write(client.headers(1))
    client.write(setting(1, 100_000, 7))
    assert not client.connection.send_data(1, data=b"x" * 10)
    client.write(client.headers(3))
    assert not client.connection.send_data(3, data=b"x" * 8)
    assert client.connection.unsent_size == 4


def test_no_value_of_a_frame_may_open_a_window_too_far() -> None:
    client = Client()
    client.write(client.headers(1) + frames.encode_window_update(1, 1_000))
    client.write(setting(frames.WINDOW_MAX, 65_535))
    assert client.connection.is_over
    assert client.connection.end_reason == "INITIAL_WINDOW_SIZE opens a window too far"
    client = Client()
    client.write(client.headers(1) + setting(frames.WINDOW_MAX, 65_535))
    assert not client.connection.is_over
