"""gRPC's own client for Python calls a server that is built on the room `http2`."""

from __future__ import annotations

import queue
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import grpc
from escrowmq.http2.grpc_connection import CallCancelled, CallStarted
from escrowmq.http2.limits import STREAMS_MAX, Http2Limits

from .server import PART_SIZE, Server, serving

LARGE = random.Random(17).randbytes(10_000_000)
OPTIONS = [
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.enable_retries", 0),
]
WITHIN_S = 60


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as started:
        yield started


@pytest.fixture
def channel(server: Server) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"127.0.0.1:{server.port}", options=OPTIONS) as opened:
        yield opened


def heard(server: Server, kind: type) -> Any:
    """The next event of a kind that the server was told."""
    while True:
        event = server.heard.get(timeout=WITHIN_S)
        if isinstance(event, kind):
            return event


@pytest.mark.parametrize("body", [b"", b"hello", LARGE], ids=["empty", "small", "10 MB"])
def test_unary(channel: grpc.Channel, body: bytes) -> None:
    assert channel.unary_unary("/t/Echo")(body, timeout=WITHIN_S) == body


def test_metadata_and_deadline_arrive(channel: grpc.Channel, server: Server) -> None:
    metadata = (("x-mq-client-id", "me"), ("x-mq-language", "PYTHON"), ("raw-bin", b"\0\xff"))
    channel.unary_unary("/t/Echo")(b"x", timeout=WITHIN_S, metadata=metadata)
    called = heard(server, CallStarted)
    assert called.metadata["x-mq-client-id"] == "me"
    assert called.metadata["raw-bin"] == "AP8"
    assert called.metadata["user-agent"].startswith("grpc-python/")
    assert called.due_ms > 0


def test_many_calls_at_once_and_one_after_the_other(channel: grpc.Channel) -> None:
    echo = channel.unary_unary("/t/Echo")
    bodies = [b"%d" % number * 50 for number in range(3_000)]
    futures = [echo.future(body, timeout=WITHIN_S) for body in bodies]
    assert [future.result() for future in futures] == bodies


def test_others_are_served_while_as_many_calls_wait_as_are_allowed(
    channel: grpc.Channel, server: Server
) -> None:
    never = channel.unary_unary("/t/Never")
    waiting = [never.future(b"") for _ in range(STREAMS_MAX - 1)]
    for _ in waiting:
        heard(server, CallStarted)
    echo = channel.unary_unary("/t/Echo")
    for number in range(1_000):
        assert echo(b"%d" % number, timeout=WITHIN_S) == b"%d" % number
    assert len(server.links) == 1
    for call in waiting:
        call.cancel()


def test_server_streams_as_fast_as_the_client_reads(channel: grpc.Channel, server: Server) -> None:
    parts = list(channel.unary_stream("/t/Split")(LARGE, timeout=WITHIN_S))
    assert b"".join(parts) == LARGE
    assert len(parts) == len(LARGE) // PART_SIZE
    assert server.kept_size_max <= 2 * PART_SIZE


def test_client_streams(channel: grpc.Channel) -> None:
    sizes = [0, 1, 70_000, 3_000_000]
    count = channel.stream_unary("/t/Count")
    assert count(iter([bytes(size) for size in sizes]), timeout=WITHIN_S) == b"%d" % sum(sizes)


def test_both_stream_by_turns(channel: grpc.Channel) -> None:
    said: queue.Queue[bytes | None] = queue.Queue()
    answers = channel.stream_stream("/t/Chat")(iter(said.get, None), timeout=WITHIN_S)
    for number in range(200):
        said.put(b"%d" % number)
        assert next(answers) == b"%d" % number
    said.put(None)
    assert list(answers) == []


def test_large_messages_both_ways_at_once(channel: grpc.Channel) -> None:
    chat = channel.stream_stream("/t/Chat")
    with ThreadPoolExecutor(4) as pool:
        found = pool.map(lambda _: list(chat(iter([LARGE, b"x"]), timeout=WITHIN_S)), range(2))
    assert [len(part) for parts in found for part in parts] == [len(LARGE), 1] * 2


def test_status_and_text_arrive(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/t/Refuse")("100 % nö\n".encode(), timeout=WITHIN_S)
    assert caught.value.code() is grpc.StatusCode.PERMISSION_DENIED
    assert caught.value.details() == "100 % nö\n"


def test_unknown_method_is_unimplemented(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/t/Other")(b"", timeout=WITHIN_S)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_deadline_ends_the_call_on_both_sides(channel: grpc.Channel, server: Server) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/t/Never")(b"", timeout=0.05)
    assert caught.value.code() is grpc.StatusCode.DEADLINE_EXCEEDED
    assert isinstance(heard(server, CallCancelled), CallCancelled)
    assert channel.unary_unary("/t/Echo")(b"on", timeout=WITHIN_S) == b"on"


def test_cancellation_is_told(channel: grpc.Channel, server: Server) -> None:
    call = channel.unary_unary("/t/Never").future(b"")
    heard(server, CallStarted)
    call.cancel()
    assert "gave the call up" in heard(server, CallCancelled).reason


def test_client_that_closes_cancels_its_calls(server: Server) -> None:
    channel = grpc.insecure_channel(f"127.0.0.1:{server.port}", options=OPTIONS)
    call = channel.unary_unary("/t/Never").future(b"")
    heard(server, CallStarted)
    channel.close()
    assert isinstance(heard(server, CallCancelled), CallCancelled)
    assert call.done()


def test_compressed_request_is_refused_clearly(channel: grpc.Channel) -> None:
    with pytest.raises(grpc.RpcError) as caught:
        channel.unary_unary("/t/Echo")(
            b"x" * 5_000, timeout=WITHIN_S, compression=grpc.Compression.Gzip
        )
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "gzip" in caught.value.details()


def test_shutdown_ends_open_calls_and_the_client_goes_on(
    channel: grpc.Channel, server: Server
) -> None:
    said: queue.Queue[bytes | None] = queue.Queue()
    answers = channel.stream_stream("/t/Chat")(iter(said.get, None), timeout=WITHIN_S)
    said.put(b"before")
    assert next(answers) == b"before"
    server.shut_down()
    said.put(b"behind")
    assert next(answers) == b"behind"
    said.put(None)
    assert list(answers) == []
    assert channel.unary_unary("/t/Echo")(b"new", timeout=WITHIN_S, wait_for_ready=True) == b"new"


def test_pings_of_an_idle_client_are_answered() -> None:
    options = [
        *OPTIONS,
        ("grpc.keepalive_time_ms", 100),
        ("grpc.keepalive_timeout_ms", 5_000),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
    ]
    with (
        serving(Http2Limits(overhead_max=20)) as server,
        grpc.insecure_channel(f"127.0.0.1:{server.port}", options=options) as channel,
    ):
        echo = channel.unary_unary("/t/Echo")
        assert echo(b"x", timeout=WITHIN_S) == b"x"
        with pytest.raises(grpc.RpcError):
            channel.unary_unary("/t/Never")(b"", timeout=2)
        assert len(server.links) == 1
        assert echo(b"y", timeout=WITHIN_S) == b"y"
