"""`escrowmq cluster` with a group of real processes over a real etcd."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import escrowmq
from escrowmq.base.codes import Request
from escrowmq.broker.replication.successor import SWITCH_MS
from escrowmq.client.admin.replicas import ReplicaGroup
from escrowmq.errors import UsageError
from tests.authority import etcd_servers
from tests.authority.etcd_servers import EtcdCluster
from tests.crash.test_group import MemberProcess
from tests.interop import wire
from tests.interop.process import until
from tests.interop.servers import EscrowServer

NAMES = ("a", "b", "c")
BROKER = "kill-broker"


class Group:
    """Three members, a name server, an etcd."""

    def __init__(
        self,
        folder: Path,
        stack: ExitStack,
        *more: str,
        program: tuple[str, ...] = ("-m", "escrowmq"),
    ) -> None:
        """`more`: options of members; `program`: what they are."""
        self.etcd = etcd = EtcdCluster(folder, 1)
        stack.callback(etcd.stop)
        (folder / "names").mkdir()
        names = EscrowServer(folder / "names", verb="nameserver")
        stack.callback(names.kill)
        self.nameserver = names.nameserver
        self.members = {
            name: MemberProcess(folder, name, names.nameserver, etcd.url, *more, program=program)
            for name in NAMES
        }
        for member in self.members.values():
            member.start()
            stack.callback(member.kill)
        self.admin = escrowmq.Admin(self.nameserver)
        stack.callback(self.admin.close)
        until("three members in sync", self.is_whole)

    def is_whole(self) -> bool:
        found = self.admin.replicas.status()
        return bool(found) and sum(
            one.role in ("master", "in sync") and one.address != "" for one in found[0].members
        ) == len(NAMES)

    @property
    def now(self) -> ReplicaGroup:
        (found,) = self.admin.replicas.status()
        return found

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "escrowmq", "cluster", *words, "-n", self.nameserver]

    def run(self, *words: str, within_s: float = 60) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words), capture_output=True, text=True, timeout=within_s, check=False
        )


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    if missing := etcd_servers.missing():
        pytest.skip(f"not on this machine: {missing}")
    with ExitStack() as stack:
        yield Group(tmp_path_factory.mktemp("group"), stack)


def test_the_status_names_master_members_and_authority(group: Group) -> None:
    shown = group.run("status")
    assert shown.returncode == 0, shown.stderr
    assert f"master {group.now.master}, epoch" in shown.stdout
    assert "in sync: a, b, c" in shown.stdout
    assert "authority etcd at" in shown.stdout
    found = json.loads(group.run("status", "--json").stdout)
    assert {one["name"]: one["behind"] for one in found["members"]} == dict.fromkeys(NAMES, 0)


def test_a_switch_is_shown_first_then_done_when_the_new_master_serves(group: Group) -> None:
    before = group.now
    heir = next(one for one in NAMES if one != before.master)
    shown = group.run("switch", before.broker, "--to", heir, "--dry-run")
    assert f"{heir} would be the master" in shown.stdout
    assert group.now.master == before.master
    with escrowmq.Producer(group.nameserver, group="switchers") as producer:
        producer.send("switched", b"before")
        done = group.run("switch", before.broker, "--to", heir, "--json")
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout)
        assert (result["before"], result["master"]) == (before.master, heir)
        assert result["epoch"] == before.epoch + 1
        producer.send("switched", b"after")
    assert group.now.master == heir
    until("the former master in sync", group.is_whole)
    again = group.run("switch", before.broker, "--to", heir)
    assert again.returncode != 0
    assert f"{heir} is already the master of {before.broker}" in again.stderr


def test_a_master_that_no_name_server_lists_is_found_by_its_copies(group: Group) -> None:
    before = group.now
    heir = next(one for one in before.members if one.role == "in sync")
    _unlist(group, heir.name)
    done = group.admin.replicas.switch(before.broker, heir.name)
    assert done.master == heir.name
    _unlist(group, heir.name)
    assert (group.now.master, group.now.master_address) == (heir.name, heir.address)
    until("listed again", group.is_whole)


def _unlist(group: Group, member: str) -> None:
    """Make the name server forget this member until it registers again."""
    address = group.members[member].address
    report = next(iter(group.admin.replicas.reports([address]).values()))
    fields = {
        "brokerName": report.broker, "brokerAddr": address, "clusterName": report.cluster,
        "brokerId": str(0 if report.is_master else report.numbers[member]),
    }  # fmt: skip
    assert wire.ask(group.nameserver, Request.UNREGISTER_BROKER, fields).code == 0


def test_when_a_member_does_not_take_over_the_next_one_is_asked(group: Group) -> None:
    before = group.now
    frozen, heir = sorted(one.name for one in before.members if one.role == "in sync")
    process = group.members[frozen].process
    assert process is not None
    process.send_signal(signal.SIGSTOP)
    try:
        done = group.admin.replicas.switch(before.broker)
    finally:
        process.send_signal(signal.SIGCONT)
    assert (done.before, done.master) == (before.master, heir)
    assert done.took_ms > SWITCH_MS, "the frozen one was asked first"
    until("all members in sync", group.is_whole)


def test_nothing_is_rebuilt_where_a_master_serves(group: Group) -> None:
    copy = next(one for one in group.now.members if one.role == "in sync")
    refused = group.run("rebuild", copy.address)
    assert refused.returncode == 1
    assert "nothing was changed" in refused.stderr
    assert "--accept-loss" in refused.stderr
    refused = group.run("rebuild", copy.address, "--accept-loss")
    assert refused.returncode == 1
    assert "there is nothing to rebuild" in refused.stderr


def test_a_member_that_is_gone_is_told_apart(group: Group) -> None:
    gone = next(one for one in group.now.members if one.role == "in sync")
    group.members[gone.name].kill()
    until("it is out", lambda: gone.name not in group.now.in_sync)
    found = group.now
    assert found.master
    assert any(f"not in sync: {gone.name}" in note for note in found.notes)
    assert any(one.name == gone.name and one.role == "not reached" for one in found.members)
    with pytest.raises(UsageError, match="already"):
        group.admin.replicas.switch(found.broker, found.master)
    group.members[gone.name].start()
    until("it is back", group.is_whole)
