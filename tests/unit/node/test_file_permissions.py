from __future__ import annotations

import stat
from pathlib import Path

import pytest

from escrowmq.net.disk import FileDisk
from escrowmq.node.file_permissions import warn_of_wide_permissions


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_what_a_broker_writes_is_for_its_owner(tmp_path: Path) -> None:
    data = tmp_path / "store"
    disk = FileDisk(str(data))
    disk.open("commitlog/00000000000000000000", size=4096).close()
    disk.replace("config/topics.json", b"{}")
    disk.replace("config/auth.json", b"{}", is_private=True)
    disk.lock("lock")
    modes = {path.relative_to(data).as_posix(): mode(path) for path in data.rglob("*")}
    assert len(modes) == 6
    assert {name for name, bits in modes.items() if bits & 0o077} == set()
    assert mode(data) == 0o700
    assert (
        warn_of_wide_permissions(data=str(data), accounts=str(data / "config"), settings=None) == []
    )


def test_a_file_that_a_crash_left_open_to_others_is_closed(tmp_path: Path) -> None:
    left = tmp_path / "auth.json.tmp"
    left.touch(0o644)
    left.chmod(0o644)
    FileDisk(str(tmp_path)).replace("auth.json", b"{}", is_private=True)
    assert mode(tmp_path / "auth.json") == 0o600


def test_files_that_others_may_read_are_told_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data, accounts = tmp_path / "store", tmp_path / "conf"
    made = [
        data / "config" / "auth.json", data / "config" / "consolePassword",
        accounts / "plain_acl.yml", accounts / "acl" / "team.yaml",
        tmp_path / "broker.conf", data / "commitlog" / "0",
    ]  # fmt: skip
    for path in made:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        path.chmod(0o640)
    (data / "commitlog").chmod(0o755)
    data.chmod(0o755)
    wide = warn_of_wide_permissions(data=str(data), accounts=str(accounts), settings=str(made[4]))
    assert wide == [*map(str, made[:5]), str(data)]
    assert caplog.text.count("chmod 600 it") == 5
    assert caplog.text.count("chmod 700 it") == 1
    assert mode(made[1]) == 0o640
    data.chmod(0o700)
    for path in made:
        path.chmod(0o600)
    assert (
        warn_of_wide_permissions(data=str(data), accounts=str(accounts), settings=str(made[4]))
        == []
    )
