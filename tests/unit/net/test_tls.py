"""A shell whose port speaks TLS, plain bytes, or both; real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import random
import shutil
import socket
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
import uvloop
from tests.harness.certificates import OPENSSL, Authority, Pair

from escrowmq.base.effects import Close, Dial, Effect, Send
from escrowmq.base.wire import Wire
from escrowmq.net.certificates import Mode, ReloadedCertificates, TlsFiles
from escrowmq.net.clock import SystemClock
from escrowmq.net.connection_counts import ConnectionLimits
from escrowmq.net.incoming_connections import bind_port
from escrowmq.net.listening_port import REMOTING_AND_GRPC, ListeningPort
from escrowmq.net.read_buffer import READ_SIZE
from escrowmq.net.shell import Shell
from escrowmq.net.tls import PortOptions, TlsPolicy

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")

WAIT_S = 60.0


class Core:
    """Echoes. `close` is answered with a good-bye and the end."""

    def __init__(self) -> None:
        self.effects: list[Effect] = []
        self.events: list[str] = []
        self.received: dict[int, bytes] = {}
        self.wires: list[Wire] = []
        self.news = asyncio.Event()

    def _note(self, event: str) -> None:
        self.events.append(event)
        self.news.set()

    def connected(
        self, peer: int, host: str, port: int, now_ms: int, wire: Wire = Wire.REMOTING
    ) -> None:
        self.wires.append(wire)
        self._note(f"connected {peer}")
        if peer < 0:
            self.effects.append(Send(peer, [b"from the ", b"dialler"]))

    def receive(self, peer: int, data: bytes, now_ms: int, waited_ms: int = 0) -> None:
        self.received[peer] = self.received.get(peer, b"") + data
        self.news.set()
        if data == b"close":
            self.effects += [Send(peer, [b"good-bye"]), Close(peer, "asked to")]
        elif peer > 0:
            self.effects.append(Send(peer, [data]))

    def disconnected(self, peer: int, now_ms: int) -> None:
        self._note(f"lost {peer}")

    def dial_refused(self, peer: int, now_ms: int) -> None:
        self._note(f"refused {peer}")

    def dial_tls_failed(self, peer: int, fault: str, now_ms: int) -> None:
        self._note(f"tls_failed {peer}: {fault}")

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

    async def has(self, seen: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not seen():
                self.news.clear()
                await self.news.wait()


class Running:
    def __init__(
        self,
        doors: PortOptions,
        *,
        idle_ms: int = 120_000,
        wires: tuple[Wire, ...] = (Wire.REMOTING,),
    ) -> None:
        self.wires = wires
        self.members = doors.members
        self.core = Core()
        self.shell = Shell(
            self.core, SystemClock(), None, name="test", idle_ms=idle_ms, port_options=doors
        )
        self.door = bind_port("127.0.0.1", 0)
        self.port = int(self.door.getsockname()[1])

    async def __aenter__(self) -> Running:  # noqa: PYI034
        members = self.members
        has_tls = Wire.GROUP not in self.wires
        await self.shell.listen(
            ListeningPort(self.door, self.wires, None if has_tls else members, has_tls=has_tls)
        )
        self.shell.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.shell.close()

    async def ask(
        self, data: bytes, count: int, tls: ssl.SSLContext | None, host: str = "localhost"
    ) -> bytes:
        async with asyncio.timeout(WAIT_S):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", self.port, ssl=tls, server_hostname=host if tls else None
            )
            writer.write(data)
            found = await reader.readexactly(count) if count else await reader.read()
            writer.transport.abort()
            return found

    async def is_cut(self, data: bytes) -> bool:
        """Whether the port closes on these bytes without a word of the core's."""
        async with asyncio.timeout(WAIT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(data)
            try:
                found = await reader.read()
            except ConnectionError:
                found = b""
            writer.transport.abort()
            return not found or found[0] == 0x15  # nothing, or an alert of TLS


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.sign("server")


@pytest.fixture(params=["uvloop", "asyncio"])
def run(request: pytest.FixtureRequest) -> Callable[[Callable[[], Awaitable[None]]], None]:
    factory = uvloop.new_event_loop if request.param == "uvloop" else asyncio.new_event_loop

    def go(main: Callable[[], Awaitable[None]]) -> None:
        with asyncio.Runner(loop_factory=factory) as runner:
            runner.run(main())  # type: ignore[arg-type]

    return go


Run = Callable[[Callable[[], Awaitable[None]]], None]


def doors(pair: Pair, mode: Mode = "permissive", **more: str | float) -> PortOptions:
    handshake_s, look_s = float(more.pop("handshake_s", 10)), float(more.pop("look_s", 1))
    files = TlsFiles(certificate=str(pair.certificate), key=str(pair.key), **more)  # type: ignore[arg-type]
    return PortOptions(
        tls=TlsPolicy(
            mode=mode,
            certificates=ReloadedCertificates(files),
            handshake_s=handshake_s,
            poll_interval_s=look_s,
        )
    )


def trusting(authority: Authority, pair: Pair | None = None) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.root))
    if pair is not None:
        context.load_cert_chain(pair.certificate, pair.key)
    return context


def test_one_port_speaks_tls_and_plainly(run: Run, authority: Authority, pair: Pair) -> None:
    async def main() -> None:
        async with Running(doors(pair)) as running:
            assert await running.ask(b"hello", 5, trusting(authority)) == b"hello"
            assert await running.ask(b"hello", 5, None) == b"hello"
            await running.core.has(lambda: {"lost 1", "lost 2"} <= set(running.core.events))
            assert sorted(running.core.events) == [
                "connected 1", "connected 2", "lost 1", "lost 2",
            ]  # fmt: skip

    run(main)


PREFACE = b"PRI * HTTP/2.0"
FRAME = bytes(4) + b"\x01"


@pytest.mark.parametrize(
    ("wires", "found"),
    [
        ((Wire.REMOTING,), [Wire.REMOTING] * 4),
        ((Wire.GRPC,), [Wire.GRPC] * 4),
        (REMOTING_AND_GRPC, [Wire.GRPC, Wire.REMOTING, Wire.GRPC, Wire.REMOTING]),
    ],
)
def test_core_is_told_how_a_peer_speaks(
    run: Run, authority: Authority, pair: Pair, wires: tuple[Wire, ...], found: list[Wire]
) -> None:
    async def main() -> None:
        async with Running(doors(pair), wires=wires) as running:
            await running.ask(PREFACE, 14, None)
            await running.ask(FRAME, 5, None)
            http2 = trusting(authority)
            http2.set_alpn_protocols(["h2"])
            await running.ask(PREFACE, 14, http2)
            await running.ask(FRAME, 5, trusting(authority))
            assert running.core.wires == found

    run(main)


def test_both_protocols_on_one_port_without_tls(run: Run) -> None:
    async def main() -> None:
        async with Running(PortOptions(), wires=REMOTING_AND_GRPC) as running:
            await running.ask(FRAME, 5, None)
            await running.ask(PREFACE, 14, None)
            assert running.core.wires == [Wire.REMOTING, Wire.GRPC]

    run(main)


def test_much_goes_through_both_ways_unchanged(run: Run, authority: Authority, pair: Pair) -> None:
    async def main() -> None:
        data = random.Random(1).randbytes(5 * READ_SIZE + 12_345) * 7
        async with Running(doors(pair)) as running:
            assert await running.ask(data, len(data), trusting(authority)) == data
            assert await running.ask(data, len(data), None) == data

    run(main)


def test_what_was_written_before_the_end_arrives(
    run: Run, authority: Authority, pair: Pair
) -> None:
    async def main() -> None:
        async with Running(doors(pair)) as running:
            assert await running.ask(b"close", 0, trusting(authority)) == b"good-bye"

    run(main)


def test_plain_bytes_on_a_port_that_enforces_tls_are_cut_with_one_line(
    run: Run, authority: Authority, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Running(doors(pair, "enforcing")) as running:
            assert await running.is_cut(b"\0\0\0\x05plain")
            assert await running.ask(b"hello", 5, trusting(authority)) == b"hello"
            assert running.core.events[0] == "connected 2"

    run(main)
    assert [record.getMessage() for record in caplog.records] == [
        "test: a connection from 127.0.0.1 is refused: plain bytes, and tls.server.mode=enforcing"
    ]


def test_bytes_that_only_begin_like_tls_are_cut_with_one_line(
    run: Run, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Running(doors(pair)) as running:
            assert await running.is_cut(b"\x16\x03\x01\0\x05hello and no more")
            assert running.core.events == []

    run(main)
    assert len(caplog.records) == 1
    assert "TLS: " in caplog.text


@pytest.mark.parametrize("begun", [b"", b"\x16", b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03"])
def test_a_handshake_that_does_not_end_is_given_up_with_one_line(
    run: Run, pair: Pair, begun: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Running(doors(pair, "enforcing", handshake_s=0.2)) as running:
            assert await running.is_cut(begun)
            assert running.core.events == []

    run(main)
    assert len(caplog.records) == 1, caplog.text


def test_on_a_port_that_allows_both_the_silent_are_idle(run: Run, pair: Pair) -> None:
    async def main() -> None:
        async with Running(doors(pair), idle_ms=200) as running:
            assert await running.is_cut(b"")

    run(main)


def test_complaints_about_one_address_are_bounded(
    run: Run, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Running(doors(pair, "enforcing")) as running:
            for _ in range(25):
                assert await running.is_cut(b"plain")

    run(main)
    assert len(caplog.records) == 10


def test_clients_show_certificates_where_these_are_required(
    run: Run, authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    own = authority.sign("client")
    stranger = Authority(tmp_path, "other").sign("stranger")
    strict = doors(pair, clients="require", trusted=str(authority.root))

    async def main() -> None:
        async with Running(strict) as running:
            assert await running.ask(b"hello", 5, trusting(authority, own)) == b"hello"
            for other in (None, stranger):
                with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                    await running.ask(b"hello", 5, trusting(authority, other))
            await running.core.has(lambda: "lost 1" in running.core.events)
            assert running.core.events == ["connected 1", "lost 1"]

    run(main)


def test_optional_certificates_are_checked_when_they_are_shown(
    run: Run, authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    stranger = Authority(tmp_path, "other").sign("stranger")
    lax = doors(pair, clients="optional", trusted=str(authority.root))

    async def main() -> None:
        async with Running(lax) as running:
            assert await running.ask(b"hello", 5, trusting(authority)) == b"hello"
            with pytest.raises((ssl.SSLError, ConnectionError, asyncio.IncompleteReadError)):
                await running.ask(b"hello", 5, trusting(authority, stranger))

    run(main)


def test_a_new_certificate_is_for_new_connections_and_old_ones_stay(
    run: Run, authority: Authority, pair: Pair, tmp_path: Path
) -> None:
    used = Pair(tmp_path / "used.pem", tmp_path / "used.key")
    later = authority.sign("later")
    for source, target in ((pair.certificate, used.certificate), (pair.key, used.key)):
        shutil.copyfile(source, target)

    async def shown(running: Running) -> str:
        async with asyncio.timeout(WAIT_S):
            _, writer = await asyncio.open_connection(
                "127.0.0.1", running.port, ssl=trusting(authority), server_hostname="localhost"
            )
            subject = writer.get_extra_info("peercert")["subject"]
            writer.transport.abort()
            return str(subject[0][0][1])

    async def main() -> None:
        async with Running(doors(used, look_s=0.02)) as running, asyncio.timeout(WAIT_S):
            reader, writer = await asyncio.open_connection(
                "127.0.0.1", running.port, ssl=trusting(authority), server_hostname="localhost"
            )
            assert await shown(running) == "server"
            for source, target in ((later.certificate, used.certificate), (later.key, used.key)):
                shutil.copyfile(source, target)
            while await shown(running) != "later":
                await asyncio.sleep(0)
            writer.write(b"still here")
            assert await reader.readexactly(10) == b"still here"
            writer.transport.abort()

    run(main)


def test_a_core_calls_on_others_by_tls(run: Run, authority: Authority, pair: Pair) -> None:
    async def main() -> None:
        calling = PortOptions(dials_tls=trusting(authority))
        async with Running(doors(pair, "enforcing")) as called, Running(calling) as caller:
            caller.core.effects.append(Dial(-1, "localhost", called.port))
            caller.shell.perform_effects()
            await caller.core.has(lambda: caller.core.received.get(-1) == b"from the dialler")
            assert caller.core.events == ["connected -1"]

    run(main)


def test_a_core_learns_that_a_call_by_tls_failed(
    run: Run, pair: Pair, authority: Authority
) -> None:
    async def main() -> None:
        wary = PortOptions(dials_tls=ssl.create_default_context())
        async with Running(doors(pair)) as called, Running(wary) as caller:
            caller.core.effects.append(Dial(-1, "localhost", called.port))
            caller.shell.perform_effects()
            await caller.core.has(lambda: caller.core.events == ["lost -1"])

    run(main)


def test_connections_beyond_the_bound_are_cut_and_count_again_when_others_leave(
    run: Run, authority: Authority, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    bounded = doors(pair)
    bounded.limits = ConnectionLimits(connections_max=2)

    async def main() -> None:
        for each in (bounded, PortOptions(limits=bounded.limits)):
            async with Running(each) as running:
                first, second = (
                    socket.create_connection(("127.0.0.1", running.port)) for _ in range(2)
                )
                assert await running.is_cut(b"one too many")
                first.close()
                second.close()
                async with asyncio.timeout(WAIT_S):
                    while running.shell.entrance.count:
                        await asyncio.sleep(0)
                assert await running.ask(b"hello", 5, None) == b"hello"

    run(main)
    assert caplog.text.count("escrowConnectionsMax=2") == 2


def test_a_shell_that_closes_leaves_nobody_connected(run: Run, pair: Pair) -> None:
    async def main() -> None:
        async with Running(doors(pair)) as running:
            silent = socket.create_connection(("127.0.0.1", running.port))
            async with asyncio.timeout(WAIT_S):
                while not running.shell.entrance.count:
                    await asyncio.sleep(0)
        silent.settimeout(WAIT_S)
        assert await asyncio.to_thread(silent.recv, 1) == b""
        silent.close()

    run(main)
