"""Attempts that fail, answers that are lost, and engines that do not compare."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from escrowmq.authority.engine import VALUE_SIZE_MAX, engine_count, make_revision
from escrowmq.authority.engine_authority import EngineAuthority
from escrowmq.base.authority import ABSENT, VersionedRecord
from escrowmq.errors import AuthorityRefused, AuthorityUnfit, AuthorityUnreachable, UsageError
from escrowmq.testing.authority import MemoryAuthority

DOWN = AuthorityUnreachable("down")


class Planned:
    """An engine in memory. Before each attempt it takes the next step of its plan."""

    name = "planned"

    def __init__(self, *plan: Callable[[], None] | Exception | str) -> None:
        self.memory = MemoryAuthority()
        self.plan = list(plan)
        self.calls: list[str] = []
        self.late: Callable[[], object] = lambda: None
        """A write that is still under way."""

    async def read_once(self, key: str) -> VersionedRecord:
        self.calls.append("read")
        self._step()
        return self.memory.read_now(key)

    async def write_once(self, key: str, value: bytes, revision: str) -> VersionedRecord | None:
        self.calls.append("write")
        step = self._step()
        if step == "busy":
            return None
        if step == "lost before":
            raise DOWN
        if step == "late":
            self.late = lambda: self.memory.write_now(key, value, revision)
            raise DOWN
        if step == "twice":
            self.memory.write_now(key, value, revision)
        written = self.memory.write_now(key, value, revision)
        await asyncio.sleep(0)  # two writes at once
        if step == "lost after":
            raise DOWN
        return written

    async def delete_once(self, key: str) -> None:
        self.calls.append("delete")
        self._step()
        self.memory.delete(key)

    async def close(self) -> None:
        self.calls.append("close")

    def _step(self) -> str:
        step = self.plan.pop(0) if self.plan else ""
        if isinstance(step, Exception):
            raise step
        if callable(step):
            step()
            return ""
        return step


def run(engine: Planned, use: Callable[[EngineAuthority], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(use(EngineAuthority(engine, call_s=1.0)))


def test_a_failed_read_is_repeated() -> None:
    engine = Planned(DOWN, DOWN)
    written = engine.memory.put("k", b"1")

    async def use(authority: EngineAuthority) -> None:
        assert await authority.read("k") == written
        assert authority.name == "planned"
        await authority.close()

    run(engine, use)
    assert engine.calls == ["read", "read", "read", "close"]


def test_a_call_ends_when_nothing_helps() -> None:
    async def use(authority: EngineAuthority) -> None:
        with pytest.raises(AuthorityUnreachable, match="down"):
            await authority.read("k")

    engine = Planned(*[DOWN] * 100)
    run(engine, use)
    assert 3 <= len(engine.calls) <= 7


def test_a_refusal_is_not_repeated() -> None:
    async def use(authority: EngineAuthority) -> None:
        with pytest.raises(AuthorityRefused, match="no right"):
            await authority.write_if("k", b"1", "")

    engine = Planned(AuthorityRefused("no right"))
    run(engine, use)
    assert engine.calls == ["write"]


@pytest.mark.parametrize("lost", ["lost before", "lost after"])
def test_after_a_lost_answer_the_record_tells_what_happened(lost: str) -> None:
    engine = Planned(lost)

    async def use(authority: EngineAuthority) -> None:
        assert await authority.write_if("k", b"1", "") == engine.memory.read_now("k")

    run(engine, use)
    assert [record.value for _, record in engine.memory.history] == [b"1"]
    assert engine.calls == ["write", "read"] + ["write"] * (lost == "lost before")


def test_a_reading_that_fails_leaves_the_doubt() -> None:
    engine = Planned("lost after", DOWN, DOWN)

    async def use(authority: EngineAuthority) -> None:
        assert await authority.write_if("k", b"1", "") == engine.memory.read_now("k")

    run(engine, use)
    assert engine.calls == ["write", "read", "read", "read"]


def test_another_s_write_after_a_lost_one_wins() -> None:
    def write() -> None:
        engine.memory.put("k", b"theirs")

    engine = Planned("lost before", write)

    async def use(authority: EngineAuthority) -> None:
        assert await authority.write_if("k", b"ours", "") is None

    run(engine, use)
    assert engine.memory.read_now("k").value == b"theirs"


@pytest.mark.parametrize("revision", ["0-0123456789abcdef", "9-0123456789abcdef"])
def test_another_revision_is_a_conflict_whatever_its_order(revision: str) -> None:
    engine = Planned()
    engine.memory.put("k", b"theirs")

    async def use(authority: EngineAuthority) -> None:
        assert await authority.write_if("k", b"ours", revision) is None

    run(engine, use)


def test_a_write_that_arrives_late_is_still_ours() -> None:
    def arrive() -> None:
        engine.late()

    engine = Planned("late", "", arrive)

    async def use(authority: EngineAuthority) -> None:
        assert await authority.write_if("k", b"1", "") == engine.memory.read_now("k")

    run(engine, use)
    assert engine.calls == ["write", "read", "write", "read"]
    assert [record.value for _, record in engine.memory.history] == [b"1"]


def test_a_write_that_something_between_sends_twice_is_ours() -> None:
    engine = Planned("twice")

    async def use(authority: EngineAuthority) -> None:
        assert await authority.write_if("k", b"1", "") == engine.memory.read_now("k")

    run(engine, use)


def test_a_refusal_without_another_s_write_is_repeated() -> None:
    engine = Planned("busy")

    async def use(authority: EngineAuthority) -> None:
        assert await authority.write_if("k", b"1", "") == engine.memory.read_now("k")
        engine.plan = ["busy", "", ""] * 100
        with pytest.raises(AuthorityUnreachable, match="refused to change 'k', whose revision has"):
            await authority.write_if("k", b"2", engine.memory.read_now("k").revision)

    run(engine, use)
    assert engine.calls[:4] == ["write", "read", "read", "write"]


def test_a_record_that_was_deleted_meanwhile_is_another_s() -> None:
    engine = Planned("lost before", lambda: engine.memory.delete("k"))
    written = engine.memory.put("k", b"")

    async def use(authority: EngineAuthority) -> None:
        assert await authority.write_if("k", b"", written.revision) is None

    run(engine, use)
    assert engine.memory.read_now("k") == ABSENT


def test_large_records_are_refused() -> None:
    async def use(authority: EngineAuthority) -> None:
        with pytest.raises(UsageError, match="65537 bytes for k; at most 65536"):
            await authority.write_if("k", b"x" * (VALUE_SIZE_MAX + 1), "")
        assert await authority.write_if("k", b"x" * VALUE_SIZE_MAX, "") is not None

    run(Planned(), use)


class Forgetful(Planned):
    """It answers reads with what was there at first."""

    async def read_once(self, key: str) -> VersionedRecord:
        return next(record for at, record in self.memory.history if at == key)


class OnlyCreates(Planned):
    """It compares when a record is created, and ignores any other condition."""

    async def write_once(self, key: str, value: bytes, revision: str) -> VersionedRecord | None:
        self.memory.ignores_conditions = bool(revision)
        return await super().write_once(key, value, revision)


class ComparesLate(Planned):
    """It compares what it found a moment ago: two writes at once both succeed."""

    races_when_creating = True

    async def write_once(self, key: str, value: bytes, revision: str) -> VersionedRecord | None:
        if not revision and not self.races_when_creating:
            return await super().write_once(key, value, revision)
        found = self.memory.read_now(key)
        await asyncio.sleep(0)
        return self.memory.put(key, value) if found.revision == revision else None


class RacesWhenChanging(ComparesLate):
    """It does so with records that exist."""

    races_when_creating = False


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        (OnlyCreates, "with an old revision succeeded"),
        (RacesWhenChanging, "that change a record, 2 succeeded"),
        (ComparesLate, "that create a record, 2 succeeded"),
        (Forgetful, "returned another record"),
    ],
)
def test_what_does_not_compare_is_unfit(kind: type[Planned], said: str) -> None:
    engine = kind()

    async def use(authority: EngineAuthority) -> None:
        with pytest.raises(AuthorityUnfit, match=said):
            await authority.require_fit()

    run(engine, use)
    assert engine.calls[-1] == "delete"


def test_what_ignores_conditions_is_unfit() -> None:
    engine = Planned()
    engine.memory.ignores_conditions = True

    async def use(authority: EngineAuthority) -> None:
        with pytest.raises(AuthorityUnfit, match="planned: of two conditional writes"):
            await authority.require_fit()

    run(engine, use)


def test_a_proof_leaves_nothing_behind() -> None:
    engine = Planned("", "", "lost after")

    async def use(authority: EngineAuthority) -> None:
        await authority.require_fit()

    run(engine, use)
    (key,) = {key for key, _ in engine.memory.history}
    assert key.startswith("scratch/")
    assert engine.memory.read_now(key) == ABSENT


def test_a_revision_names_the_value() -> None:
    assert make_revision("12", b"a") != make_revision("12", b"b")
    assert engine_count(make_revision("12", b"a")) == "12"
