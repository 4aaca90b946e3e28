"""Shells of a group's members, one of which dials the other: by TLS with certificates, or plainly;
real sockets, on both event loops."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
from tests.harness.certificates import OPENSSL, Authority, Pair
from tests.unit.net.test_tls import WAIT_S, Run, Running, run

from escrowmq.base.effects import Dial
from escrowmq.base.wire import Wire
from escrowmq.net.certificate_accounts import parse_certificate_accounts
from escrowmq.net.certificates import ReloadedCertificates, TlsFiles
from escrowmq.net.dialling import dial
from escrowmq.net.tls import MemberTlsPolicy, PortOptions, TlsLink, TlsSession

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")

__all__ = ["run"]

GROUP: Final = (Wire.GROUP,)
WHOLE: Final = ["connected -1"]
REFUSAL: Final = b"speak TLS here"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def pair(authority: Authority) -> Pair:
    return authority.sign("member")


@pytest.fixture(scope="module")
def strangers(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("strangers"), "other")


def doors(pair: Pair, authority: Authority, **more: Any) -> PortOptions:
    files = TlsFiles(
        certificate=str(pair.certificate), key=str(pair.key), trusted=str(authority.root),
        clients="require", dials=True,
    )  # fmt: skip
    wanted = {"mode": "enforcing", "silent_s": 10.0, "refusal": REFUSAL, "plain_fault": "plain"}
    return PortOptions(
        members=MemberTlsPolicy(certificates=ReloadedCertificates(files), **{**wanted, **more}),
    )


async def called(caller: Running, master: Running) -> str:
    """What the one that dials knows first: it is connected, or what has failed."""
    caller.core.events.clear()
    caller.core.effects.append(Dial(-1, "127.0.0.1", master.port, wire=Wire.GROUP))
    caller.shell.perform_effects()
    core = caller.core
    await core.has(lambda: "lost -1" in core.events or core.received.pop(-1, b"") != b"")
    return core.events[-2] if core.events[-1] == "lost -1" else core.events[-1]


def both(run: Run, master: PortOptions, caller: PortOptions) -> str:
    found = []

    async def main() -> None:
        async with Running(master, wires=GROUP) as one, Running(caller) as two:
            found.append(await called(two, one))
            await one.core.has(
                lambda: "connected -1" not in found or "connected 1" in one.core.events
            )

    run(main)
    return found[0]


def test_members_of_one_authority_are_connected(run: Run, authority: Authority, pair: Pair) -> None:
    assert both(run, doors(pair, authority), doors(pair, authority)) == "connected -1"


def test_a_certificate_of_another_authority_is_refused_by_either_end(
    run: Run,
    authority: Authority,
    pair: Pair,
    strangers: Authority,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stranger = strangers.sign("stranger")
    wrong_root = both(run, doors(pair, authority), doors(pair, strangers))
    assert "TLS: CERTIFICATE_VERIFY_FAILED: " in wrong_root
    assert wrong_root.startswith("tls_failed -1: ")
    caplog.clear()
    wrong_pair = both(run, doors(pair, authority), doors(stranger, authority))
    assert "_ALERT_UNKNOWN_CA" in wrong_pair
    assert wrong_pair.startswith("tls_failed -1: ")
    (line,) = [record.getMessage() for record in caplog.records]
    assert "a connection from 127.0.0.1 is refused: TLS: CERTIFICATE_VERIFY_FAILED: " in line


def test_a_master_that_speaks_plainly_is_told_apart_from_one_that_is_not_there(
    run: Run, authority: Authority, pair: Pair
) -> None:
    async def main() -> None:
        async with Running(doors(pair, authority)) as caller:
            door = socket.create_server(("127.0.0.1", 0))
            port = door.getsockname()[1]

            def greet() -> None:
                link, _ = door.accept()
                link.sendall(b"\0\0\0\x09challenge")
                link.recv(1 << 16)
                link.close()

            greeting = asyncio.create_task(asyncio.to_thread(greet))
            caller.core.effects.append(Dial(-1, "127.0.0.1", port, wire=Wire.GROUP))
            caller.shell.perform_effects()
            await caller.core.has(lambda: "lost -1" in caller.core.events)
            assert caller.core.events == ["tls_failed -1: TLS: NOT_TLS", "lost -1"]
            await greeting
            door.close()
            caller.core.events.clear()
            caller.core.effects.append(Dial(-1, "127.0.0.1", port, wire=Wire.GROUP))
            caller.shell.perform_effects()
            await caller.core.has(lambda: "lost -1" in caller.core.events)
            assert caller.core.events == ["refused -1", "lost -1"]

    run(main)


def test_a_plain_greeting_that_comes_before_the_handshake_begins_is_no_other_fault(
    run: Run, authority: Authority, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    options = doors(pair, authority)
    assert options.members is not None
    context = options.members.certificates.dialling
    assert context is not None

    async def main() -> None:
        async with Running(options) as caller:
            with socket.create_server(("127.0.0.1", 0)) as door:
                session = TlsSession(context, is_server=False)
                link = TlsLink(caller.shell, -1, session, wires=GROUP)
                await dial(lambda: link, "127.0.0.1", door.getsockname()[1])
                with door.accept()[0] as other:
                    other.sendall(b"\0\0\0\x09challenge")
                    await caller.core.has(lambda: "lost -1" in caller.core.events)
                link.begin_handshake()
            assert caller.core.events == ["tls_failed -1: TLS: NOT_TLS", "lost -1"]

    run(main)
    assert caplog.records == []


def test_a_master_that_does_not_shake_hands_is_given_up(
    run: Run, authority: Authority, pair: Pair
) -> None:
    async def main() -> None:
        async with Running(doors(pair, authority, handshake_s=0.2)) as caller:
            with socket.create_server(("127.0.0.1", 0)) as door:
                where = ("127.0.0.1", door.getsockname()[1])
                caller.core.effects.append(Dial(-1, *where, wire=Wire.GROUP))
                caller.shell.perform_effects()
                await caller.core.has(lambda: "lost -1" in caller.core.events)
            assert caller.core.events[0] == "tls_failed -1: TLS: no handshake within 0 s"

    run(main)


@pytest.mark.parametrize("said", [b"", b"\0\0\0\x05hello"])
def test_a_plain_copy_gets_the_reason_in_its_own_protocol(
    run: Run, authority: Authority, pair: Pair, said: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    strict = doors(pair, authority, silent_s=0.2)

    async def main() -> None:
        async with Running(strict, wires=GROUP) as master:
            assert await master.ask(said, 0, None) == REFUSAL
            assert master.core.events == []

    run(main)
    assert [record.getMessage() for record in caplog.records] == [
        "test: a connection from 127.0.0.1 is refused: plain"
    ]


def test_a_permissive_master_lets_plain_copies_in_which_say_nothing_first(
    run: Run, authority: Authority, pair: Pair
) -> None:
    lax = doors(pair, authority, mode="permissive", silent_s=0.1, handshakes_max=1)

    async def main() -> None:
        async with Running(lax, wires=GROUP) as master, Running(PortOptions()) as plain:
            reader, writer = await asyncio.open_connection("127.0.0.1", master.port)
            await master.core.has(lambda: "connected 1" in master.core.events)
            assert await called(plain, master) == "connected -1"
            async with Running(doors(pair, authority)) as strict:
                assert await called(strict, master) == "connected -1"
            # It has spoken: it is not the oldest one without a handshake.
            writer.write(b"hello")
            async with asyncio.timeout(WAIT_S):
                assert await reader.readexactly(5) == b"hello"
            writer.transport.abort()

    run(main)


def test_a_permissive_copy_dials_plainly_once_when_tls_has_failed(
    run: Run, authority: Authority, pair: Pair
) -> None:
    lax = doors(pair, authority, mode="permissive")
    assert lax.members is not None
    with_tls, plain, again = lax.members.next_context(), None, None
    assert with_tls is lax.members.certificates.dialling
    lax.members.note_tls_failure()
    plain, again = lax.members.next_context(), lax.members.next_context()
    assert plain is None
    assert again is with_tls
    strict = doors(pair, authority).members
    assert strict is not None
    strict.note_tls_failure()
    assert strict.next_context() is not None


def test_a_permissive_copy_gets_to_a_plain_master_at_the_second_dial(
    run: Run, authority: Authority, pair: Pair
) -> None:
    lax = doors(pair, authority, mode="permissive")

    async def main() -> None:
        async with Running(PortOptions(), wires=GROUP) as master, Running(lax) as copy:
            assert (await called(copy, master)).startswith("tls_failed -1: ")
            assert await called(copy, master) == "connected -1"

    run(main)


def test_of_too_many_handshakes_the_oldest_is_cut_and_members_get_in(
    run: Run, authority: Authority, pair: Pair, caplog: pytest.LogCaptureFixture
) -> None:
    strict = doors(pair, authority, handshakes_max=2)

    async def main() -> None:
        async with Running(strict, wires=GROUP) as master:
            links = [await asyncio.open_connection("127.0.0.1", master.port) for _ in range(2)]
            links[1][1].write(b"\x16\x03\x01\x02\0\x01")
            async with Running(doors(pair, authority)) as caller:
                assert await called(caller, master) == "connected -1"
                async with asyncio.timeout(WAIT_S):
                    assert await links[0][0].read() == b""
                # The member has proved itself: it counts no more, and is not cut for strangers.
                links += [await asyncio.open_connection("127.0.0.1", master.port) for _ in range(2)]
                async with asyncio.timeout(WAIT_S):
                    assert await links[1][0].read() == b""
                assert "lost -1" not in caller.core.events
            for _, writer in links:
                writer.transport.abort()

    run(main)
    assert caplog.text.count("more than 2 handshakes") >= 2


def test_a_members_certificate_is_nobodys_account(
    run: Run, authority: Authority, pair: Pair
) -> None:
    """Accounts are for clients' certificates, of which others may sign some."""
    strict = doors(pair, authority)
    strict.identities = parse_certificate_accounts("CN")
    proved: list[int] = []

    async def main() -> None:
        async with Running(strict, wires=GROUP) as master, Running(doors(pair, authority)) as two:
            master.core.proved = lambda peer, account: proved.append(peer)  # type: ignore[attr-defined]
            assert await called(two, master) == "connected -1"
            await master.core.has(lambda: 1 in master.core.received)

    run(main)
    assert proved == []


def test_renewed_files_are_for_both_ends_without_a_restart(
    run: Callable[[Callable[[], Awaitable[None]]], None],
    authority: Authority,
    pair: Pair,
    strangers: Authority,
    tmp_path: Path,
) -> None:
    """All of it is renewed, the authority too."""
    used = Pair(tmp_path / "used.pem", tmp_path / "used.key")
    root = tmp_path / "root.pem"
    other = strangers.sign("renewed")

    def use(pair: Pair, trusted: Path) -> None:
        shutil.copyfile(pair.certificate, used.certificate)
        shutil.copyfile(pair.key, used.key)
        shutil.copyfile(trusted, root)

    use(pair, authority.root)
    renewed = Authority.__new__(Authority)
    renewed.root = root

    async def main() -> None:
        one = doors(used, renewed, poll_interval_s=0.02)
        two = doors(used, renewed, poll_interval_s=0.02)
        async with Running(one, wires=GROUP) as master, Running(two) as caller:
            assert await called(caller, master) == "connected -1"
            use(other, strangers.root)
            async with (
                asyncio.timeout(WAIT_S),
                Running(doors(other, strangers)) as new_caller,
                Running(doors(other, strangers), wires=GROUP) as new_master,
            ):
                while await called(new_caller, master) != "connected -1":
                    pass
                while await called(caller, new_master) != "connected -1":
                    pass

    run(main)
