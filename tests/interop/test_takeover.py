"""RocketMQ's data folders taken over: what a start of ours makes of each, and what it says.

The table in docs/operating.md has a row for each; real stores of RocketMQ stand behind them here,
spoilt as disks, kills and operators spoil them."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import escrowmq

from .ports import free_port
from .process import ProcessError
from .servers import EscrowServer, JavaBroker, JavaNameServer, new_topic

COUNT = 40
CONSUMED = 10
GROUP = "half-way"
QUEUES = 2
PATIENCE_S = 60.0
SETTINGS: dict[str, Any] = {
    "mappedFileSizeCommitLog": 16 << 20,
    "maxIndexNum": 20_000,
    "maxHashSlotNum": 5_000,
}


@dataclass(frozen=True)
class Stores:
    """Folders that a Java broker left."""

    clean: Path
    killed: Path


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Stores:
    folder = tmp_path_factory.mktemp("written")
    store = folder / "store"
    write(folder, store, **SETTINGS)
    clean = copied(store, folder / "clean")
    broker(folder, store, stops=False, **SETTINGS)
    return Stores(clean, store)


def write(folder: Path, store: Path, *, stops: bool = True, **settings: object) -> None:
    """Let a Java broker take messages, and a group consume some; then end it."""

    class Filled:
        pass

    def fill(nameserver: str, address: str) -> None:
        server = Filled()
        server.nameserver, server.broker = nameserver, address  # type: ignore[attr-defined]
        new_topic(server, "T", queues=QUEUES)  # type: ignore[arg-type]
        with escrowmq.Producer(nameserver, group="writers") as producer:
            for number in range(COUNT):
                producer.send("T", b"%d" % number, keys=[f"k{number}"])
        with escrowmq.Consumer(nameserver, group=GROUP, topic="T") as consumer:
            for got, _ in enumerate(consumer, 1):
                if got == CONSUMED:
                    break

    broker(folder, store, fill, stops=stops, **settings)


def broker(
    folder: Path,
    store: Path,
    act: Callable[[str, str], None] | None = None,
    *,
    stops: bool = True,
    **settings: Any,
) -> None:
    """Run a Java broker over a store for a while."""
    names = JavaNameServer(folder / "names")
    try:
        java = JavaBroker(folder / "java", names.address, store=store, **settings)
        try:
            if act is not None:
                act(names.address, java.address)
        finally:
            java.stop() if stops else java.kill()
    finally:
        names.stop()


def copied(source: Path, target: Path) -> Path:
    """The same folder somewhere else; files stay as empty as they are."""
    command = ["cp", "-a", "--sparse=always", "--", str(source), str(target)]
    subprocess.run(command, check=True)
    return target


def tables(store: Path) -> list[Path]:
    return [store / "config" / name for name in ("topics.json", "consumerOffset.json")]


def as_it_is(store: Path) -> dict[str, object]:
    return {}


def elsewhere(store: Path) -> dict[str, object]:
    target = store.parent / "fast" / "commitlog"
    target.parent.mkdir()
    (store / "commitlog").rename(target)
    return {"storePathCommitLog": target}


def not_mounted(store: Path) -> dict[str, object]:
    shutil.rmtree(store / "commitlog")
    return {}


def torn_with_former(store: Path) -> dict[str, object]:
    for table in tables(store):
        shutil.copy(table, f"{table}.bak")
        table.write_bytes(table.read_bytes()[:20])
    return {}


def empty_with_former(store: Path) -> dict[str, object]:
    for table in tables(store):
        shutil.copy(table, f"{table}.bak")
        table.write_bytes(b"")
    return {}


def torn_alone(store: Path) -> dict[str, object]:
    table = tables(store)[1]
    Path(f"{table}.bak").unlink(missing_ok=True)
    table.write_bytes(table.read_bytes()[:20])
    return {}


def without_topics(store: Path) -> dict[str, object]:
    table = tables(store)[0]
    Path(f"{table}.bak").unlink(missing_ok=True)
    table.unlink()
    return {}


def without_queues(store: Path) -> dict[str, object]:
    shutil.rmtree(store / "consumequeue")
    return {}


def without_one_queue(store: Path) -> dict[str, object]:
    shutil.rmtree(store / "consumequeue" / "T" / "1")
    return {}


def without_index(store: Path) -> dict[str, object]:
    shutil.rmtree(store / "index")
    return {}


Spoil = Callable[[Path], dict[str, object]]

ANEW = ("config/topics.json lacks 1 topics, which are recreated from their queues",)
TAKEN = ("topics.json.bak, which may be a little older", "consumerOffset.json.bak, which may")
BUILT = "queues were rebuilt from the log: "
INDEX = ("the index is rebuilt: it has no file",)
SERVED: list[tuple[Spoil, tuple[str, ...], tuple[str, ...]]] = [
    (as_it_is, (), ()),
    (elsewhere, (), ()),
    (torn_with_former, TAKEN, TAKEN),
    (empty_with_former, TAKEN, TAKEN),
    (without_topics, ANEW, ANEW),
    # After a kill all of such a short log is read in any case.
    (without_queues, (f"2 {BUILT}T/0, T/1",), ()),
    (without_one_queue, (f"1 {BUILT}T/1",), ()),
    (without_index, INDEX, INDEX),
]
"""What is done to a folder, and what a start says of it: of one that was closed, and of one whose
broker was killed."""

QUICKLY = (as_it_is, torn_with_former, without_queues)
"""One of each kind: nothing is wrong, a table, files of the log. The rest is for `make interop`."""

REFUSED: list[tuple[Spoil, str]] = [
    (not_mounted, "commitlog has no file, but the checkpoint knows of messages. Mount the disk"),
    (torn_alone, "config/consumerOffset.json.bak is not there: restore one from a copy"),
]
STARTED = {"clean": "the store was closed properly", "killed": "the store was not closed, and is"}

OTHERS: list[tuple[str, dict[str, object], str]] = [
    ("rocksdb", {"storeType": "defaultRocksDB"}, "RocksDB's. RocketMQ has topics"),
    ("dledger", {"enableDLegerCommitLog": True}, "dledger-n0 is a log of DLedger"),
]


@pytest.fixture(params=["clean", "killed"])
def store(request: pytest.FixtureRequest, stores: Stores, tmp_path: Path) -> Path:
    """A copy of what was left by a broker that stopped, and by one that was killed."""
    folder = tmp_path / str(request.param)
    folder.mkdir()
    return copied(getattr(stores, request.param), folder / "store")


@pytest.fixture
def start(tmp_path: Path, store: Path) -> Iterator[Callable[..., EscrowServer]]:
    started: list[EscrowServer] = []

    def begin(**settings: Any) -> EscrowServer:
        server = EscrowServer(tmp_path / "ours", store=store, **SETTINGS, **settings)
        started.append(server)
        return server

    yield begin
    for server in started:
        server.kill()


def read(server: EscrowServer, group: str, count: int) -> set[bytes]:
    """What a group gets; everything, unless that takes too long."""
    bodies: set[bytes] = set()
    with escrowmq.Consumer(server.nameserver, group=group, topic="T") as consumer:
        while len(bodies) < count:
            messages = consumer.receive(timeout_s=PATIENCE_S)
            if not messages:
                break
            for message in messages:
                bodies.add(message.body)
                message.ack()
    return bodies


@pytest.mark.parametrize(
    ("spoil", "of_clean", "of_killed"),
    [pytest.param(*row, id=row[0].__name__, marks=() if row[0] in QUICKLY else pytest.mark.long)
     for row in SERVED],
)  # fmt: skip
def test_a_folder_is_served_whole_and_what_was_mended_is_said(
    store: Path,
    start: Callable[..., EscrowServer],
    spoil: Spoil,
    of_clean: tuple[str, ...],
    of_killed: tuple[str, ...],
) -> None:
    said = of_clean if store.parent.name == "clean" else of_killed
    server = start(**spoil(store))
    assert len(read(server, "new-readers", COUNT)) == COUNT
    text = server.process.errors.read_text()
    for each in (*said, STARTED[server.store.parent.name]):
        assert each in text
    assert len(read(server, GROUP, COUNT - CONSUMED)) <= COUNT - CONSUMED


@pytest.mark.parametrize(("spoil", "said"), REFUSED, ids=[spoil.__name__ for spoil, _ in REFUSED])
def test_a_folder_that_cannot_be_served_whole_is_refused(
    store: Path, start: Callable[..., EscrowServer], spoil: Spoil, said: str
) -> None:
    settings = spoil(store)
    with pytest.raises(ProcessError, match="ended with 2") as refused:
        start(**settings)
    assert said in str(refused.value)


@pytest.mark.long
@pytest.mark.parametrize(("kind", "settings", "said"), OTHERS, ids=[kind for kind, *_ in OTHERS])
@pytest.mark.parametrize("stops", [True, False], ids=["clean", "killed"])
def test_a_store_of_another_kind_is_refused(
    tmp_path: Path, kind: str, settings: dict[str, object], said: str, stops: bool
) -> None:
    if kind == "dledger":
        settings = {**settings, "dLegerGroup": "g", "dLegerSelfId": "n0"}
        settings["dLegerPeers"] = f"n0-127.0.0.1:{free_port()}"
    store = tmp_path / "store"
    write(tmp_path, store, stops=stops, **settings)
    with pytest.raises(ProcessError, match="ended with 2") as refused:
        EscrowServer(tmp_path / "ours", store=store)
    assert said in str(refused.value)
