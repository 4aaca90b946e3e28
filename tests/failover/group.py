"""A group of three real brokers over a real etcd, with a network between all of them that tests
can stop."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from escrowmq.authority.opening import open_authority
from escrowmq.errors import AuthorityUnreachable
from escrowmq.group.record import GroupRecord, decode_group_record
from tests.authority.etcd_servers import EtcdCluster
from tests.interop import wire
from tests.interop.ports import free_port
from tests.interop.process import Process, until
from tests.interop.servers import EscrowServer

from . import disks
from .links import Network, Way

NAME: Final = "trio"
QUEUES: Final = 4
START_S: Final = 60.0
WHOLE_S: Final = 90.0
SETTINGS: Final[dict[str, object]] = {
    "brokerName": NAME,
    "mappedFileSizeCommitLog": 1_048_576,
    "mappedFileSizeConsumeQueue": 60_000,
    "maxHashSlotNum": 500,
    "maxIndexNum": 2_000,
    "transactionTimeOut": 1_000,
    "transactionCheckInterval": 1_000,
}


class Member:
    """One broker of the group, with the ways that lead to it and from it."""

    def __init__(self, group: Group, name: str, number: int) -> None:
        self.name = name
        self._group = group
        self.folder = group.folder / name
        host, port = f"127.0.1.{number}", free_port()
        network, loopback = group.network, "127.0.0.1"
        self.clients = network.way((loopback, port), host=host, port=port)
        """From clients to this member."""
        self.copies = network.way((loopback, port + 1), host=host, port=port + 1)
        """From other members to this one, while it is the master."""
        grpc_port = free_port()
        self.grpc = network.way((loopback, grpc_port), host=host, port=grpc_port)
        """From clients of RocketMQ 5, while it is the master."""
        self.authority = [network.way(_address(each)) for each in group.etcd.hosts.split(",")]
        self.names = network.way(_address(group.names.nameserver))
        self._process: Process | None = None
        self._command = [
            sys.executable, "-m", "escrowmq", "broker", "--data", str(self.folder),
            "--host", loopback, "--port", str(port), "--grpc-port", str(grpc_port),
            "-n", self.names.address, "--authority",
            f"etcd://{','.join(way.address for way in self.authority)}/test",
        ]  # fmt: skip
        own = {"brokerIP1": host, "brokerIP2": host, "escrowMember": name}
        for key, value in {**SETTINGS, **group.settings, **own}.items():
            self._command += ["--set", f"{key}={value}"]

    def begin(self) -> None:
        self._process = Process(self._command, folder=self._group.folder, name=self.name)

    def wait(self) -> None:
        assert self._process is not None
        self._process.wait_line("escrowmq ready ", within_s=START_S)

    def start(self) -> None:
        self.begin()
        self.wait()

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()  # of one that is stopped, too
            self._process = None

    def stop(self) -> None:
        """End it as a service manager does."""
        assert self._process is not None
        code = self._process.stop()
        assert code == 0, f"{self.name} ended with {code}:\n{self.log[-2_000:]}"
        self._process = None

    def signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.exit_code is None

    @property
    def log(self) -> str:
        path = self._group.folder / f"{self.name}.err"
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def outward(self) -> list[Way]:
        """Ways on which this member asks others."""
        return [*self.authority, self.names]

    def isolate(self, *, from_clients: bool) -> None:
        """Nothing passes between this member and the others, the authority and name servers."""
        for way in self.outward:
            way.freeze()
        self.copies.freeze()
        for other in self._group.members:
            if other is not self:
                other.copies.freeze(member=self.name)
        if from_clients:
            self.clients.freeze()
            self.grpc.freeze()


class Group:
    """The members, their etcd and their name server."""

    def __init__(
        self, folder: Path, network: Network, *, engines: int, settings: dict[str, object]
    ) -> None:
        """`engines`: how many servers etcd has."""
        self.folder = folder
        self.network = network
        self.settings = settings
        self.etcd = EtcdCluster(folder, engines)
        names = folder / "names"
        names.mkdir()
        self.names = EscrowServer(names, verb="nameserver")
        self.members = [Member(self, name, number) for number, name in enumerate("abc", 1)]
        self.grpc = network.way(*(("127.0.0.1", member.grpc.port) for member in self.members))
        """A load balancer before the members, for clients of RocketMQ 5."""

    @property
    def nameserver(self) -> str:
        return self.names.nameserver

    def record(self) -> GroupRecord | None:
        """The record as the authority has it."""

        async def read() -> bytes:
            authority = open_authority(self.etcd.url)
            try:
                return (await authority.read(f"DefaultCluster/{NAME}")).value
            finally:
                await authority.close()

        try:
            value = asyncio.run(read())
        except AuthorityUnreachable:
            return None
        return decode_group_record(value) if value else None

    def master(self) -> Member:
        """Who is master by the record."""
        record = until("a master", self.record)
        return next(member for member in self.members if member.name == record.master)

    def others(self, master: Member) -> list[Member]:
        return [member for member in self.members if member is not master]

    def wait_whole(self, count: int = 3) -> GroupRecord:
        """Until so many members are in sync."""

        def look() -> GroupRecord | None:
            record = self.record()
            return record if record is not None and len(record.in_sync) == count else None

        return until(f"{count} members in sync", look, within_s=WHOLE_S)

    def thaw(self) -> None:
        """The whole network works."""
        for member in self.members:
            for way in (member.clients, member.grpc, member.copies, *member.outward):
                way.thaw()

    def make_topic(self, topic: str, kind: str = "") -> None:
        """Create a topic, and wait until clients can find it."""
        fields = {
            "topic": topic, "defaultTopic": "TBW102", "readQueueNums": str(QUEUES),
            "writeQueueNums": str(QUEUES), "perm": "6", "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": "0", "order": "false",
        }  # fmt: skip
        if kind:
            fields["attributes"] = f"+message.type={kind}"
        master = self.master()

        def made() -> bool:
            try:
                return wire.ask(master.clients.address, 17, fields).code == 0
            except OSError:
                return False

        until("the topic is made", made, within_s=30)
        until("a route", lambda: wire.ask(self.nameserver, 105, {"topic": topic}).code == 0)

    def masters_by_epoch(self) -> dict[int, set[str]]:
        """Who said that it was the master of which epoch."""
        found: dict[int, set[str]] = {}
        for member in self.members:
            for epoch in re.findall(r"this member is the master now: epoch (\d+)", member.log):
                found.setdefault(int(epoch), set()).add(member.name)
        return found


def _address(text: str) -> tuple[str, int]:
    host, port = text.rsplit(":", 1)
    return host, int(port)


@contextlib.contextmanager
def running(
    folder: Path, *, engines: int = 1, has_disks: bool = False, **settings: object
) -> Iterator[Group]:
    """A group of three that is whole; all of it ends with the block. `has_disks`: each member has a
    file system of its own, for root alone."""
    folder.mkdir(parents=True, exist_ok=True)
    with Network().open() as network, contextlib.ExitStack() as stack:
        group = Group(folder, network, engines=engines, settings=settings)
        stack.callback(group.etcd.stop)
        stack.callback(group.names.kill)
        for member in group.members:
            if has_disks:
                stack.enter_context(disks.mounted(member.folder))
            stack.callback(member.kill)
            member.begin()
        for member in group.members:
            member.wait()
        group.wait_whole()
        yield group
