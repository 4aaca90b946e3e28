"""A group of real processes over a real etcd: its master is killed under load, and what senders
were told of is all at the next one."""

from __future__ import annotations

import os
import random
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.authority import etcd_servers
from tests.authority.etcd_servers import EtcdCluster
from tests.interop.process import until
from tests.interop.servers import EscrowServer

from .link import Link
from .test_kill import WRITERS, contradict, recount, settle
from .test_promotion import SETTINGS
from .writer import ROLLBACK, Ledger, Writer

SEEDS = range(int(os.environ.get("ESCROWMQ_CRASH_SEEDS", "2")))
START_S = 60
_READY = re.compile(r"escrowmq ready broker=(\S+).* group=(\S+) member=(\S+)")

pytestmark = pytest.mark.crash


class MemberProcess:
    """One member, on ports that it keeps."""

    def __init__(
        self,
        folder: Path,
        name: str,
        nameserver: str,
        authority: str,
        *more: str,
        program: tuple[str, ...] = ("-m", "escrowmq"),
    ) -> None:
        """`more`: options; `program`: what Python runs."""
        folder.mkdir(exist_ok=True)
        self.name = name
        self._errors = folder / f"{name}.err"
        self._command = [
            sys.executable, *program, "broker", "--data", str(folder / name),
            "--port", "0", "-n", nameserver, "--authority", authority,
        ]  # fmt: skip
        for key, value in {**SETTINGS, "escrowMember": name}.items():
            self._command += ["--set", f"{key}={value}"]
        self._command += more
        self.process: subprocess.Popen[str] | None = None
        self.address = self.grpc = ""
        self.ready = ""
        """The line that it wrote when it was ready."""

    def start(self) -> None:
        with self._errors.open("ab") as errors:
            self.process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors,
                text=True,
            )  # fmt: skip
        assert self.process.stdout is not None
        watchdog = threading.Timer(START_S, self.process.kill)
        watchdog.start()
        line = self.process.stdout.readline()
        watchdog.cancel()
        match = _READY.match(line)
        assert match is not None, f"{line!r}\n{self._errors.read_text()}"
        self.address, self.ready = match[1], line
        grpc = re.search(r" grpc=(\S+)", line)
        self.grpc = "" if grpc is None else grpc[1]

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait(START_S)
            assert self.process.stdout is not None
            self.process.stdout.close()
            self.process = None

    def stop(self) -> None:
        """End it as a service manager does."""
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(START_S) == 0
        self.kill()

    @property
    def log(self) -> str:
        return self._errors.read_text()


@pytest.fixture
def etcd(tmp_path: Path) -> Iterator[EtcdCluster]:
    if missing := etcd_servers.missing():
        pytest.skip(f"not on this machine: {missing}")
    cluster = EtcdCluster(tmp_path, 1)
    yield cluster
    cluster.stop()


def master_of(members: list[MemberProcess]) -> MemberProcess | None:
    """Who said last that it is the master, and has let clients in."""
    newest, found = 0, None
    for member in members:
        if member.process is None:
            continue
        for line in member.log.splitlines():
            match = re.search(r"master now: epoch (\d+)", line)
            if match and int(match[1]) > newest:
                newest, found = int(match[1]), member
    return found


def in_sync(members: list[MemberProcess], count: int) -> bool:
    master = master_of(members)
    if master is None:
        return False
    sets = re.findall(r"epoch \d+, master \S+, in sync ([^;\n]+)", master.log)
    return bool(sets) and len(sets[-1].split(", ")) == count


@pytest.mark.parametrize("seed", SEEDS)
def test_a_killed_masters_acknowledgements_hold(
    tmp_path: Path, etcd: EtcdCluster, seed: int
) -> None:
    chance = random.Random(seed)
    ledger = Ledger()
    with ExitStack() as stack:
        (tmp_path / "names").mkdir()
        names = EscrowServer(tmp_path / "names", verb="nameserver")
        stack.callback(names.kill)
        members = [
            MemberProcess(tmp_path, name, names.nameserver, etcd.url) for name in ("a", "b", "c")
        ]
        for member in members:
            member.start()
            stack.callback(member.kill)
        until("a group of three", lambda: in_sync(members, 3), within_s=START_S)
        master = master_of(members)
        assert master is not None
        writers = [
            Writer(ledger, master.address, f"w{n}", chance.getrandbits(32)) for n in range(WRITERS)
        ]
        for writer in writers:
            writer.start()
        ledger.wait_for(chance.randrange(200, 2_000), 60)
        master.kill()
        for writer in writers:
            writer.join(60)
            assert writer.fault is None, writer.fault
        until("another master", lambda: in_sync(members, 2), within_s=START_S)
        new = master_of(members)
        assert new is not None
        assert new is not master
        link = Link(new.address)
        recount(link, ledger)
        contradict(link, ledger, chance)
        settle(link, ledger)
        found = recount(link, ledger)
        link.close()
        master.start()
        until("the former master as a copy", lambda: in_sync(members, 3), within_s=START_S)
    assert len(ledger.acknowledged) > 100
    assert {body for body, v in ledger.verdicts.items() if v == ROLLBACK}.isdisjoint(found)


def listening(members: list[MemberProcess]) -> set[str]:
    """Those at whose gRPC port somebody listens."""
    found = set()
    for member in members:
        host, _, port = member.grpc.rpartition(":")
        with socket.socket() as link:
            if link.connect_ex((host, int(port))) == 0:
                found.add(member.name)
    return found


def test_grpc_clients_that_know_all_members_find_the_master(
    tmp_path: Path, etcd: EtcdCluster
) -> None:
    with ExitStack() as stack:
        (tmp_path / "names").mkdir()
        names = EscrowServer(tmp_path / "names", verb="nameserver")
        stack.callback(names.kill)
        members = [
            MemberProcess(tmp_path, name, names.nameserver, etcd.url, "--grpc-port", "0")
            for name in ("a", "b")
        ]
        for member in members:
            member.start()
            stack.callback(member.kill)
        until("a group of two", lambda: in_sync(members, 2), within_s=START_S)
        master = master_of(members)
        assert master is not None
        # The port for gRPC needs a certificate; the first copy may be confirmed before it opens.
        until("the master's port", lambda: listening(members) == {master.name}, within_s=START_S)
        master.kill()
        other = next(one for one in members if one is not master)
        until("the other's port", lambda: listening(members) == {other.name}, within_s=START_S)
