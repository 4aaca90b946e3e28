from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from escrowmq import aio
from escrowmq.base.group_report import GroupReport
from escrowmq.drill import watch as watching
from escrowmq.drill.watch import GroupWatch
from escrowmq.errors import NoNameServer

NAMES = ("a", "b", "c")


def report(member: str, *, master: str = "a", epoch: int = 3, **more: object) -> GroupReport:
    found = GroupReport(
        cluster="c", broker="g", member=member, incarnation="i", group="g", epoch=epoch,
        master=master, master_address="", in_sync=[*NAMES], members=[*NAMES],
        is_master=member == master, end=0, confirmed=0, min_copies=1, why="", authority="",
        authority_fault="",
    )  # fmt: skip
    return msgspec.structs.replace(found, **more)


@pytest.fixture
def watch() -> GroupWatch:
    watch = GroupWatch(aio.Admin("127.0.0.1:1"), "g", dict.fromkeys(NAMES, "127.0.0.1:1"))
    for name in NAMES:
        watch.process_report(name, report(name))
    return watch


def test_a_group_is_whole_when_everybody_says_so(watch: GroupWatch) -> None:
    assert (watch.master, watch.newest_epoch, watch.members_out_of_sync) == ("a", 3, [])


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("b", None),
        ("b", report("b", epoch=2)),  # it does not know the newest epoch
        ("b", report("b", why="it does not copy")),
        ("b", report("b", authority_fault="no answer")),
        ("b", report("b", is_master=True)),
    ],
)
def test_a_member_that_is_not_well_is_lacking(
    watch: GroupWatch, name: str, said: GroupReport | None
) -> None:
    watch.process_report(name, said)
    assert watch.members_out_of_sync == [name]


def test_a_member_out_of_the_set_is_lacking(watch: GroupWatch) -> None:
    watch.process_report("a", report("a", in_sync=["a", "c"]))
    assert watch.members_out_of_sync == ["b"]


def test_all_are_lacking_while_nobody_serves(watch: GroupWatch) -> None:
    watch.process_report("a", report("a", refusal="the disk is full"))
    assert (watch.master, watch.members_out_of_sync) == ("", [*NAMES])
    watch.process_report("a", report("a"))
    watch.process_report("b", report("b", master="b", epoch=4, is_master=False))
    assert (watch.newest_epoch, watch.master, watch.members_out_of_sync) == (4, "", [*NAMES])


def test_the_master_of_the_newest_epoch_counts(watch: GroupWatch) -> None:
    """The former one, stopped, has not heard of it."""
    watch.process_report("b", report("b", master="b", epoch=4))
    assert (watch.newest_epoch, watch.master) == (4, "b")
    assert watch.members_out_of_sync == ["a", "c"]
    assert watch.epochs_with_rivals == {}
    watch.process_report("a", None)
    assert (watch.newest_epoch, watch.master) == (4, "b")


def test_two_masters_of_one_epoch_are_remembered(watch: GroupWatch) -> None:
    watch.process_report("c", report("c", master="c", epoch=3))
    watch.process_report("c", report("c"))
    assert watch.epochs_with_rivals == {3: ["a", "c"]}


def test_silences_are_counted(watch: GroupWatch) -> None:
    watch.process_report("b", None)
    watch.process_report("b", None)
    watch.process_report("b", report("b"))
    assert watch.silences == {"a": 0, "b": 2, "c": 0}


class Group:
    """The members of a group, and their name server, either of which may be unreachable."""

    def __init__(self) -> None:
        self.is_reached = True
        self.refused_count = 0

    async def reports(self, addresses: Sequence[str] = ()) -> dict[str, GroupReport]:
        if not addresses and not self.is_reached:
            self.refused_count += 1
            raise NoNameServer("planted")
        return {name: report(name) for name in addresses if name != "a" or self.is_reached}


def test_a_member_is_polled_on_though_the_name_server_was_unreachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its poller ended: it was lacking for the rest of the drill."""
    monkeypatch.setattr(watching, "_POLL_S", 0)
    group = Group()
    admin: Any = SimpleNamespace(replicas=group)

    async def until_it_is_whole() -> None:
        async with GroupWatch(admin, "g", {name: name for name in NAMES}) as watch:
            group.is_reached = False
            while group.refused_count < 2:
                await asyncio.sleep(0)
            assert watch.members_out_of_sync == [*NAMES]
            group.is_reached = True
            while watch.members_out_of_sync:
                await asyncio.sleep(0)

    asyncio.run(asyncio.wait_for(until_it_is_whole(), 10))
