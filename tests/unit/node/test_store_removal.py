from __future__ import annotations

from pathlib import Path

import pytest
from tests.harness.exchange import COMMIT, Exchange

from escrowmq.base.codes import Request
from escrowmq.base.store_settings import StoreSettings
from escrowmq.group.tables import COPIED
from escrowmq.node.group_folder import GroupFolder
from escrowmq.node.store_removal import remove_store

OTHERS = (
    "broker.conf", "self-made-certificate.pem", "config/plain_acl.yml", "config/acl/team.yml",
    "commitlog/notes", "consumequeue/T/notes", "certificates/broker.pem",
)  # fmt: skip
SEGMENT = "00000000000000000000"


def write(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x")


def files(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.rglob("*") if not path.is_dir()}


def written_by_a_broker() -> set[str]:
    exchange = Exchange()
    caller = exchange.connect()
    exchange.create_topic("T")
    caller.heartbeat(producer="PG", consumer="G", topics={"T": "*"})
    caller.send("T", b"x", KEYS="k")
    caller.send("T", b"x", DELAY="1")
    caller.send("T", b"x", TIMER_DELAY_SEC="2")
    caller.end(caller.prepare("T", b"x"), COMMIT)
    caller.prepare("T", b"x")
    caller.ask(Request.UPDATE_BROKER_CONFIG, body=b"maxMessageSize=100000")
    exchange.advance(30_000)
    exchange.reopen()
    exchange.advance(30_000)
    return {*exchange.disk.files, *exchange.disk.small} - {"lock"}


def test_nothing_stays_of_what_a_broker_writes(tmp_path: Path) -> None:
    paths = written_by_a_broker()
    assert {"config/timercheck", "config/topics.json.bak", "queues.json"} <= paths
    assert {path.partition("/")[0] for path in paths} >= {"commitlog", "consumequeue", "index"}
    write(tmp_path, *paths, *COPIED, "config/topics.json.tmp", "timerwheel", f"timerlog/{SEGMENT}")
    remove_store(tmp_path, tmp_path / "commitlog")
    assert files(tmp_path) == set()
    assert list((tmp_path / "consumequeue").iterdir()) == []


def test_what_others_keep_in_the_folder_stays(tmp_path: Path) -> None:
    write(tmp_path, *OTHERS, f"consumequeue/T/0/{SEGMENT}", f"consumequeue/U/0/{SEGMENT}")
    remove_store(tmp_path, tmp_path / "commitlog")
    assert files(tmp_path) == set(OTHERS)
    assert [path.name for path in (tmp_path / "consumequeue").iterdir()] == ["T"]


def test_a_log_elsewhere_and_a_queue_folder_elsewhere_are_emptied(tmp_path: Path) -> None:
    data, fast = tmp_path / "data", tmp_path / "fast"
    write(fast, f"log/{SEGMENT}", "log/lost+found/1", f"queues/T/0/{SEGMENT}")
    write(fast, f"queues/lost+found/0/{SEGMENT}")
    data.mkdir()
    (data / "consumequeue").symlink_to(fast / "queues")
    remove_store(data, fast / "log")
    assert files(fast) == {"log/lost+found/1", f"queues/lost+found/0/{SEGMENT}"}


def test_a_member_is_emptied_beside_a_folder_that_it_may_not_enter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = GroupFolder(str(tmp_path), "", StoreSettings(), boot="b")
    state = folder.open_at_start("m", loses_nothing=False)
    write(tmp_path, f"commitlog/{SEGMENT}", "lost+found/1", "drills.json")
    iterdir = Path.iterdir

    def refused(path: Path) -> object:
        if path.name == "lost+found":
            raise PermissionError(str(path))
        return iterdir(path)

    monkeypatch.setattr(Path, "iterdir", refused)
    emptied = folder.empty_store(state)
    assert emptied.incarnation == state.incarnation
    assert not emptied.is_emptying
    assert files(tmp_path) == {
        "lost+found/1", "drills.json", "group.json", "group.json.next", "group.lock", "lock",
    }  # fmt: skip
    folder.close()


def test_a_file_that_cannot_be_removed_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "checkpoint").mkdir()
    with pytest.raises(OSError, match="checkpoint"):
        remove_store(tmp_path, tmp_path / "commitlog")
