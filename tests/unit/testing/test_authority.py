"""The authority of simulations compares as a real one does, and fails as told."""

from __future__ import annotations

import asyncio

import pytest

from escrowmq.base.authority import ABSENT, Authority
from escrowmq.errors import AuthorityUnfit, AuthorityUnreachable
from escrowmq.testing.authority import MemoryAuthority


def test_of_two_writes_with_one_revision_one_is_refused() -> None:
    authority = MemoryAuthority()
    first = authority.write_now("c/b", b"1", "")
    assert first is not None
    assert authority.read_now("c/b") == first
    assert authority.write_now("c/b", b"2", "") is None
    second = authority.write_now("c/b", b"2", first.revision)
    assert second is not None
    assert authority.write_now("c/b", b"3", first.revision) is None
    assert authority.read_now("c/b") == second
    assert authority.read_now("c/other") == ABSENT
    assert (authority.reads_count, authority.writes_count) == (3, 4)
    assert authority.history == [("c/b", first), ("c/b", second)]


def test_nothing_happens_while_it_is_unreachable() -> None:
    async def use(authority: Authority) -> None:
        for call in (
            authority.read("k"),
            authority.write_if("k", b"1", ""),
            authority.require_fit(),
        ):
            with pytest.raises(AuthorityUnreachable, match="memory"):
                await call

    authority = MemoryAuthority()
    authority.is_reachable = False
    asyncio.run(use(authority))
    assert authority.read_now("k") == ABSENT


def test_a_write_whose_answer_is_lost_took_effect() -> None:
    async def use(authority: MemoryAuthority) -> None:
        authority.answers_to_lose = 1
        with pytest.raises(AuthorityUnreachable, match="lost"):
            await authority.write_if("k", b"1", "")
        found = await authority.read("k")
        assert found.value == b"1"
        written = await authority.write_if("k", b"2", found.revision)
        assert written == await authority.read("k")
        await authority.require_fit()
        await authority.close()

    asyncio.run(use(MemoryAuthority()))


def test_one_that_ignores_conditions_is_unfit() -> None:
    authority = MemoryAuthority()
    authority.ignores_conditions = True
    with pytest.raises(AuthorityUnfit):
        asyncio.run(authority.require_fit())
    authority.write_now("k", b"1", "")
    authority.write_now("k", b"2", "")
    assert authority.read_now("k").value == b"2"


def test_people_edit_and_delete_records() -> None:
    authority = MemoryAuthority()
    written = authority.write_now("k", b"1", "")
    assert written is not None
    edited = authority.put("k", b"")
    assert authority.write_now("k", b"2", written.revision) is None
    assert authority.read_now("k") == edited != ABSENT
    authority.delete("k")
    authority.delete("k")
    assert authority.read_now("k") == ABSENT
    assert authority.history == [("k", written), ("k", edited), ("k", ABSENT)]


def test_a_restored_one_gives_no_revision_to_another_value() -> None:
    authority = MemoryAuthority()
    first = authority.write_now("k", b"1", "")
    assert first is not None
    backup = authority.backup()
    lost = authority.write_now("k", b"2", first.revision)
    assert lost is not None
    authority.restore(backup)
    assert authority.read_now("k") == first
    again = authority.write_now("k", b"3", first.revision)
    assert again is not None
    assert again.revision.partition("-")[0] == lost.revision.partition("-")[0]
    assert authority.write_now("k", b"4", lost.revision) is None
    assert [record.value for _, record in authority.history] == [b"1", b"2", b"1", b"3"]
