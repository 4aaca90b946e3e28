"""Link and shell around a small core of their own, over real sockets on free ports."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable

import pytest

from escrowmq.base.effects import Close, Dial, Effect, Replace, Send, Sync
from escrowmq.base.wire import Wire
from escrowmq.errors import ConnectFailed, DiskFull
from escrowmq.net.clock import SystemClock
from escrowmq.net.disk import FileDisk
from escrowmq.net.incoming_connections import bind_port
from escrowmq.net.link import PeerLink
from escrowmq.net.listening_port import ListeningPort
from escrowmq.net.read_buffer import READ_SIZE
from escrowmq.net.shell import Shell

_WAIT_S = 60.0


class EchoCore:
    """Echoes; a few words make it do something else. What happened is in `events`."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.effects: list[Effect] = []
        self.wakes_count = 0
        self.wake_in_ms = 1 << 40
        self.now_ms = 0
        self.waited_ms = 0
        self.turns: list[tuple[int, int, int]] = []
        self.news = asyncio.Event()

    def _note(self, event: str) -> None:
        self.events.append(event)
        self.news.set()

    def connected(
        self, peer: int, host: str, port: int, now_ms: int, wire: Wire = Wire.REMOTING
    ) -> None:
        self._note(f"connected {peer} {host}")

    def receive(self, peer: int, data: bytes, now_ms: int, waited_ms: int = 0) -> None:
        self.now_ms = now_ms
        self.waited_ms = waited_ms
        self.turns.append((peer, len(data), waited_ms))
        if data == b"fail":
            raise RuntimeError("asked to fail")
        if data == b"close":
            self.effects.append(Send(peer, [b"good", b"-bye"]))
            self.effects.append(Close(peer, "asked to"))
            return
        self.effects.append(Send(peer, [data]))

    def disconnected(self, peer: int, now_ms: int) -> None:
        self._note(f"lost {peer}")

    def sync_finished(self, log_offset: int, now_ms: int) -> None:
        self._note(f"synced {log_offset}")

    def clock_leapt(self, by_ms: int) -> None:
        self.leapt_ms = by_ms

    def sync_failed(self, reason: str, now_ms: int) -> None:
        self._note(f"failed {reason}")

    def wake(self, now_ms: int) -> None:
        self.wakes_count += 1
        self.now_ms = now_ms
        self.wake_in_ms = 1 << 40
        self._note("woken")

    def wake_at_ms(self) -> int:
        return self.now_ms + self.wake_in_ms

    def take_effects(self) -> list[Effect]:
        effects, self.effects = self.effects, []
        return effects

    async def wait_for(self, seen: Callable[[], bool]) -> None:
        async with asyncio.timeout(_WAIT_S):
            while not seen():
                self.news.clear()
                await self.news.wait()


class SlowFile:
    """A file whose sync tells on which thread it ran, and fails when asked to."""

    size = 1

    def __init__(self, error: Exception | None = None) -> None:
        self.thread = 0
        self._error = error

    def write(self, position: int, data: bytes) -> None: ...

    def read(self, position: int, size: int) -> bytes:
        return b""

    def read_runs(self, runs: bytes, base: int) -> bytes | None:
        return b""

    def write_again(self, position: int, size: int) -> None: ...

    def reserve(self, position: int, size: int) -> None: ...

    def close(self) -> None: ...

    def sync(self) -> None:
        self.thread = threading.get_ident()
        if self._error is not None:
            raise self._error


class Running:
    """A shell that listens on a port of its own."""

    def __init__(self, disk: FileDisk | None = None, idle_ms: int = 120_000) -> None:
        self.core = EchoCore()
        self.shell = Shell(self.core, SystemClock(), disk, name="test", idle_ms=idle_ms)
        self.door = bind_port("127.0.0.1", 0)
        self.port = int(self.door.getsockname()[1])

    async def __aenter__(self) -> Running:  # noqa: PYI034
        await self.shell.listen(ListeningPort(self.door))
        self.shell.start()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.shell.close()

    async def ask(self, data: bytes, count: int) -> bytes:
        async with asyncio.timeout(_WAIT_S):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(data)
            found = await reader.readexactly(count) if count else await reader.read()
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()
            return found


def run(main: Callable[[], object]) -> None:
    asyncio.run(main())  # type: ignore[arg-type]


def test_bytes_go_to_the_core_and_its_answers_back() -> None:
    async def main() -> None:
        async with Running() as running:
            assert await running.ask(b"hello", 5) == b"hello"
            await running.core.wait_for(lambda: "lost 1" in running.core.events)
            assert running.core.events[:2] == ["woken", "connected 1 127.0.0.1"]

    run(main)


def test_peer_is_closed_after_what_was_written_before_has_left() -> None:
    async def main() -> None:
        async with Running() as running:
            assert await running.ask(b"close", 0) == b"good-bye"

    run(main)


def test_error_in_the_core_cuts_one_peer_and_no_other(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with Running() as running:
            with contextlib.suppress(ConnectionError):
                assert await running.ask(b"fail", 0) == b""
            assert await running.ask(b"still here", 10) == b"still here"

    run(main)
    assert "cut after an internal error" in caplog.text


def test_core_is_woken_when_it_wants_to_be() -> None:
    async def main() -> None:
        async with Running() as running:
            running.core.wake_in_ms = 5
            running.shell.perform_effects()
            await running.core.wait_for(lambda: running.core.wakes_count >= 2)

    run(main)


class Troubled(EchoCore):
    """Cannot be woken, nor say when it wants to be, nor take in who comes and goes."""

    def wake(self, now_ms: int) -> None:
        super().wake(now_ms)
        raise RuntimeError("asked to fail")

    def wake_at_ms(self) -> int:
        raise RuntimeError("asked to fail")

    def connected(
        self, peer: int, host: str, port: int, now_ms: int, wire: Wire = Wire.REMOTING
    ) -> None:
        super().connected(peer, host, port, now_ms, wire)
        raise RuntimeError("asked to fail")

    def sync_finished(self, log_offset: int, now_ms: int) -> None:
        super().sync_finished(log_offset, now_ms)
        raise RuntimeError("asked to fail")


def test_whatever_fails_in_the_core_it_starts_serves_and_ends() -> None:
    async def main() -> None:
        running = Running()
        running.core = running.shell.core = Troubled()
        async with running:
            assert await running.ask(b"hello", 5) == b"hello"
            running.core.effects.append(Sync((SlowFile(),), 77))
            running.shell.perform_effects()
            await running.core.wait_for(lambda: "synced 77" in running.core.events)
            await running.core.wait_for(lambda: running.core.wakes_count >= 2)

    run(main)


def test_files_are_synced_on_another_thread_and_failures_told() -> None:
    async def main() -> None:
        async with Running() as running:
            good, bad = SlowFile(), SlowFile(OSError(5, "Input/output error"))
            running.core.effects += [Sync((good,), 77), Sync((good, bad), 78)]
            running.shell.perform_effects()
            await running.core.wait_for(lambda: any("failed" in e for e in running.core.events))
            assert good.thread not in (0, threading.get_ident())
            assert "synced 77" in running.core.events
            assert "synced 78" not in running.core.events
            assert any("Input/output error" in event for event in running.core.events)

    run(main)


def test_effect_that_fails_keeps_no_other_from_being_carried_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        def fail(peer: int, reason: str) -> None:
            raise RuntimeError("asked to fail")

        async with Running() as running:
            running.shell.links.close = fail  # type: ignore[method-assign]
            running.core.effects += [Close(99, "asked to"), Sync((SlowFile(),), 17)]
            running.core.wake_in_ms = 5
            running.shell.perform_effects()
            await running.core.wait_for(lambda: "synced 17" in running.core.events)
            await running.core.wait_for(lambda: running.core.wakes_count >= 2)

    run(main)
    assert "an effect could not be carried out" in caplog.text


def test_a_peer_that_cannot_be_told_ends_no_input_and_keeps_no_other_effect_waiting(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Broken(PeerLink):
        def write(self, chunks: list[bytes]) -> bool:
            raise RuntimeError("asked to fail")

    async def main() -> None:
        async with Running() as running:
            running.shell.links.by_peer[99] = Broken(running.shell, 99)
            running.core.effects += [Send(99, [b"x"]), Sync((SlowFile(),), 17)]
            running.shell.perform_effects()
            await running.core.wait_for(lambda: "synced 17" in running.core.events)
            del running.shell.links.by_peer[99]

    run(main)
    assert "peer 99 could not be notified" in caplog.text


def test_small_file_ends_with_its_newest_content(tmp_path: object) -> None:
    async def main() -> None:
        disk = FileDisk(str(tmp_path))
        async with Running(disk) as running:
            running.core.effects += [Replace("a.json", b"%d" % n) for n in range(20)]
            running.shell.perform_effects()
        assert disk.read("a.json") == b"19"

    run(main)


class NoRoom(FileDisk):
    """Has no room for small files."""

    def replace(self, path: str, data: bytes, *, is_private: bool = False) -> None:
        raise DiskFull(f"{path}: no room on the disk")


def test_small_file_without_room_is_one_line_in_the_log(
    tmp_path: object, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        async with Running(NoRoom(str(tmp_path))) as running:
            running.core.effects.append(Replace("a.json", b"1"))
            running.shell.perform_effects()

    run(main)
    (record,) = [one for one in caplog.records if "a.json" in one.getMessage()]
    assert record.exc_info is None
    assert "a.json: no room on the disk; it is retried until it is saved" in record.getMessage()


def test_address_is_dialled_and_what_does_not_answer_is_lost() -> None:
    async def main() -> None:
        async with Running() as running, Running() as other:
            closed = bind_port("127.0.0.1", 0)
            running.core.effects.append(Dial(-1, "127.0.0.1", other.port))
            running.core.effects.append(Dial(-2, "127.0.0.1", int(closed.getsockname()[1])))
            running.shell.perform_effects()
            events = running.core.events
            await running.core.wait_for(
                lambda: "connected -1 127.0.0.1" in events and "lost -2" in events
            )
            closed.close()

    run(main)


def test_address_that_no_socket_understands_is_lost_as_one_that_does_not_answer(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def main() -> None:
        async with Running() as running:
            running.core.effects.append(Dial(-1, "a" * 64 + ".example", 1))
            running.core.effects.append(Dial(-2, "127.0.0.1", 1 << 17))
            running.shell.perform_effects()
            await running.core.wait_for(lambda: {"lost -1", "lost -2"} <= set(running.core.events))

    run(main)
    assert "cannot be dialled" in caplog.text


def test_taken_port_is_refused_with_its_address() -> None:
    door = bind_port("127.0.0.1", 0)
    door.listen()
    port = int(door.getsockname()[1])
    with pytest.raises(ConnectFailed, match=f"127.0.0.1:{port}"):
        bind_port("127.0.0.1", port)
    door.close()


@pytest.mark.parametrize(
    ("host", "port"), [("127.0.0.1", 99_999), ("127.0.0.1", -1), ("192.0.2.1", 0), ("no host", 0)]
)
def test_address_that_cannot_be_had_is_refused(host: str, port: int) -> None:
    with pytest.raises(ConnectFailed, match=f"cannot listen on {host}:{port}: "):
        bind_port(host, port)


class SetClock:
    """A clock that goes on when told to."""

    def __init__(self) -> None:
        self.now = 1_000

    def now_ms(self) -> int:
        return self.now


async def next_round(shell: Shell) -> None:
    """The event loop is through with what it found ready."""
    async with asyncio.timeout(_WAIT_S):
        while shell.alarm.query_timer is not None:
            await asyncio.sleep(0)


def test_core_is_told_how_long_an_input_had_to_wait_for_others() -> None:
    async def main() -> None:
        core, clock = EchoCore(), SetClock()
        shell = Shell(core, clock, None, name="test")
        link = PeerLink(shell, 1)
        shell.start()
        await next_round(shell)
        shell.receive(link, b"first")
        assert core.waited_ms == 0
        clock.now += 120
        shell.receive(link, b"found ready together with the first")
        assert core.waited_ms < 20, "the machine was busy with something else"
        shell.alarm._armed_s -= 0.1
        shell.receive(link, b"after a tenth of a second of work")
        assert 100 <= core.waited_ms < 120
        await next_round(shell)
        shell.receive(link, b"a new round")
        assert core.waited_ms == 0
        await shell.close()

    run(main)


def test_peer_that_sends_much_takes_turns_and_its_backlog_is_known() -> None:
    async def main() -> None:
        async with Running() as running:
            core = running.core
            flood = socket.create_connection(("127.0.0.1", running.port))
            other = socket.create_connection(("127.0.0.1", running.port))
            with flood, other:
                await core.wait_for(lambda: len(core.events) == 3)
                flood.setblocking(False)
                sent = flood.send(bytes(64 * READ_SIZE))
                assert sent >= 8 * READ_SIZE
                other.send(b"ping")
                core.now_ms = 0
                async with asyncio.timeout(_WAIT_S):
                    while sum(size for _, size, _ in core.turns) < sent + 4:
                        await asyncio.sleep(0)
        peers = [peer for peer, _, _ in core.turns]
        assert peers.index(2) <= 2, "the other is served between the first turns of the flood"
        assert max(size for _, size, _ in core.turns) == READ_SIZE

    run(main)


def test_bytes_behind_a_backlog_are_known_to_have_waited() -> None:
    async def main() -> None:
        async with Running() as running:
            core = running.core
            with socket.create_connection(("127.0.0.1", running.port)) as flood:
                await core.wait_for(lambda: len(core.events) == 2)
                (link,) = running.shell.links.by_peer.values()
                link._byte_ms = 1.0  # a core that takes a second for a thousand bytes
                flood.setblocking(False)
                sent = flood.send(bytes(16 * READ_SIZE))
                async with asyncio.timeout(_WAIT_S):
                    while sum(size for _, size, _ in core.turns) < sent:
                        await asyncio.sleep(0)
        first, *_, last = [waited_ms for _, _, waited_ms in core.turns]
        assert first > 0
        assert last < first

    run(main)
