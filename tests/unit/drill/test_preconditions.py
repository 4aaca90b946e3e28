"""Of which groups a drill keeps its hands off. That members must agree is in
tests/group/test_drill_command.py."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from escrowmq.client.admin.replicas import Replica, ReplicaGroup
from escrowmq.drill.preconditions import require_healthy
from escrowmq.errors import UsageError


def healthy() -> ReplicaGroup:
    members = [
        Replica(name=name, address=f"10.0.0.{ord(name)}:10911", role=role)
        for name, role in (("a", "master"), ("b", "in sync"), ("c", "in sync"))
    ]
    return ReplicaGroup(broker="g", cluster="c", kind="group", master="a", epoch=3, members=members)


def without_master(group: ReplicaGroup) -> None:
    group.master, group.notes = "", ["no master serves; the last one was a"]


def refusing(group: ReplicaGroup) -> None:
    group.notes = ["no messages are taken: the disk is full"]


def alone(group: ReplicaGroup) -> None:
    del group.members[1:]


def behind(group: ReplicaGroup) -> None:
    group.members[1].role = "behind"


def out(group: ReplicaGroup) -> None:
    group.members[2].role, group.members[2].note = "out", "its disk is full"


def unreached(group: ReplicaGroup) -> None:
    group.members.append(Replica(name="", address="10.0.0.9:10911", role="not reached"))


def unlisted(group: ReplicaGroup) -> None:
    group.members[1].address, group.members[1].note = "", "the name server does not list it"


def test_a_group_that_is_whole_is_taken() -> None:
    group = healthy()
    require_healthy(group)
    del group.members[2:]
    require_healthy(group)


@pytest.mark.parametrize(
    ("spoil", "said"),
    [
        (without_master, "g has no master: no master serves; the last one was a"),
        (refusing, "would fail at once: no messages are taken: the disk is full"),
        (alone, "g has only one member, a: none could take over"),
        (behind, "member b of g is behind: a fault now could leave the group without a master"),
        (out, "member c of g is out (its disk is full)"),
        (unreached, "the broker at 10.0.0.9:10911 of g is not reached"),
        (unlisted, "member b of g cannot be asked: the name server does not list it"),
    ],
)
def test_a_group_that_is_not_is_refused(spoil: Callable[[ReplicaGroup], None], said: str) -> None:
    group = healthy()
    spoil(group)
    with pytest.raises(UsageError) as refused:
        require_healthy(group)
    assert said in str(refused.value)
