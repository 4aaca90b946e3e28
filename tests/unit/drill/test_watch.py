from __future__ import annotations

import msgspec
import pytest

from escrowmq import aio
from escrowmq.base.group_report import GroupReport
from escrowmq.drill.watch import Watch

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
def watch() -> Watch:
    watch = Watch(aio.Admin("127.0.0.1:1"), "g", dict.fromkeys(NAMES, "127.0.0.1:1"))
    for name in NAMES:
        watch.hear(name, report(name))
    return watch


def test_a_group_is_whole_when_everybody_says_so(watch: Watch) -> None:
    assert (watch.master, watch.epoch, watch.lacking) == ("a", 3, [])


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
    watch: Watch, name: str, said: GroupReport | None
) -> None:
    watch.hear(name, said)
    assert watch.lacking == [name]


def test_a_member_out_of_the_set_is_lacking(watch: Watch) -> None:
    watch.hear("a", report("a", in_sync=["a", "c"]))
    assert watch.lacking == ["b"]


def test_all_are_lacking_while_nobody_serves(watch: Watch) -> None:
    watch.hear("a", report("a", refusal="the disk is full"))
    assert (watch.master, watch.lacking) == ("", [*NAMES])
    watch.hear("a", report("a"))
    watch.hear("b", report("b", master="b", epoch=4, is_master=False))
    assert (watch.epoch, watch.master, watch.lacking) == (4, "", [*NAMES])


def test_the_master_of_the_newest_epoch_counts(watch: Watch) -> None:
    """The former one, stopped, has not heard of it."""
    watch.hear("b", report("b", master="b", epoch=4))
    assert (watch.epoch, watch.master) == (4, "b")
    assert watch.lacking == ["a", "c"]
    assert watch.rivals == {}
    watch.hear("a", None)
    assert (watch.epoch, watch.master) == (4, "b")


def test_two_masters_of_one_epoch_are_remembered(watch: Watch) -> None:
    watch.hear("c", report("c", master="c", epoch=3))
    watch.hear("c", report("c"))
    assert watch.rivals == {3: ["a", "c"]}


def test_silences_are_counted(watch: Watch) -> None:
    watch.hear("b", None)
    watch.hear("b", None)
    watch.hear("b", report("b"))
    assert watch.silences == {"a": 0, "b": 2, "c": 0}
