"""Records in a bucket: of a real S3 server, and of one that ignores conditions."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from escrowmq.authority.engine_authority import CALL_S, EngineAuthority
from escrowmq.authority.opening import open_authority
from escrowmq.base.authority import ABSENT
from escrowmq.errors import AuthorityRefused, AuthorityUnfit, AuthorityUnreachable
from tests.interop.drivers import unique

from .buckets import BUCKET, CarelessBucket, SeaweedServer
from .cutter import Cutter
from .races import basics, contend, number_of

pytestmark = pytest.mark.usefixtures("credentials")


def opened(url: str) -> EngineAuthority:
    authority = open_authority(url)
    assert isinstance(authority, EngineAuthority)
    return authority


def at(port: int, options: str = "") -> str:
    return f"s3://{BUCKET}/test?endpoint=http://127.0.0.1:{port}{options}"


@pytest.fixture
def key() -> str:
    return f"cluster/{unique('broker')}"


@pytest.fixture
def careless() -> Iterator[CarelessBucket]:
    bucket = CarelessBucket()
    yield bucket
    bucket.close()


def test_a_record_is_created_changed_and_compared(seaweed: SeaweedServer, key: str) -> None:
    async def use() -> None:
        authority = opened(seaweed.url)
        await basics(authority, key)
        await authority.close()

    asyncio.run(use())


def test_seaweed_compares(seaweed: SeaweedServer) -> None:
    async def use() -> None:
        authority = opened(seaweed.url)
        assert authority.name == f"S3 bucket {BUCKET} at http://127.0.0.1:{seaweed.port}"
        await authority.require_fit()
        await authority.close()

    asyncio.run(use())


def test_no_update_is_lost_when_many_write(seaweed: SeaweedServer, key: str) -> None:
    async def use() -> None:
        authorities = [open_authority(seaweed.url) for _ in range(5)]
        written = await contend(authorities, key, 10)
        assert len(set(written)) == len(written) == 50
        assert number_of(await authorities[0].read(key)) == max(written)
        for each in authorities:
            await each.close()

    asyncio.run(use())


@pytest.mark.parametrize("cut", ["before", "after", "503 Slow Down", "409 Conflict"])
def test_a_lost_answer_is_resolved(seaweed: SeaweedServer, key: str, cut: str) -> None:
    async def use() -> None:
        async with Cutter(seaweed.port).open() as cutter:
            authority = opened(at(cutter.port))
            cutter.plan = [cut]
            written = await authority.write_if(key, b"one", "")
            assert written is not None
            assert written == await authority.read(key)
            # A conflict is looked into at once, and once more before the write is repeated.
            assert len(cutter.requests) == {"after": 3, "409 Conflict": 5}.get(cut, 4)
            await authority.close()

    asyncio.run(use())


@pytest.mark.parametrize(
    ("heeds", "said"),
    [
        ((), "that create a record, 2 succeeded"),
        (("If-Match",), "that create a record, 2 succeeded"),
        (("If-None-Match",), "a write with an old revision succeeded"),
    ],
)
def test_a_server_that_ignores_conditions_is_refused(
    careless: CarelessBucket, heeds: tuple[str, ...], said: str
) -> None:
    async def use() -> None:
        authority = opened(at(careless.port))
        await authority.require_fit()
        careless.heeds = heeds
        with pytest.raises(AuthorityUnfit, match=said):
            await authority.require_fit()
        assert careless.objects == {}
        await authority.close()

    asyncio.run(use())


def test_a_server_without_etags_is_refused(careless: CarelessBucket, key: str) -> None:
    async def use() -> None:
        careless.has_tags = False
        authority = opened(at(careless.port))
        with pytest.raises(AuthorityUnfit, match="no ETag"):
            await authority.write_if(key, b"one", "")
        await authority.close()

    asyncio.run(use())


def test_errors_for_a_while(careless: CarelessBucket, key: str) -> None:
    async def use() -> None:
        authority = opened(at(careless.port))
        written = await authority.write_if(key, b"one", "")
        assert written is not None
        careless.fails = 3
        assert await authority.read(key) == written
        careless.fails = 10**6
        impatient = EngineAuthority(authority._engine, call_s=0.3)
        with pytest.raises(AuthorityUnreachable, match="SlowDown: Reduce your request rate"):
            await impatient.write_if(key, b"two", written.revision)
        careless.fails = 0
        assert await authority.write_if(key, b"two", written.revision) is not None
        await authority.close()

    asyncio.run(use())


def test_what_people_do_to_a_record_is_seen(careless: CarelessBucket, key: str) -> None:
    async def use() -> None:
        authority = opened(at(careless.port))
        written = await authority.write_if(key, b"one", "")
        assert written is not None
        path = f"/{BUCKET}/test/{key}"
        careless.objects[path] = b""
        empty = await authority.read(key)
        assert (empty.value, bool(empty.revision)) == (b"", True)
        assert await authority.write_if(key, b"two", written.revision) is None
        del careless.objects[path]
        assert await authority.write_if(key, b"two", empty.revision) is None
        assert await authority.read(key) == ABSENT
        await authority.close()

    asyncio.run(use())


def test_wrong_credentials_and_buckets_are_said(
    seaweed: SeaweedServer, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(url: str, said: str) -> None:
        authority = opened(url)
        for call in (authority.read(key), authority.write_if(key, b"1", "1-0123456789abcdef")):
            with pytest.raises(AuthorityRefused, match=said):
                await call
        await authority.close()

    asyncio.run(refused(seaweed.url.replace(BUCKET, "nowhere"), "NoSuchBucket"))
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "guess")
    asyncio.run(refused(seaweed.url, "SignatureDoesNotMatch"))
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "nobody")
    asyncio.run(refused(seaweed.url, "InvalidAccessKeyId"))


def test_a_server_that_is_killed_or_silent(tmp_path: Path, key: str) -> None:
    async def use(server: SeaweedServer) -> None:
        authority = opened(server.url)
        written = await authority.write_if(key, b"one", "")
        async with Cutter(server.port).open() as cutter:
            cutter.plan = ["stall"]
            silent = EngineAuthority(opened(at(cutter.port, "&timeout=0.5"))._engine, call_s=0)
            begun = time.monotonic()
            with pytest.raises(AuthorityUnreachable, match=r"(?i)no answer within 0.5 s|error"):
                await silent.read(key)
            assert time.monotonic() - begun < 2
            await silent.close()
        server.kill()
        begun = time.monotonic()
        with pytest.raises(AuthorityUnreachable, match="S3 bucket records at"):
            await authority.read(key)
        assert time.monotonic() - begun < CALL_S + 2
        await asyncio.to_thread(server.start)
        assert await authority.read(key) == written
        await authority.close()

    server = SeaweedServer(tmp_path)
    try:
        asyncio.run(use(server))
    finally:
        server.kill()


@pytest.mark.parametrize("_round", range(10))
def test_a_process_ends_well_right_after_a_call(careless: CarelessBucket, _round: int) -> None:
    code = (
        "import asyncio, sys\n"
        "from escrowmq.authority.opening import open_authority\n"
        "async def use():\n"
        "    authority = open_authority(sys.argv[1])\n"
        "    await asyncio.gather(*(authority.read(f'c/{n}') for n in range(20)))\n"
        "asyncio.run(use())\n"
    )
    command = [sys.executable, "-c", code, at(careless.port)]
    subprocess.run(command, check=True, timeout=60, env={**os.environ})
