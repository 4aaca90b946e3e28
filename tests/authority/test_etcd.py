"""Records in etcd: real servers, which are killed, stalled and cut off."""

from __future__ import annotations

import asyncio
import base64
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from escrowmq.authority.engine_authority import CALL_S, EngineAuthority
from escrowmq.authority.opening import open_authority
from escrowmq.base.authority import ABSENT
from escrowmq.errors import AuthorityRefused, AuthorityUnreachable
from tests.harness import certificates
from tests.interop.drivers import unique

from . import etcd_servers
from .cutter import Cutter
from .etcd_servers import EtcdCluster, call
from .races import basics, contend, number_of


def opened(url: str) -> EngineAuthority:
    authority = open_authority(url)
    assert isinstance(authority, EngineAuthority)
    return authority


def put(etcd: EtcdCluster, key: str, value: bytes) -> None:
    """By hand."""
    body = {"key": _base64(f"test/{key}".encode()), "value": _base64(value)}
    call(etcd.nodes[0].client_url, "kv/put", body)


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


@pytest.fixture
def key() -> str:
    return f"cluster/{unique('broker')}"


@pytest.mark.parametrize("runs", [asyncio.run, uvloop.run])
def test_a_record_is_created_changed_and_compared(
    etcd: EtcdCluster, key: str, runs: Callable[[Any], None]
) -> None:
    runs(basics(opened(etcd.url), key))


def test_etcd_compares(etcd: EtcdCluster) -> None:
    authority = opened(etcd.url)
    asyncio.run(authority.require_fit())
    left = {"key": _base64(b"test/scratch/"), "range_end": _base64(b"test/scratch0")}
    assert "kvs" not in call(etcd.nodes[0].client_url, "kv/range", left)


def test_no_update_is_lost_when_many_write(three: EtcdCluster, key: str) -> None:
    authorities = [open_authority(three.url) for _ in range(10)]
    written = asyncio.run(contend(authorities, key, 10))
    assert written == list(range(1, 101))


@pytest.mark.parametrize("cut", ["before", "after", "stall", "503 Service Unavailable"])
def test_a_lost_answer_is_resolved(etcd: EtcdCluster, key: str, cut: str) -> None:
    async def use() -> None:
        async with Cutter(etcd.nodes[0].port).open() as cutter:
            authority = opened(f"etcd://127.0.0.1:{cutter.port}/test?timeout=2")
            cutter.plan = [cut]
            written = await authority.write_if(key, b"one", "")
            assert written is not None
            assert written == await authority.read(key)
            took_effect = cut == "after"
            assert len(cutter.requests) == (3 if took_effect else 4)

    asyncio.run(use())


def test_no_update_is_lost_while_answers_are(etcd: EtcdCluster, key: str) -> None:
    async def use() -> None:
        async with Cutter(etcd.nodes[0].port).open() as cutter:
            cutter.plan = ["", "after", "", "before", "503 Unavailable", "after", "after"] * 20
            url = f"etcd://127.0.0.1:{cutter.port}/test"
            written = await contend([open_authority(url) for _ in range(5)], key, 10)
            assert len(set(written)) == len(written) == 50
            # Some took effect, and others wrote after them before they knew: they count for nobody.
            assert number_of(await open_authority(etcd.url).read(key)) >= max(written) >= 50

    asyncio.run(use())


def test_errors_for_a_while_end_as_unreachable(etcd: EtcdCluster, key: str) -> None:
    async def use() -> None:
        async with Cutter(etcd.nodes[0].port).open() as cutter:
            authority = EngineAuthority(
                opened(f"etcd://127.0.0.1:{cutter.port}/test")._engine, call_s=0.5
            )
            cutter.plan = ["503 Service Unavailable"] * 30
            for call_ in (authority.read(key), authority.write_if(key, b"1", "")):
                with pytest.raises(AuthorityUnreachable, match=r"no leader \(HTTP status 503\)"):
                    await call_
            cutter.plan = []
            assert await authority.read(key) == ABSENT

    asyncio.run(use())


def test_an_answer_that_is_no_etcd_s_is_unreachable(etcd: EtcdCluster, key: str) -> None:
    async def use() -> None:
        async with Cutter(etcd.nodes[0].port).open() as cutter:
            authority = opened(f"etcd://127.0.0.1:{cutter.port}/test")
            engine = authority._engine
            cutter.plan = ["200 OK"]
            assert await engine.read_once(key) == ABSENT  # an object without fields we know
            cutter.plan = ["404 Not Found"]
            with pytest.raises(AuthorityRefused, match="HTTP status 404"):
                await engine.read_once(key)

    asyncio.run(use())


def test_no_update_is_lost_while_servers_die_in_turn(three: EtcdCluster, key: str) -> None:
    def kill_each() -> None:
        for node in (three.leader(), *three.nodes):
            node.kill()
            three.restart(node)
            three.wait()

    async def use() -> None:
        killing = asyncio.create_task(asyncio.to_thread(kill_each))
        written: list[int] = []
        while not killing.done():
            written += await contend([open_authority(three.url) for _ in range(3)], key, 5)
        await killing
        assert len(set(written)) == len(written)
        assert number_of(await open_authority(three.url).read(key)) >= max(written)

    asyncio.run(use())


def test_a_stalled_one_is_left_within_its_timeout(three: EtcdCluster, key: str) -> None:
    async def use() -> None:
        authority = opened(f"{three.url}?timeout=3")
        written = await authority.write_if(key, b"one", "")
        assert written is not None
        three.nodes[0].stall()
        begun = time.monotonic()
        changed = await authority.write_if(key, b"two", written.revision)
        assert changed is not None
        assert time.monotonic() - begun < CALL_S
        begun = time.monotonic()
        assert await authority.read(key) == changed
        assert time.monotonic() - begun < 2  # that one is not asked any more

    asyncio.run(use())


def test_a_minority_answers_nothing(three: EtcdCluster, key: str) -> None:
    async def use() -> None:
        survivor = three.nodes[0]
        for node in three.nodes[1:]:
            node.kill()
        alone = opened(f"etcd://127.0.0.1:{survivor.port}/test?timeout=0.5")
        authority = EngineAuthority(alone._engine, call_s=1)
        for call_ in (authority.read(key), authority.write_if(key, b"1", "")):
            with pytest.raises(AuthorityUnreachable, match=f"etcd at 127.0.0.1:{survivor.port}: "):
                await call_

    asyncio.run(use())


def test_all_may_die_and_return(three: EtcdCluster, key: str) -> None:
    async def use() -> None:
        authority = open_authority(three.url)
        written = await authority.write_if(key, b"one", "")
        for node in three.nodes:
            node.kill()
        begun = time.monotonic()
        with pytest.raises(AuthorityUnreachable, match=r"etcd at 127\.0\.0\.1:"):
            await authority.read(key)
        assert time.monotonic() - begun < CALL_S + 2
        for node in three.nodes:
            three.restart(node)
        await asyncio.to_thread(three.wait)
        assert await authority.read(key) == written

    asyncio.run(use())


def test_what_people_do_to_a_record_is_seen(etcd: EtcdCluster, key: str) -> None:
    async def use() -> None:
        authority = opened(etcd.url)
        written = await authority.write_if(key, b"one", "")
        assert written is not None
        put(etcd, key, b"one")  # the same again is a write all the same
        assert await authority.write_if(key, b"two", written.revision) is None
        put(etcd, key, b"")
        empty = await authority.read(key)
        assert (empty.value, bool(empty.revision)) == (b"", True)
        call(etcd.nodes[0].client_url, "kv/deleterange", {"key": _base64(f"test/{key}".encode())})
        assert await authority.write_if(key, b"two", empty.revision) is None
        assert await authority.read(key) == ABSENT

    asyncio.run(use())


def test_a_restored_etcd_does_not_take_an_older_revision(tmp_path: Path, key: str) -> None:
    if missing := etcd_servers.missing():
        pytest.skip(f"not on this machine: {missing}")

    async def use() -> None:
        authority, another = opened(etcd.url), opened(etcd.url)
        first = await authority.write_if(key, b"one", "")
        assert first is not None
        etcd.stop()
        shutil.copytree(etcd.nodes[0].folder / "data", tmp_path / "backup")
        etcd.restart(etcd.nodes[0])
        lost = await authority.write_if(key, b"two", first.revision)
        assert lost is not None
        etcd.stop()
        shutil.rmtree(etcd.nodes[0].folder / "data")
        shutil.move(tmp_path / "backup", etcd.nodes[0].folder / "data")
        etcd.restart(etcd.nodes[0])
        again = await another.write_if(key, b"three", first.revision)
        assert again is not None
        assert again.revision.partition("-")[0] == lost.revision.partition("-")[0]
        for each in (authority, another):
            assert await each.write_if(key, b"four", lost.revision) is None
        assert await authority.read(key) == again

    etcd = EtcdCluster(tmp_path, 1)
    try:
        asyncio.run(use())
    finally:
        etcd.stop()


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[EtcdCluster]:
    """An etcd with the accounts root and broker. The latter may use keys from `test/` on."""
    if missing := etcd_servers.missing():
        pytest.skip(f"not on this machine: {missing}")
    etcd = EtcdCluster(tmp_path, 1)
    url = etcd.nodes[0].client_url
    call(url, "auth/user/add", {"name": "root", "password": "all"})
    call(url, "auth/user/grant", {"user": "root", "role": "root"})
    call(url, "auth/role/add", {"name": "records"})
    rights = {"permType": "READWRITE", "key": _base64(b"test/"), "range_end": _base64(b"test0")}
    call(url, "auth/role/grant", {"name": "records", "perm": rights})
    call(url, "auth/user/add", {"name": "broker", "password": "s:cret"})
    call(url, "auth/user/grant", {"user": "broker", "role": "records"})
    call(url, "auth/enable", {})
    yield etcd
    etcd.stop()


def test_accounts_are_checked(guarded: EtcdCluster, key: str) -> None:
    async def use() -> None:
        hosts = guarded.hosts
        for wrong, said in (
            (f"etcd://{hosts}/test", "user name is empty"),
            (f"etcd://broker:guess@{hosts}/test", "invalid user ID or password"),
            (f"etcd://broker:s%3Acret@{hosts}/other", "permission denied"),
        ):
            with pytest.raises(AuthorityRefused, match=f"etcd at {hosts}: .*{said}") as caught:
                await opened(wrong).read(key)
            assert "guess" not in str(caught.value)
        authority = opened(f"etcd://broker:s%3Acret@{hosts}/test")
        await authority.require_fit()
        written = await authority.write_if(key, b"one", "")
        assert written is not None
        # A token that the server does not know (any more) is renewed.
        authority._engine._token = "abcdef.1"  # type: ignore[attr-defined]
        changed = await authority.write_if(key, b"two", written.revision)
        assert changed is not None
        # Whatever changes accounts makes older tokens worthless.
        url = guarded.nodes[0].client_url
        token = call(url, "auth/authenticate", {"name": "root", "password": "all"})["token"]
        call(url, "auth/user/add", {"name": "new", "password": "x"}, token)
        assert await authority.write_if(key, b"three", changed.revision) is not None

    asyncio.run(use())


def test_a_token_from_before_accounts_changed_is_renewed(guarded: EtcdCluster, key: str) -> None:
    async def use() -> None:
        async with Cutter(guarded.nodes[0].port).open() as cutter:
            authority = opened(f"etcd://broker:s%3Acret@127.0.0.1:{cutter.port}/test")
            written = await authority.write_if(key, b"one", "")
            cutter.plan = ["400 Bad Request|etcdserver: revision of auth store is old"]
            assert await authority.read(key) == written
            calls = [line.split()[1].removeprefix(b"/v3/") for line in cutter.requests[2:]]
            assert calls == [b"kv/range", b"auth/authenticate", b"kv/range"]

    asyncio.run(use())


def test_an_account_that_is_not_needed_is_said(etcd: EtcdCluster, key: str) -> None:
    with pytest.raises(AuthorityRefused, match="authentication is not enabled"):
        asyncio.run(opened(f"etcd://user:x@{etcd.hosts}").read(key))


@pytest.mark.skipif(certificates.OPENSSL is None, reason="not on this machine: openssl")
def test_certificates_are_checked_on_both_sides(tmp_path: Path, key: str) -> None:
    if missing := etcd_servers.missing():
        pytest.skip(f"not on this machine: {missing}")
    root = certificates.Authority(tmp_path / "tls")
    stranger = certificates.Authority(tmp_path / "stranger", "stranger")
    etcd = EtcdCluster(tmp_path, 1, (root.root, root.sign("etcd")))
    client = root.sign("client")

    async def use() -> None:
        url = f"etcds://{etcd.hosts}/test?timeout=2"
        shown = f"cert={client.certificate}&key={client.key}"
        assert await opened(f"{url}&ca={root.root}&{shown}").read(key) == ABSENT
        for wrong, said in (
            (f"{url}&ca={stranger.root}&{shown}", "certificate verify failed"),
            (f"{url}&ca={root.root}", "certificate"),
            (f"{url.replace('etcds', 'etcd')}", "400|ended|reset"),
        ):
            engine = EngineAuthority(opened(wrong)._engine, call_s=0.1)
            with pytest.raises(AuthorityUnreachable, match=said):
                await engine.read(key)

    try:
        asyncio.run(use())
    finally:
        etcd.stop()


def test_a_call_is_one_request(etcd: EtcdCluster, key: str) -> None:
    async def use() -> None:
        async with Cutter(etcd.nodes[0].port).open() as cutter:
            authority = opened(f"etcd://127.0.0.1:{cutter.port}/test")
            written = await authority.write_if(key, b"one", "")
            assert written is not None
            await authority.write_if(key, b"two", written.revision)
            await authority.read(key)
            assert len(cutter.requests) == 3

    asyncio.run(use())
