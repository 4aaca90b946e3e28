"""Peers that do not behave: they do not read, do not speak, go away by halves. Real sockets."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import uvloop

from escrowmq.base.effects import Close, Effect, Hold, Send
from escrowmq.base.fixed_limits import SEND_BUFFER_SIZE_MAX
from escrowmq.base.wire import Wire
from escrowmq.net.clock import SystemClock
from escrowmq.net.connection_counts import ConnectionLimits, TotalConnections
from escrowmq.net.incoming_connections import bind_port
from escrowmq.net.listening_port import ListeningPort
from escrowmq.net.shell import Shell
from escrowmq.net.tls import PortOptions
from escrowmq.net.unsent_bytes import UnsentBytes

WAIT_S = 60.0
MIB = 1 << 20
CHUNK = bytes(MIB)


class Core:
    """Echoes; counts what it got, and remembers who is there."""

    def __init__(self) -> None:
        self.peers: set[int] = set()
        self.received_size = 0
        self.effects: list[Effect] = []
        self.news = asyncio.Event()

    def connected(
        self, peer: int, host: str, port: int, now_ms: int, wire: Wire = Wire.REMOTING
    ) -> None:
        self.peers.add(peer)
        self.news.set()

    def receive(self, peer: int, data: bytes, now_ms: int, waited_ms: int = 0) -> None:
        self.received_size += len(data)
        self.effects.append(Send(peer, [data]))

    def disconnected(self, peer: int, now_ms: int) -> None:
        self.peers.discard(peer)
        self.news.set()

    def sync_finished(self, log_offset: int, now_ms: int) -> None: ...

    def clock_leapt(self, by_ms: int) -> None:
        self.leapt_ms = by_ms

    def sync_failed(self, reason: str, now_ms: int) -> None: ...

    def wake(self, now_ms: int) -> None: ...

    def wake_at_ms(self) -> int:
        return 1 << 60

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    async def has(self, *peers: int) -> None:
        """Wait until just these are there."""
        async with asyncio.timeout(WAIT_S):
            while self.peers != set(peers):
                self.news.clear()
                await self.news.wait()


class Piecemeal(Core):
    """Owes a mebibyte for each byte; after each the peer has to read first."""

    def __init__(self) -> None:
        super().__init__()
        self.owed: dict[int, int] = {}
        self.sent_count = 0

    def receive(self, peer: int, data: bytes, now_ms: int, waited_ms: int = 0) -> None:
        self.owed[peer] = self.owed.get(peer, 0) + len(data)
        if self.owed[peer]:
            self.owed[peer] -= 1
            self.sent_count += 1
            self.effects.append(Send(peer, [CHUNK]))
            self.news.set()
        if self.owed[peer]:
            self.effects.append(Hold(peer))


class Keeper(Core):
    """Wants so many turns for whatever it is sent."""

    def __init__(self, turns_count: int) -> None:
        super().__init__()
        self.left: dict[int, int] = {}
        self.turns_count = turns_count
        self.turns: list[int] = []

    def receive(self, peer: int, data: bytes, now_ms: int, waited_ms: int = 0) -> None:
        if data:
            self.left[peer] = self.turns_count
        else:
            self.turns.append(peer)
            self.left[peer] -= 1
        if self.left[peer]:
            self.effects.append(Hold(peer))


class Guarded(Core):
    """Knows those who have said something."""

    def __init__(self) -> None:
        super().__init__()
        self.known: set[int] = set()

    def receive(self, peer: int, data: bytes, now_ms: int, waited_ms: int = 0) -> None:
        self.known.add(peer)
        super().receive(peer, data, now_ms)

    def is_stranger(self, peer: int) -> bool:
        return peer not in self.known


class Running:
    def __init__(
        self,
        *,
        idle_ms: int,
        flush_s: float,
        core: Core | None = None,
        doors: PortOptions | None = None,
    ) -> None:
        self.core = core or Core()
        self.shell = Shell(
            self.core, SystemClock(), None, name="test", idle_ms=idle_ms, flush_s=flush_s,
            port_options=doors,
        )  # fmt: skip
        self.door = bind_port("127.0.0.1", 0)

    def perform(self, *effects: Effect) -> None:
        self.core.effects += effects
        self.shell.perform_effects()

    def is_reading(self, peer: int) -> bool:
        transport = self.shell.links.by_peer[peer].transport
        assert transport is not None
        return transport.is_reading()

    async def connect(self) -> socket.socket:
        """A client with a small window, of which nothing is read unless the test does."""
        client = socket.socket()
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 64 * 1024)
        client.setblocking(False)
        known = len(self.core.peers)
        await asyncio.get_running_loop().sock_connect(client, self.door.getsockname())
        async with asyncio.timeout(WAIT_S):
            while len(self.core.peers) == known:
                self.core.news.clear()
                await self.core.news.wait()
        return client


@asynccontextmanager
async def running(
    *,
    idle_ms: int = 120_000,
    flush_s: float = 5.0,
    core: Core | None = None,
    doors: PortOptions | None = None,
) -> AsyncIterator[Running]:
    found = Running(idle_ms=idle_ms, flush_s=flush_s, core=core, doors=doors)
    await found.shell.listen(ListeningPort(found.door))
    found.shell.start()
    try:
        yield found
    finally:
        await found.shell.close()


Run = Callable[[Callable[[], Awaitable[None]]], None]


@pytest.fixture(name="run", params=["asyncio", "uvloop"])
def make_run(request: pytest.FixtureRequest) -> Run:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def run(main: Callable[[], Awaitable[None]]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(_timed(main))

    return run


async def _timed(main: Callable[[], Awaitable[None]]) -> None:
    async with asyncio.timeout(WAIT_S):
        await main()


async def receive(client: socket.socket, size: int) -> bytes:
    """So many bytes, or fewer at the end of the stream."""
    loop = asyncio.get_running_loop()
    found = bytearray()
    while len(found) < size and (data := await loop.sock_recv(client, size - len(found))):
        found += data
    return bytes(found)


def test_peer_that_does_not_read_is_cut_and_others_are_served(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with running() as it:
            mute, other = await it.connect(), await it.connect()
            for _ in range(SEND_BUFFER_SIZE_MAX // MIB + 32):
                if 1 in it.core.peers:
                    it.perform(Send(1, [CHUNK]))
                    await asyncio.sleep(0)
            await it.core.has(2)
            await asyncio.get_running_loop().sock_sendall(other, b"still here")
            assert await receive(other, 10) == b"still here"
            mute.close()
            other.close()

    run(main)
    assert "peer 1 does not read; cut" in caplog.text


def test_peers_that_do_not_read_are_cut_by_what_waits_for_all_of_them(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        doors = PortOptions(unsent=UnsentBytes(size_max=12 * MIB))
        async with running(doors=doors) as it:
            mute = [await it.connect() for _ in range(3)]
            other = await it.connect()
            for peer, size in ((1, 4), (2, 16), (3, 4), (1, 4)):
                it.perform(Send(peer, [CHUNK] * size))
                await asyncio.sleep(0)
            await it.core.has(1, 3, 4)
            await asyncio.get_running_loop().sock_sendall(other, b"still here")
            assert await receive(other, 10) == b"still here"
            for client in (*mute, other):
                client.close()

    run(main)
    assert "too many bytes are unsent in total" in caplog.text


def test_peer_that_does_not_read_is_not_read_from(run: Run) -> None:
    async def main() -> None:
        async with running() as it:
            client = await it.connect()
            loop = asyncio.get_running_loop()
            size = 48 * MIB
            sending = loop.create_task(loop.sock_sendall(client, bytes(size)))
            while it.is_reading(1):
                await asyncio.wait([sending], timeout=0.01)
            assert not sending.done()
            assert 4 * MIB < it.core.received_size < size // 2
            assert len(await receive(client, size)) == size  # it reads again: nothing is lost
            await sending
            client.close()

    run(main)


def test_requests_that_came_together_wait_until_the_answers_to_those_before_are_read(
    run: Run,
) -> None:
    async def main() -> None:
        core = Piecemeal()
        async with running(core=core) as it:
            mute, other = await it.connect(), await it.connect()
            loop = asyncio.get_running_loop()
            count = 60
            await loop.sock_sendall(mute, bytes(count))
            while it.is_reading(1) or core.sent_count < 4:
                core.news.clear()
                await asyncio.wait([loop.create_task(core.news.wait())], timeout=0.01)
            await loop.sock_sendall(other, b"x")
            assert len(await receive(other, MIB)) == MIB
            assert core.sent_count - 1 < 20
            assert len(await receive(mute, count * MIB)) == count * MIB
            await loop.sock_sendall(mute, b"x")
            assert len(await receive(mute, MIB)) == MIB
            mute.close()
            other.close()

    run(main)


def test_peers_of_whom_much_is_kept_have_their_turns_one_by_one_and_others_in_between(
    run: Run,
) -> None:
    async def main() -> None:
        core = Keeper(turns_count=20)
        async with running(core=core) as it:
            loop = asyncio.get_running_loop()
            clients = [await it.connect() for _ in range(3)]
            for client in clients:
                await loop.sock_sendall(client, b"x")
            most = 0
            while len(core.turns) < 3 * 20:
                before = len(core.turns)
                await asyncio.sleep(0)  # one round of the loop
                most = max(most, len(core.turns) - before)
            assert most == 1
            assert set(core.turns[30:33]) == {1, 2, 3}
            for client in clients:
                client.close()

    run(main)


def test_idle_peer_is_closed_and_a_busy_one_is_not(run: Run) -> None:
    async def main() -> None:
        async with running(idle_ms=200) as it:
            idle, busy = await it.connect(), await it.connect()
            loop = asyncio.get_running_loop()
            closed = loop.create_task(receive(idle, 1))
            while not closed.done():
                await loop.sock_sendall(busy, b"x")
                assert await receive(busy, 1) == b"x"
                await asyncio.wait([closed], timeout=0.02)
            assert await closed == b""
            await it.core.has(2)
            idle.close()
            busy.close()

    run(main)


def test_no_peer_is_idle_because_the_clock_was_set_forward(run: Run) -> None:
    async def main() -> None:
        async with running(idle_ms=60_000) as it:
            peer = await it.connect()
            await it.core.has(1)
            links = it.shell.links
            it.shell.clock_leapt(90_000)
            assert links.by_peer[1].last_active_ms > SystemClock().now_ms() + 80_000
            assert it.core.leapt_ms == 90_000
            peer.close()

    run(main)


def test_peer_that_is_only_written_to_is_not_idle(run: Run) -> None:
    async def main() -> None:
        async with running(idle_ms=200) as it:
            idle, told = await it.connect(), await it.connect()
            while 1 in it.core.peers:
                it.perform(Send(2, [b"x"]))
                assert await receive(told, 1) == b"x"
                await asyncio.sleep(0.02)
            assert it.core.peers == {2}
            idle.close()
            told.close()

    run(main)


def test_idle_peer_that_does_not_read_is_cut_with_what_waits_for_it(run: Run) -> None:
    async def main() -> None:
        async with running(idle_ms=100) as it:
            client = await it.connect()
            it.perform(Send(1, [CHUNK] * 16))
            await it.core.has()
            client.close()

    run(main)


def test_closed_peer_gets_what_was_written_before(run: Run) -> None:
    async def main() -> None:
        async with running() as it:
            client = await it.connect()
            it.perform(Send(1, [CHUNK] * 16), Close(1, "enough"))
            assert len(await receive(client, 32 * MIB)) == 16 * MIB
            await it.core.has()
            client.close()

    run(main)


def test_closed_peer_that_does_not_read_is_cut_after_a_while(run: Run) -> None:
    async def main() -> None:
        async with running(flush_s=0.1) as it:
            client = await it.connect()
            it.perform(Send(1, [CHUNK] * 16), Close(1, "enough"), Close(1, "once more"))
            await it.core.has()
            client.close()

    run(main)


def test_peer_that_closes_its_half_is_answered_and_closed(run: Run) -> None:
    async def main() -> None:
        async with running() as it:
            client = await it.connect()
            await asyncio.get_running_loop().sock_sendall(client, b"last words")
            client.shutdown(socket.SHUT_WR)
            assert await receive(client, 100) == b"last words"
            await it.core.has()
            client.close()

    run(main)


def test_peer_that_resets_its_connection_is_gone(run: Run) -> None:
    async def main() -> None:
        async with running() as it:
            client = await it.connect()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            client.close()
            await it.core.has()

    run(main)


@pytest.mark.parametrize("limits", [
    PortOptions(limits=ConnectionLimits(connections_max=4)), PortOptions(total=TotalConnections(4)),
])  # fmt: skip
def test_strangers_leave_room_for_those_who_prove_who_they_are(
    run: Run, limits: PortOptions
) -> None:
    """All places are taken, two by strangers: whoever comes has the place of the oldest of these,
    and those who are known keep theirs."""

    async def main() -> None:
        core = Guarded()
        async with running(core=core, doors=limits) as world:
            loop = asyncio.get_running_loop()
            clients = [await world.connect() for _ in range(4)]
            for client in clients[:2]:
                await loop.sock_sendall(client, b"it is me")
                assert await receive(client, 8) == b"it is me"
            for nth in range(20):
                clients.append(await connect_beside(world))
                assert await receive(clients[nth + 2], 1) == b""
                assert world.shell.entrance.count == 4
            await core.has(1, 2, 23, 24)
            for client in clients[:2]:
                await loop.sock_sendall(client, b"still here")
                assert await receive(client, 10) == b"still here"
            for client in clients[-2:]:
                await loop.sock_sendall(client, b"me too")
                assert await receive(client, 6) == b"me too"
            late = await connect_beside(world)
            assert await receive(late, 1) == b""  # all are known
            for client in [*clients, late]:
                client.close()

    run(main)


async def connect_beside(world: Running) -> socket.socket:
    """One more client, who may or may not be let in."""
    client = socket.socket()
    client.setblocking(False)
    await asyncio.get_running_loop().sock_connect(client, world.door.getsockname())
    return client


def test_where_nobody_has_to_prove_anything_who_came_first_stays(run: Run) -> None:
    async def main() -> None:
        doors = PortOptions(limits=ConnectionLimits(connections_max=2))
        async with running(doors=doors) as world:
            clients = [await world.connect() for _ in range(2)]
            late = await connect_beside(world)
            assert await receive(late, 1) == b""
            await asyncio.get_running_loop().sock_sendall(clients[0], b"here")
            assert await receive(clients[0], 4) == b"here"
            for client in [*clients, late]:
                client.close()

    run(main)
