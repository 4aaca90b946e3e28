from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from escrowmq.base.codes import Flag
from escrowmq.base.command import Command
from escrowmq.client.connection import Connection
from escrowmq.client.core.dialogue import Fields
from escrowmq.client.pool import ConnectionPool
from escrowmq.errors import (
    ClientClosed,
    ConnectFailed,
    ConnectionLost,
    RequestTimeout,
    TopicNotFound,
)

from .peer import Link, Peer, a_peer

LONG_S = 30.0


class Client:
    """A pool and what it was told."""

    def __init__(self) -> None:
        self.served: list[Command] = []
        self.greeted: list[str] = []
        self.lost: list[str] = []
        self.fails = False
        self.pool = ConnectionPool(
            tls=None,
            connect_timeout_s=5.0,
            decorate=lambda fields, body: {**fields, "mark": "1"},
            serve=self._serve,
            greet=lambda connection: self.greeted.append(connection.address),
            lost=lambda connection: self.lost.append(connection.address),
        )

    def _serve(self, connection: Connection, command: Command) -> None:
        if self.fails:
            raise ValueError("planted")
        self.served.append(command)
        connection.reply(command, 0, body=b"answer")


@contextlib.asynccontextmanager
async def joined() -> AsyncIterator[tuple[Peer, Client, Connection]]:
    async with a_peer() as peer:
        client = Client()
        connection = await client.pool.get(peer.address)
        try:
            yield peer, client, connection
        finally:
            await client.pool.close()


def run(test: Any) -> None:
    asyncio.run(test())


def test_replies_find_their_requests_in_any_order() -> None:
    async def go() -> None:
        async with joined() as (peer, _, connection):
            held: list[tuple[Link, Command]] = []
            peer.answers[7] = lambda link, command: held.append((link, command))
            asked = [connection.request(7, {"n": str(n)}, timeout_s=LONG_S) for n in range(5)]
            await peer.until(lambda: len(held) == 5)
            for link, command in reversed(held):
                assert command.ext is not None
                link.reply(command, ext={"n": command.ext["n"]})
            replies = await asyncio.gather(*asked)
            assert [(reply.ext or {})["n"] for reply in replies] == ["0", "1", "2", "3", "4"]
            assert peer.requests[0].ext == {"n": "0", "mark": "1"}
            assert connection.waiting_count == 0

    run(go)


def test_a_request_without_answer_times_out_and_its_late_answer_is_dropped() -> None:
    async def go() -> None:
        async with joined() as (peer, _, connection):
            held: list[tuple[Link, Command]] = []
            peer.answers[10] = lambda link, command: held.append((link, command))
            with pytest.raises(RequestTimeout, match=r"SEND_MESSAGE \(10\) within 20 ms"):
                await connection.request(10, timeout_s=0.02)
            link, command = held[0]
            link.reply(command, ext={"late": "1"})
            reply = await connection.request(7, timeout_s=LONG_S)
            assert reply.ext is None
            assert connection.is_usable

    run(go)


def test_a_lost_connection_fails_what_waits_and_what_comes() -> None:
    async def go() -> None:
        async with joined() as (peer, client, connection):
            peer.answers[7] = lambda link, command: link.transport.abort()
            with pytest.raises(ConnectionLost, match=peer.address):
                await connection.request(7, timeout_s=LONG_S)
            with pytest.raises(ConnectionLost):
                connection.send_one_way(8)
            with pytest.raises(ConnectionLost):
                connection.request(8, timeout_s=LONG_S)
            assert client.lost == [peer.address]
            assert client.pool.get_ready(peer.address) is None
            again = await client.pool.get(peer.address)
            assert again is not connection
            assert client.greeted == [peer.address] * 2

    run(go)


def test_bytes_that_are_no_frame_end_the_connection() -> None:
    async def go() -> None:
        async with joined() as (peer, _, connection):
            peer.answers[7] = lambda link, command: link.transport.write(b"\xff" * 20)
            with pytest.raises(ConnectionLost, match="not a frame"):
                await connection.request(7, timeout_s=LONG_S)

    run(go)


def test_an_error_code_becomes_the_exception_of_that_name() -> None:
    async def go() -> None:
        async with joined() as (peer, _, connection):
            peer.answers[7] = lambda link, command: link.reply(command, 17, remark="gone")
            with pytest.raises(TopicNotFound, match="gone") as raised:
                await connection.ask(7, timeout_s=LONG_S)
            assert (raised.value.code, raised.value.address) == (17, peer.address)

    run(go)


def test_a_request_of_the_peer_is_served_and_answered() -> None:
    async def go() -> None:
        async with joined() as (peer, client, _):
            peer.links[0].ask(307, {"a": "b"})
            await peer.until(lambda: peer.replies)
            assert (peer.replies[0].body, client.served[0].ext) == (b"answer", {"a": "b"})
            client.fails = True
            peer.links[0].ask(307, {})
            await peer.until(lambda: len(peer.replies) == 2)
            assert peer.replies[1].code == 1
            assert "planted" in (peer.replies[1].remark or "")

    run(go)


def test_requests_of_one_round_leave_together_and_one_way_ones_say_so() -> None:
    async def go() -> None:
        async with joined() as (peer, _, connection):
            connection.send_one_way(9, {"x": "y"})
            await connection.request(7, timeout_s=LONG_S)
            assert peer.codes() == [9, 7]
            assert peer.requests[0].flag & Flag.ONE_WAY

    run(go)


def test_a_peer_that_goes_away_is_dialled_anew_for_the_next_request() -> None:
    async def go() -> None:
        async with joined() as (peer, client, connection):
            peer.answers[7] = lambda link, command: link.reply(command, 1500)
            reply = await connection.request(7, timeout_s=LONG_S)
            assert reply.code == 1500
            assert not connection.is_usable
            assert await client.pool.get(peer.address) is not connection

    run(go)


def test_many_who_want_one_address_share_one_dial() -> None:
    async def go() -> None:
        async with a_peer() as peer:
            client = Client()
            found = await asyncio.gather(*(client.pool.get(peer.address) for _ in range(9)))
            assert len(set(found)) == 1
            assert client.greeted == [peer.address]
            await client.pool.close()
            with pytest.raises(ClientClosed):
                await client.pool.get(peer.address)

    run(go)


def test_nobody_at_the_address_says_so() -> None:
    async def go() -> None:
        async with a_peer() as peer:
            address = peer.address
        client = Client()
        with pytest.raises(ConnectFailed, match=f"no connection to {address}"):
            await client.pool.get(address)

    run(go)


def test_closing_fails_what_waits() -> None:
    async def go() -> None:
        async with joined() as (peer, client, connection):
            peer.answers[7] = lambda link, command: None
            waiting = connection.request(7, timeout_s=LONG_S)
            await client.pool.close()
            with pytest.raises(ConnectionLost, match="closed it"):
                await waiting

    run(go)


def test_a_peer_that_cuts_off_plain_bytes_is_asked_about_tls() -> None:
    async def go() -> None:
        async with joined() as (peer, _, connection):
            peer.answers[7] = lambda link, _: link.transport.close()
            with pytest.raises(ConnectionLost, match="before it said anything; does it speak TLS"):
                await connection.request(7, timeout_s=LONG_S)

    asyncio.run(go())


# -- signatures of our own -----------------------------------------------------------------------

WANTED, SESSION = 7750, 7721


def signing(fields: Fields, number: int, session: str) -> Fields:
    return {**fields, "escrowSigned": str(number), "Signature": session}


@contextlib.asynccontextmanager
async def signer(*, session: str | None = "s1") -> AsyncIterator[tuple[Peer, Connection]]:
    """A peer that wants them, and tells a session or does not know what that is."""

    def answer(link: Link, command: Command) -> None:
        is_signed = (command.ext or {}).get("Signature") == session
        link.reply(command, 0 if is_signed and session else WANTED, remark="sign")

    def tell(link: Link, command: Command) -> None:
        if session is None:
            link.reply(command, 3)
        else:
            link.reply(command, 0, ext={"escrowSession": session})

    async with a_peer() as peer:
        client = Client()
        client.pool._owner.sign_own = lambda _, fields, __, session, number: signing(
            fields, number, session
        )
        peer.answers[SESSION] = tell
        for code in (1, 2, 3):
            peer.answers[code] = answer
        connection = await client.pool.get(peer.address)
        try:
            yield peer, connection
        finally:
            await client.pool.close()


def test_a_broker_that_wants_our_own_signature_is_asked_again_with_it() -> None:
    async def main() -> None:
        async with signer() as (peer, connection):
            asked = [connection.request(code, {"a": "b"}, timeout_s=LONG_S) for code in (1, 2, 3)]
            assert [reply.code for reply in await asyncio.gather(*asked)] == [0, 0, 0]
            assert (await connection.request(1, timeout_s=LONG_S)).code == 0
            codes = [request.code for request in peer.requests]
            assert codes == [1, 2, 3, SESSION, 1, 2, 3, 1]
            numbers = [(request.ext or {}).get("escrowSigned") for request in peer.requests]
            assert numbers == [None] * 4 + ["1", "2", "3", "4"]

    asyncio.run(main())


def test_who_has_no_session_to_give_is_believed_at_the_first_refusal() -> None:
    async def main() -> None:
        async with signer(session=None) as (peer, connection):
            assert (await connection.request(1, timeout_s=LONG_S)).code == WANTED
            assert [request.code for request in peer.requests] == [1, SESSION]

    asyncio.run(main())


def test_a_peer_that_refuses_every_signature_is_not_asked_without_end() -> None:
    async def main() -> None:
        async with signer() as (peer, connection):
            peer.answers[1] = lambda link, command: link.reply(command, WANTED)
            assert (await connection.request(1, timeout_s=LONG_S)).code == WANTED
            assert (await connection.request(1, timeout_s=LONG_S)).code == WANTED
            assert [request.code for request in peer.requests] == [1, SESSION, 1, 1]

    asyncio.run(main())


def test_no_other_broker_is_asked_for_a_session() -> None:
    async def main() -> None:
        async with signer() as (peer, connection):
            for code in (10, 11, 12):
                await connection.request(code, timeout_s=LONG_S)
            assert SESSION not in [request.code for request in peer.requests]
            assert not any("escrowSigned" in (request.ext or {}) for request in peer.requests)

    asyncio.run(main())


def test_one_way_requests_wait_for_a_peer_that_takes_no_data() -> None:
    """Nothing limited them: a program wrote into memory for as long as its broker stood still."""

    async def go() -> None:
        async with joined() as (peer, _, connection):
            for link in peer.links:
                link.transport.pause_reading()
            body, written = bytes(1_000_000), 0

            async def write_for_ever() -> None:
                nonlocal written
                while True:
                    await connection.wait_for_room(timeout_s=0.01)
                    connection.send_one_way(1, {}, body)
                    written += 1

            with pytest.raises(RequestTimeout, match="has taken no data for 10 ms"):
                await write_for_ever()
            assert connection._transport is not None
            assert connection._transport.get_write_buffer_size() < 6_000_000
            waiting = [
                asyncio.create_task(connection.wait_for_room(timeout_s=LONG_S)) for _ in range(2)
            ]
            await asyncio.sleep(0)
            for link in peer.links:
                link.transport.resume_reading()
            await asyncio.gather(*waiting)
            await peer.until(lambda: len(peer.requests) == written)

    run(go)


def test_a_lost_connection_keeps_no_one_way_request_waiting() -> None:
    async def go() -> None:
        async with joined() as (_, _, connection):
            connection.pause_writing()
            waiting = asyncio.create_task(connection.wait_for_room(timeout_s=LONG_S))
            await asyncio.sleep(0)
            connection.abort("planted")
            await waiting
            with pytest.raises(ConnectionLost):
                connection.send_one_way(1)

    run(go)


def test_one_way_requests_let_the_round_end_in_which_many_were_written() -> None:
    async def go() -> None:
        async with joined() as (peer, _, connection):
            answer = connection.request(2, timeout_s=LONG_S)  # what follows waits for the round
            for _ in range(1_000):
                await connection.wait_for_room(timeout_s=LONG_S)
                connection.send_one_way(1)
                assert len(connection._out) <= 256
            await answer
            await peer.until(lambda: len(peer.requests) == 1_001)

    run(go)
