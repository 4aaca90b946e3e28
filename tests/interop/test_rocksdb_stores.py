"""Stores that RocketMQ keeps in RocksDB, all or in part: what a start of ours says of each, and
that what it says to do brings all of it here."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

import escrowmq

from . import jars
from .drivers import Driver, JavaDriver
from .process import ProcessError, until
from .servers import EscrowServer, JavaBroker, JavaNameServer, Server, new_topic
from .test_pop import Popper
from .test_replication import NEW_RELEASE
from .test_takeover import read

COUNT: Final = 30
CONSUMED: Final = 10
READERS: Final = "half-way"
SETTINGS: Final[dict[str, Any]] = {"mappedFileSizeCommitLog": 16 << 20}
ROCKSDB: Final = {"storeType": "defaultRocksDB"}
HALVES: Final = {"transRocksDBEnable": True, "transWriteOriginTransHalfEnable": False}
POP: Final = {"popConsumerKVServiceInit": True, "popConsumerKVServiceEnable": True}


@contextmanager
def running(
    folder: Path, release: str, *, stops: bool = True, **settings: object
) -> Iterator[JavaBroker]:
    """RocketMQ's broker with a name server of its own, over the same store each time."""
    names = JavaNameServer(folder / "names")
    try:
        java = JavaBroker(
            folder / "java", names.address, store=folder / "store", release=release,
            **(SETTINGS | settings),
        )  # fmt: skip
        try:
            yield java
        finally:
            java.stop() if stops else java.kill()
    finally:
        names.stop()


def fill(java: JavaBroker, *, delay: float = 0) -> None:
    """Messages, of which a group has consumed some, of a topic that nobody has read too."""
    server = Server("java", java.store, nameserver=java.nameserver, broker=java.address)
    for topic in ("T", "unread"):
        new_topic(server, topic, queues=2)
    with escrowmq.Producer(java.nameserver, group="writers") as producer:
        for number in range(COUNT):
            producer.send("T", b"%d" % number)
        for number in range(4):
            producer.send("unread", b"unread %d" % number)
        if delay:
            producer.send("T", b"later", delay=delay)
    with escrowmq.Consumer(java.nameserver, group=READERS, topic="T") as consumer:
        for got, _ in enumerate(consumer, 1):
            if got == CONSUMED:
                break


def refused(folder: Path) -> str:
    """What a start of ours says, which ends with 2 and changes nothing."""
    before = {path.name for path in (folder / "store").iterdir()}
    with pytest.raises(ProcessError, match="ended with 2") as caught:
        EscrowServer(folder / "ours", store=folder / "store", **SETTINGS)
    assert {path.name for path in (folder / "store").iterdir()} - before <= {"lock", "namesrv"}
    return str(caught.value)


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Callable[[], EscrowServer]]:
    started: list[EscrowServer] = []

    def serve() -> EscrowServer:
        server = EscrowServer(tmp_path / "ours", store=tmp_path / "store", **SETTINGS)
        started.append(server)
        return server

    yield serve
    for server in started:
        server.kill()


def unread(server: EscrowServer) -> set[bytes]:
    found = set()
    with escrowmq.Consumer(server.nameserver, group="late", topic="unread") as consumer:
        for message in consumer:
            found.add(message.body)
            if len(found) == 4:
                break
    return found


@pytest.mark.parametrize(
    ("release", "more", "stops"),
    [
        pytest.param(NEW_RELEASE, {}, True, id="5.5", marks=pytest.mark.long),
        pytest.param(NEW_RELEASE, {}, False, id="5.5-killed", marks=pytest.mark.long),
        pytest.param(
            NEW_RELEASE, {"useSingleRocksDBForAllConfigs": True}, True, id="5.5-one-database",
            marks=pytest.mark.long,
        ),
        pytest.param(jars.BROKER_RELEASE, {}, True, id="5.3", marks=pytest.mark.long),
    ],
)  # fmt: skip
def test_a_whole_store_of_rocksdb_is_refused_and_served_after_what_is_said(
    tmp_path: Path,
    served: Callable[[], EscrowServer],
    drivers: Callable[[str], Driver],
    release: str,
    more: dict[str, object],
    stops: bool,
) -> None:
    tools = drivers(f"java-{NEW_RELEASE}")
    assert isinstance(tools, JavaDriver)
    with running(tmp_path, release, stops=stops, **ROCKSDB, **more) as java:
        fill(java)
    said = refused(tmp_path)
    assert "`mqadmin rocksDBConfigToJson -b HOST:PORT`" in said
    store = tmp_path / "store"
    with running(tmp_path, release, stops=stops, **ROCKSDB, **more) as java:
        tools.mqadmin("rocksDBConfigToJson", "-b", java.address)
        until("offsets as JSON", (store / "config" / "consumerOffset.json").exists)
    aside = tmp_path / "aside"
    aside.mkdir()
    _, _, named = said.partition("and move away ")
    for folder in named.partition(": ")[0].split(" and "):
        shutil.move(store / folder, aside / folder.replace("/", "-"))
    server = served()
    assert len(read(server, "new-readers", COUNT)) == COUNT
    assert unread(server) == {b"unread %d" % number for number in range(4)}
    rest = len(read(server, READERS, COUNT - CONSUMED))
    assert rest == COUNT - CONSUMED or (rest > COUNT - CONSUMED and not stops)
    assert "the whole log is read" in server.process.errors.read_text()


@pytest.mark.long
def test_a_database_that_is_not_used_is_no_reason_to_refuse(
    tmp_path: Path, served: Callable[[], EscrowServer]
) -> None:
    with running(tmp_path, NEW_RELEASE, stops=False) as java:
        fill(java, delay=60)
    assert (tmp_path / "store" / "rocksdbstore" / "CURRENT").exists()
    assert len(read(served(), "new-readers", COUNT)) == COUNT


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        pytest.param(
            {"timerRocksDBEnable": True},
            "rocksdbstore is RocksDB's",
            id="timers",
            marks=pytest.mark.long,
        ),
        pytest.param(HALVES, "rocksdbstore is RocksDB's", id="halves", marks=pytest.mark.long),
        pytest.param(
            {"configManagerVersion": "v2"}, "config/rdb: ", id="tables", marks=pytest.mark.long
        ),
    ],
)
def test_what_only_rocksdb_has_is_never_taken_for_nothing(
    tmp_path: Path, settings: dict[str, object], said: str
) -> None:
    had_everything(tmp_path, settings, stops=True)
    assert said in refused(tmp_path)


@pytest.mark.long
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        pytest.param(HALVES, "_ROCKSDB_TRANS_HALF_TOPIC has halves", id="halves"),
        pytest.param({"configManagerVersion": "v2"}, "config/rdb: ", id="tables"),
    ],
)
def test_nor_after_a_kill(tmp_path: Path, settings: dict[str, object], said: str) -> None:
    """RocketMQ's database has lost what was in memory, and RocketMQ would read the log again."""
    had_everything(tmp_path, settings, stops=False)
    assert said in refused(tmp_path)


@pytest.mark.long
def test_timers_that_rocksdb_has_lost_are_in_the_log(
    tmp_path: Path, served: Callable[[], EscrowServer]
) -> None:
    had_everything(tmp_path, {"timerRocksDBEnable": True}, stops=False, delay=20)
    assert b"later" in read(served(), "new-readers", COUNT + 2)


def had_everything(
    tmp_path: Path, settings: dict[str, object], *, stops: bool, delay: float = 60
) -> None:
    with running(tmp_path, NEW_RELEASE, stops=stops, **settings) as java:
        fill(java, delay=delay)
        with (
            escrowmq.Producer(java.nameserver, group="settlers") as producer,
            producer.transaction("T", b"committed"),
        ):
            pass


@pytest.mark.long
def test_messages_in_flight_of_a_pop_are_redelivered_after_what_is_said(
    tmp_path: Path,
    served: Callable[[], EscrowServer],
    drivers: Callable[[str], Driver],
) -> None:
    tools = drivers(f"java-{NEW_RELEASE}")
    assert isinstance(tools, JavaDriver)
    with running(tmp_path, NEW_RELEASE, **POP) as java:
        fill(java)
        server = Server("java", java.store, nameserver=java.nameserver, broker=java.address)
        popper = Popper(server, "T")
        held = {one.body for one in popper.wait(5, invisible_s=30, most=5)}
    assert "`mqadmin exportPopRecord`" in refused(tmp_path)
    with running(tmp_path, NEW_RELEASE, **POP | {"popConsumerKVServiceEnable": False}) as java:
        tools.mqadmin("exportPopRecord", "-n", java.nameserver, "-b", java.address, "-d", "false")
    shutil.move(tmp_path / "store" / "kvStore", tmp_path / "kvStore")
    found = read(served(), popper.group, COUNT)
    assert len(found) == COUNT
    assert held <= found
