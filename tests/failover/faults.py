"""What can happen to a group. A fault begins, lasts until clients are served again (or for a time
of its own), and ends; then the group becomes whole again."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import msgspec

from escrowmq.codec.store_entries import decode_checkpoint
from tests.interop.process import until

from . import disks
from .group import NAME, Group, Member

Wait = Callable[[], None]
Fault = Callable[[Group, Wait], None]
"""Does the fault to a group that is whole, waits until every client is served, and ends it."""

_AWHILE: Final = threading.Event()


def _pause(seconds: float) -> None:
    """Let a fault last."""
    _AWHILE.wait(seconds)


def kill_master(group: Group, served: Wait) -> None:
    """kill -9 of the master."""
    master = group.master()
    master.kill()
    served()
    master.start()


def switch(group: Group, served: Wait) -> None:
    """Another member is made the master by an operator's command."""
    _switch(group)
    served()


def _switch(group: Group) -> None:
    before = group.master()
    command = [sys.executable, "-m", "escrowmq", "cluster", "switch", NAME, "-n", group.nameserver]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert group.master() is not before


def upgrade(group: Group, served: Wait) -> None:
    """One member after the other, as docs/groups.md says: stop it, start it, wait until it is in
    sync; the master last, after a switch by the command."""
    first = group.master()
    for member in [*group.others(first), first]:
        if member is first:
            _switch(group)
            served()
            group.wait_whole()
        member.stop()
        served()
        member.start()
        group.wait_whole()
        served()


def kill_copy(group: Group, served: Wait) -> None:
    """kill -9 of a member that is not the master."""
    copy = group.others(group.master())[0]
    copy.kill()
    served()
    copy.start()


def kill_two(group: Group, served: Wait) -> None:
    """kill -9 of the master and another one at once."""
    master = group.master()
    dead = [master, group.others(master)[0]]
    for member in dead:
        member.kill()
    served()
    for member in dead:
        member.begin()
    for member in dead:
        member.wait()


def kill_all(group: Group, served: Wait) -> None:
    """kill -9 of all members and of the authority, all started again."""
    for member in group.members:
        member.kill()
    for node in group.etcd.nodes:
        node.kill()
    for node in group.etcd.nodes:
        group.etcd.restart(node)
    group.etcd.wait()
    for member in group.members:
        member.begin()
    for member in group.members:
        member.wait()
    served()


def stop_master(group: Group, served: Wait) -> None:
    """SIGSTOP of the master; it goes on when there is another one."""
    master = group.master()
    master.signal(signal.SIGSTOP)
    served()
    master.signal(signal.SIGCONT)


def isolate_master(group: Group, served: Wait) -> None:
    """The master reaches its clients, and neither the others nor the authority."""
    master = group.master()
    master.isolate(from_clients=False)
    served()
    group.thaw()


def isolate_master_wholly(group: Group, served: Wait) -> None:
    """The master reaches nobody."""
    master = group.master()
    master.isolate(from_clients=True)
    served()
    group.thaw()


def mute_master(group: Group, served: Wait) -> None:
    """What the master says to the others is lost; what they say arrives."""
    master = group.master()
    master.copies.freeze("back")
    served()
    group.thaw()


def mute_copies(group: Group, served: Wait) -> None:
    """What the others say to the master is lost; what it says arrives."""
    master = group.master()
    master.copies.freeze("there")
    served()
    group.thaw()


def cut_authority(group: Group, served: Wait) -> None:
    """The authority is unreachable for a while."""
    for member in group.members:
        for way in member.authority:
            way.freeze()
    _pause(4)
    served()
    group.thaw()


def cut_authority_and_kill(group: Group, served: Wait) -> None:
    """The authority is unreachable, and the master is killed; a second later the authority is
    back."""
    for member in group.members:
        for way in member.authority:
            way.freeze()
    master = group.master()
    master.kill()
    _pause(1)
    group.thaw()
    served()
    master.start()


def power_off_master(group: Group, served: Wait) -> None:
    """The machine of the master loses its power, and with it all that was not synced."""
    master = group.master()
    master.kill()
    _lose_page_cache(master)
    served()
    master.start()


def _lose_page_cache(member: Member) -> None:
    """Of the log all that no sync has covered; and the machine starts anew, which members know by
    its boot id."""
    said = decode_checkpoint((member.folder / "checkpoint").read_bytes())
    for path in (member.folder / "commitlog").iterdir():
        begin, size = int(path.name), path.stat().st_size
        durable = min(max(said.confirmed_offset - begin, 0), size)
        with path.open("r+b") as file:
            file.seek(durable)
            file.write(bytes(size - durable))
    path = member.folder / "group.json"
    state = json.loads(path.read_bytes())
    path.write_bytes(msgspec.json.encode({**state, "boot": "an earlier one"}))


@contextmanager
def _no_room(member: Member) -> Iterator[None]:
    """Its disk is full; without one of its own, its files cannot grow."""
    if member.folder.is_mount():
        with disks.full(member.folder):
            yield
        return
    soft, hard = resource.prlimit(member.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(member.pid, resource.RLIMIT_FSIZE, (4_096, hard))
    try:
        yield
    finally:
        resource.prlimit(member.pid, resource.RLIMIT_FSIZE, (soft, hard))


def fill_disk_of_copy(group: Group, served: Wait) -> None:
    """The disk of one copy is full for a while."""
    with _no_room(group.others(group.master())[0]):
        _pause(3)
        served()


def fill_disk_of_master(group: Group, served: Wait) -> None:
    """The disk of the master is full, and another member takes over; then it has room again."""
    master = group.master()
    with _no_room(master):
        until("another master", lambda: group.master() is not master)
        served()


def lose_engine_leader(group: Group, served: Wait) -> None:
    """Of three etcd servers the one that leads is killed, and the master at once."""
    leader = group.etcd.leader()
    leader.kill()
    master = group.master()
    master.kill()
    served()
    group.etcd.restart(leader)
    master.start()


def cut_clients(group: Group, served: Wait) -> None:
    """Clients reach nobody for a while."""
    for member in group.members:
        member.clients.freeze()
    _pause(2)
    group.thaw()
    served()


FAULTS: Final[dict[str, Fault]] = {
    "kill -9 of the master": kill_master,
    "planned switch": switch,
    "upgrade, member by member": upgrade,
    "kill -9 of a copy": kill_copy,
    "kill -9 of master and copy": kill_two,
    "kill -9 of all, and etcd": kill_all,
    "SIGSTOP of the master": stop_master,
    "master cut off, except for clients": isolate_master,
    "master cut off from all": isolate_master_wholly,
    "master unheard by copies": mute_master,
    "copies unheard by master": mute_copies,
    "etcd unreachable": cut_authority,
    "etcd unreachable, then kill -9": cut_authority_and_kill,
    "power loss of the master": power_off_master,
    "disk of a copy full": fill_disk_of_copy,
    "disk of the master full": fill_disk_of_master,
    "clients cut off": cut_clients,
    "leader of etcd and master killed": lose_engine_leader,
}

ENGINES: Final = {"leader of etcd and master killed": 3}
"""How many servers etcd has, where it is not one."""

WITH_DISKS: Final = frozenset({"disk of a copy full", "disk of the master full"})
"""Each member has a disk of its own, where this process can mount one."""


EXCLUDING: Final = frozenset(
    {
        "kill -9 of a copy",
        "master unheard by copies",
        "copies unheard by master",
        "disk of a copy full",
    }
)
"""A copy that was left out again and again by one master rests longer each time, for minutes in
the end. The next epoch begins without that."""


def suffer(group: Group, name: str, served: Wait) -> tuple[int, int]:
    """One round of a fault; when it began and ended, in CLOCK_MONOTONIC's ns."""
    begin_ns = time.monotonic_ns()
    FAULTS[name](group, served)
    end_ns = time.monotonic_ns()
    if name in EXCLUDING:
        master = group.master()
        master.kill()
        master.start()
    group.wait_whole()
    until("all run", lambda: all(member.is_up for member in group.members))
    return begin_ns, end_ns
