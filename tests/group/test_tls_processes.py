"""Groups of real processes whose members speak TLS with each other, over a real etcd."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import msgspec
import pytest

import escrowmq
from tests.authority import etcd_servers
from tests.authority.etcd_servers import EtcdCluster
from tests.crash.test_group import START_S, MemberProcess
from tests.harness.certificates import OPENSSL, Authority, Pair
from tests.interop.process import until
from tests.interop.servers import EscrowServer

pytestmark = pytest.mark.skipif(OPENSSL is None, reason="openssl makes the certificates")


class Place(msgspec.Struct):
    """Where members are started, each as its test wants it."""

    folder: Path
    etcd: EtcdCluster
    names: EscrowServer
    admin: escrowmq.Admin
    stack: ExitStack

    def start(self, name: str, group: str, *more: str) -> MemberProcess:
        """A member of a group of this name."""
        words = [word for each in (f"brokerName={group}", *more) for word in ("--set", each)]
        member = MemberProcess(
            self.folder / group, name, self.names.nameserver, self.etcd.url, *words
        )
        member.start()
        self.stack.callback(member.kill)
        return member

    def wait_whole(self, group: str, count: int) -> str:
        """Until this number of members is in sync; the name of the master."""

        def look() -> str:
            found = [one for one in self.admin.replicas.status() if one.broker == group]
            ready = [
                one for one in (found[0].members if found else ())
                if one.role in ("master", "in sync") and one.address
            ]  # fmt: skip
            return found[0].master if len(ready) == count else ""

        return until(f"{count} members in sync", look, within_s=START_S)

    def status(self, *words: str) -> dict[str, str]:
        """What `cluster status` says of the members of a group, by name."""
        command = [sys.executable, "-m", "escrowmq", "cluster", "status", *words, "--json"]
        command += ["-n", self.names.nameserver]
        shown = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        assert shown.stdout, shown.stderr
        return {one["name"]: one["note"] for one in json.loads(shown.stdout)["members"]}


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    if missing := etcd_servers.missing():
        pytest.skip(f"not on this machine: {missing}")
    with ExitStack() as stack:
        etcd = EtcdCluster(tmp_path, 1)
        stack.callback(etcd.stop)
        (tmp_path / "names").mkdir()
        names = EscrowServer(tmp_path / "names", verb="nameserver")
        stack.callback(names.kill)
        admin = stack.enter_context(escrowmq.Admin(names.nameserver))
        yield Place(tmp_path, etcd, names, admin, stack)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return Authority(tmp_path_factory.mktemp("strangers"), "other").sign("stranger")


def by_tls(pair: Pair, authority: Authority, mode: str = "enforcing") -> tuple[str, ...]:
    return (
        f"escrowGroupTls={mode}",
        f"escrowGroupTlsCertPath={pair.certificate}",
        f"escrowGroupTlsKeyPath={pair.key}",
        f"escrowGroupTlsTrustCertPath={authority.root}",
    )


def is_logged(member: MemberProcess, text: str) -> Callable[[], bool]:
    return lambda: text in member.log


def log_size(place: Place, group: str, name: str) -> int:
    """Bytes of messages that a member has."""
    files = (place.folder / group / name / "commitlog").glob("*")
    return sum(len(path.read_bytes().rstrip(b"\0")) for path in files)


def test_a_group_that_copies_by_tls_fails_over(place: Place, authority: Authority) -> None:
    members = [
        place.start(name, "safe", *by_tls(authority.sign(name), authority)) for name in "abc"
    ]
    first = place.wait_whole("safe", 3)
    master = next(member for member in members if member.name == first)
    with escrowmq.Producer(place.names.nameserver, group="senders") as producer:
        sent = [producer.send("safely", b"%d" % n).message_id for n in range(20)]
        master.kill()
        assert place.wait_whole("safe", 2) != first
        sent += [producer.send("safely", b"%d" % n).message_id for n in range(20, 40)]
        master.start()
        place.wait_whole("safe", 3)
    assert len(set(sent)) == 40
    with escrowmq.Consumer(place.names.nameserver, group="readers", topic="safely") as consumer:
        found = set()
        for message in consumer:
            found.add(int(message.body))
            if len(found) == 40:
                break
    assert found == set(range(40))
    for member in members:
        assert "has neither a secret" not in member.log
        assert "ERROR" not in member.log


def test_members_that_prove_nothing_get_nothing(
    place: Place, authority: Authority, stranger: Pair
) -> None:
    master = place.start("a", "strict", *by_tls(authority.sign("a"), authority))
    place.wait_whole("strict", 1)
    with escrowmq.Producer(place.names.nameserver, group="senders") as producer:
        producer.send("strictly", b"secret" * 100)
    odd = place.start("odd", "strict", *by_tls(stranger, authority))
    plain = place.start("plain", "strict")
    until("one line of the odd one", is_logged(odd, "it does not take this member's certificate"))
    until("one of the plain one", is_logged(plain, "lets members in by TLS only; set escrowGroup"))
    until("two lines of the master", is_logged(master, "no TLS, and escrowGroupTls=enforcing"))
    assert "its certificate is not taken" in master.log
    shown = place.status("--member", odd.address, "--member", plain.address)
    assert "it does not take this member's certificate" in shown["odd"]
    assert "set escrowGroupTls=enforcing, escrowGroupTlsCertPath" in shown["plain"]
    assert log_size(place, "strict", "a") > 600
    assert log_size(place, "strict", "odd") == log_size(place, "strict", "plain") == 0
    address = re.search(r" group=(\S+)", master.ready)
    assert address is not None
    done = subprocess.run(
        [str(OPENSSL), "s_client", "-connect", address[1], "-quiet"],
        stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=False,
    )  # fmt: skip
    assert b"nonce" not in done.stdout
    until("a line of the master", is_logged(master, "it shows no certificate; if it is a member"))


def test_a_master_that_proves_nothing_is_not_copied(
    place: Place, authority: Authority, stranger: Pair
) -> None:
    """Plain, or with a certificate of another authority."""
    sure = authority.sign("sure")
    for group, more, said in (
        ("plainly", (), "it speaks no TLS; set escrowGroupTls there as it is set here"),
        ("oddly", by_tls(stranger, authority), "its certificate is not taken"),
    ):
        master = place.start("a", group, *more)
        place.wait_whole(group, 1)
        copy = place.start("sure", group, *by_tls(sure, authority))
        until("a line of the copy", is_logged(copy, said))
        assert said in place.status(group, "--member", copy.address)["sure"]
        assert log_size(place, group, "sure") == 0
        if not more:
            until("a line of the master", is_logged(master, "it uses TLS, and this member does"))


def test_a_plain_group_changes_to_tls_one_member_after_the_other(
    place: Place, authority: Authority
) -> None:
    """Twice through all members: both ways are allowed first."""
    pairs = {name: authority.sign(name) for name in "ab"}
    members = {name: place.start(name, "rolling") for name in "ab"}

    for mode in ("permissive", "enforcing"):
        first = place.wait_whole("rolling", 2)
        other = next(name for name in members if name != first)
        for name in (other, first):
            if name == first:
                place.admin.replicas.switch("rolling", other)
            members[name].stop()
            place.wait_whole("rolling", 1)
            members[name] = place.start(name, "rolling", *by_tls(pairs[name], authority, mode))
            place.wait_whole("rolling", 2)
