"""Records as ConfigMaps, at an API server of the tests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import uvloop

from escrowmq.authority import opening
from escrowmq.authority.engine_authority import EngineAuthority
from escrowmq.authority.kubernetes import KubernetesEngine
from escrowmq.authority.opening import open_authority
from escrowmq.base.authority import ABSENT, VersionedRecord
from escrowmq.errors import AuthorityRefused, AuthorityUnreachable
from tests.harness import certificates

from .kubernetes_server import NAMESPACE, TOKEN, ApiServer
from .races import basics, contend, number_of

pytestmark = pytest.mark.skipif(certificates.OPENSSL is None, reason="not on this machine: openssl")

KEY = "DefaultCluster/broker_A"


class Pod:
    """An API server, and the files that a pod would have."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        root = certificates.Authority(folder / "tls")
        self.api = ApiServer(root.sign("api"))
        (folder / "token").write_text(f"{TOKEN}\n")
        (folder / "namespace").write_text(NAMESPACE)
        (folder / "ca.crt").write_bytes(root.root.read_bytes())

    def open(self, path: str = f"/{NAMESPACE}", options: str = "") -> EngineAuthority:
        files = f"token={self.folder / 'token'}&ca={self.folder / 'ca.crt'}"
        url = f"kubernetes://127.0.0.1:{self.api.port}{path}?{files}{options}"
        authority = open_authority(url)
        assert isinstance(authority, EngineAuthority)
        return authority


@pytest.fixture
def pod(tmp_path: Path) -> Iterator[Pod]:
    pod = Pod(tmp_path)
    yield pod
    pod.api.close()


def engine_of(authority: EngineAuthority) -> KubernetesEngine:
    engine = authority._engine
    assert isinstance(engine, KubernetesEngine)
    return engine


@pytest.mark.parametrize("runs", [asyncio.run, uvloop.run])
def test_a_record_is_created_changed_and_compared(pod: Pod, runs: Callable[[Any], None]) -> None:
    runs(basics(pod.open(), KEY))
    assert pod.api.objects == {}


def test_it_compares(pod: Pod) -> None:
    asyncio.run(pod.open().require_fit())
    assert pod.api.objects == {}


def test_no_update_is_lost_when_many_write(pod: Pod) -> None:
    async def use() -> None:
        written = await contend([pod.open() for _ in range(5)], KEY, 8)
        assert written == list(range(1, 41))
        assert number_of(await pod.open().read(KEY)) == 40

    asyncio.run(use())


def test_in_a_pod_nothing_has_to_be_named(pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "POD_FILES", pod.folder)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "127.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(pod.api.port))
    authority = open_authority("kubernetes://")
    assert authority.name == f"Kubernetes at 127.0.0.1:{pod.api.port}, namespace shop"
    asyncio.run(authority.write_if(KEY, b'{"epoch":1}', ""))
    ((name, item),) = pod.api.objects.items()
    assert re.fullmatch("escrowmq-defaultcluster-broker-a-[0-9a-f]{8}", name)
    assert item["data"] == {"record": '{"epoch":1}'}  # people can read it
    assert item["metadata"]["annotations"] == {"escrowmq/key": KEY}


def test_keys_that_look_alike_have_objects_of_their_own(pod: Pod) -> None:
    engine = engine_of(pod.open(f"/{NAMESPACE}/mine"))
    names = {engine.object_name(key) for key in ("a/B", "a/b", "a/b_", "a/" + "b" * 300)}
    assert len(names) == 4
    assert all(re.fullmatch("mine-a-b+-[0-9a-f]{8}", name) for name in names)
    assert max(map(len, names)) < 100


def test_what_people_do_to_a_record_is_seen(pod: Pod) -> None:
    async def use() -> None:
        authority = pod.open()
        written = await authority.write_if(KEY, b"one", "")
        assert written is not None
        (name,) = pod.api.objects
        for data in ({}, None, {"other": "x"}, {"record": ""}):
            pod.api.put(name, {"metadata": {"name": name}, "data": data})
            empty = await authority.read(KEY)
            assert (empty.value, bool(empty.revision)) == (b"", True)
        assert await authority.write_if(KEY, b"two", written.revision) is None
        pod.api.objects.clear()
        assert await authority.write_if(KEY, b"two", empty.revision) is None
        assert await authority.read(KEY) == ABSENT

    asyncio.run(use())


@pytest.mark.parametrize("value", ["theirs", None])
def test_a_change_between_reading_and_writing_is_seen(pod: Pod, value: str | None) -> None:
    async def use() -> None:
        authority = pod.open()
        written = await authority.write_if(KEY, b"one", "")
        assert written is not None
        engine = engine_of(authority)
        (name,) = pod.api.objects
        reading = engine.read_once

        async def read_and_be_late(key: str) -> VersionedRecord:
            found = await reading(key)
            if value is None:
                pod.api.objects.clear()
            else:
                pod.api.put(name, {"metadata": {"name": name}, "data": {"record": value}})
            return found

        engine.read_once = read_and_be_late  # type: ignore[method-assign]
        assert await engine.write_once(KEY, b"two", written.revision) is None
        engine.read_once = reading  # type: ignore[method-assign]
        assert (await authority.read(KEY)).value == (value or "").encode()

    asyncio.run(use())


def test_a_restored_one_does_not_take_an_older_version(pod: Pod) -> None:
    async def use() -> None:
        authority = pod.open()
        lost = await authority.write_if(KEY, b"lost", "")
        assert lost is not None
        pod.api.objects.clear()
        pod.api.version = 100
        again = await authority.write_if(KEY, b"again", "")
        assert again is not None
        assert again.revision.partition("-")[0] == lost.revision.partition("-")[0]
        assert await authority.write_if(KEY, b"two", lost.revision) is None
        assert await authority.read(KEY) == again

    asyncio.run(use())


def test_errors_for_a_while(pod: Pod) -> None:
    async def use() -> None:
        authority = pod.open()
        pod.api.fails = 3
        assert await authority.read(KEY) == ABSENT
        pod.api.fails = 10**6
        impatient = EngineAuthority(authority._engine, call_s=0.3)
        with pytest.raises(AuthorityUnreachable, match=r"no leader \(HTTP status 503\)"):
            await impatient.write_if(KEY, b"one", "")
        pod.api.fails = 0
        assert await authority.write_if(KEY, b"one", "") is not None

    asyncio.run(use())


def test_what_is_refused_is_said(pod: Pod) -> None:
    async def use() -> None:
        with pytest.raises(AuthorityRefused, match=r"namespaces not found \(HTTP status 404\)"):
            await pod.open("/elsewhere").write_if(KEY, b"one", "")
        pod.api.forbids = {"create"}
        with pytest.raises(AuthorityRefused, match=r"cannot create \(HTTP status 403\)"):
            await pod.open().write_if(KEY, b"one", "")
        authority = pod.open()
        (pod.folder / "token").write_text("another")
        with pytest.raises(AuthorityRefused, match=r"Unauthorized \(HTTP status 401\)"):
            await authority.read(KEY)
        (pod.folder / "token").write_text(TOKEN)  # read anew each time
        assert await authority.read(KEY) == ABSENT
        (pod.folder / "token").unlink()
        with pytest.raises(AuthorityRefused, match="No such file"):
            await authority.read(KEY)

    asyncio.run(use())


def test_a_proof_without_the_right_to_delete_succeeds(pod: Pod) -> None:
    pod.api.forbids = {"delete"}
    asyncio.run(pod.open().require_fit())
    (name,) = pod.api.objects
    with pytest.raises(AuthorityRefused, match="cannot delete"):
        asyncio.run(engine_of(pod.open()).delete_once(name))


def test_a_strange_certificate_is_refused(pod: Pod, tmp_path: Path) -> None:
    stranger = certificates.Authority(tmp_path / "stranger", "stranger")
    (pod.folder / "ca.crt").write_bytes(stranger.root.read_bytes())
    impatient = EngineAuthority(pod.open()._engine, call_s=0.1)
    with pytest.raises(AuthorityUnreachable, match="certificate verify failed"):
        asyncio.run(impatient.read(KEY))


def test_requests_are_few(pod: Pod) -> None:
    async def use() -> None:
        authority = pod.open()
        written = await authority.write_if(KEY, b"one", "")
        assert written is not None
        await authority.write_if(KEY, b"two", written.revision)
        await authority.read(KEY)
        assert pod.api.requests == ["create", "get", "update", "get"]

    asyncio.run(use())
