"""Connections inside a process behave as those of sockets do."""

from __future__ import annotations

import asyncio
import contextlib

import pytest

from escrowmq.net import dialling
from escrowmq.testing.kit import pipe


class Peer(asyncio.Protocol):
    def __init__(self) -> None:
        self.got = b""
        self.told: list[str] = []
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    @property
    def end(self) -> asyncio.Transport:
        assert self.transport is not None
        return self.transport

    def data_received(self, data: bytes) -> None:
        self.got += data

    def pause_writing(self) -> None:
        self.told.append("pause")

    def resume_writing(self) -> None:
        self.told.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.told.append("lost")


class InPieces(asyncio.BufferedProtocol):
    """Takes four bytes at a time."""

    def __init__(self) -> None:
        self.got: list[bytes] = []
        self._room = bytearray(4)

    def get_buffer(self, sizehint: int) -> bytearray:
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self.got.append(bytes(self._room[:nbytes]))


async def a_while(traffic: pipe.UnreadChunks) -> None:
    for _ in range(10):
        await asyncio.sleep(0)
    assert traffic.is_all_read


async def connected() -> tuple[Peer, Peer, pipe.UnreadChunks]:
    one, other, traffic = Peer(), Peer(), pipe.UnreadChunks()
    pipe.connect_pipe(one, lambda: other, asyncio.get_running_loop(), traffic)
    await a_while(traffic)
    return one, other, traffic


def test_bytes_arrive_in_their_order_and_a_close_behind_them() -> None:
    async def go() -> None:
        one, other, traffic = await connected()
        one.end.write(b"a")
        one.end.write(b"b")
        one.end.close()
        one.end.write(b"behind the end")
        assert not traffic.is_all_read
        await a_while(traffic)
        assert (other.got, other.told, one.told) == (b"ab", ["lost"], ["lost"])

    asyncio.run(go())


def test_an_abort_loses_what_was_not_taken_in() -> None:
    async def go() -> None:
        one, other, traffic = await connected()
        one.end.write(b"a")
        one.end.abort()
        await a_while(traffic)
        assert (other.got, other.told, one.told) == (b"", ["lost"], ["lost"])

    asyncio.run(go())


def test_a_writer_waits_for_a_reader_that_pauses() -> None:
    async def go() -> None:
        one, other, traffic = await connected()
        one.end.set_write_buffer_limits(high=100)
        other.end.pause_reading()
        one.end.write(b"x" * 101)
        assert (one.told, one.end.get_write_buffer_size()) == (["pause"], 101)
        other.end.resume_reading()
        await a_while(traffic)
        assert (one.told, one.end.get_write_buffer_size()) == (["pause", "resume"], 0)
        assert other.got == b"x" * 101

    asyncio.run(go())


def test_a_reader_with_a_buffer_is_given_as_much_as_it_has_room_for() -> None:
    async def go() -> None:
        one, other, traffic = Peer(), InPieces(), pipe.UnreadChunks()
        pipe.connect_pipe(one, lambda: other, asyncio.get_running_loop(), traffic)
        one.end.write(b"123456789")
        await a_while(traffic)
        assert other.got == [b"1234", b"5678", b"9"]

    asyncio.run(go())


def test_an_end_whose_loop_is_gone_is_lost() -> None:
    one, other, traffic = Peer(), Peer(), pipe.UnreadChunks()
    gone = asyncio.new_event_loop()

    async def go() -> None:
        pipe.connect_pipe(one, lambda: other, gone, traffic)
        gone.close()
        one.end.write(b"a")
        for _ in range(10):
            await asyncio.sleep(0)
        assert one.told == ["lost"]

    asyncio.run(go())


def test_a_gate_that_was_closed_refuses() -> None:
    async def go() -> None:
        peers: list[asyncio.BaseProtocol] = []
        host = f"{dialling.TEST_ADDRESS_PREFIX}254"
        dialling.register_inside_server(host, 1, peers.append)
        peer = await dialling.dial(Peer, host, 1)
        assert peers == [peer]
        dialling.unregister_inside_server(host, 1)
        with pytest.raises(ConnectionRefusedError):
            await dialling.dial(Peer, host, 1)

    asyncio.run(go())


def test_what_is_written_to_an_end_that_has_closed_is_not_waited_for() -> None:
    """As a client's whose loop stops before it looks again."""
    near, far, traffic = Peer(), Peer(), pipe.UnreadChunks()
    client, broker = asyncio.new_event_loop(), asyncio.new_event_loop()

    async def connect_and_close() -> None:
        pipe.connect_pipe(near, lambda: far, broker, traffic)
        near.end.close()

    with contextlib.closing(client), contextlib.closing(broker):
        client.run_until_complete(connect_and_close())
        broker.run_until_complete(asyncio.sleep(0))
        far.end.write(b"late")
        broker.run_until_complete(a_while(traffic))
