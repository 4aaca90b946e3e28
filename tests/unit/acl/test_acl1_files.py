from __future__ import annotations

import logging
from pathlib import Path

import pytest

from escrowmq.acl.acl1_accounts import ACCOUNTS
from escrowmq.acl.acl1_files import AccountFiles
from escrowmq.base.fixed_limits import ACL_FILE_SIZE_MAX, ACL_FILES_MAX
from escrowmq.errors import UsageError
from escrowmq.net.disk import FileDisk
from escrowmq.testing.disk import SimDisk


def text(*keys: str) -> bytes:
    accounts = [f"{{accessKey: {key}, secretKey: secret-1}}" for key in keys]
    return f"accounts: [{', '.join(accounts)}]".encode()


@pytest.fixture(name="disk")
def make_disk() -> SimDisk:
    disk = SimDisk()
    disk.small["plain_acl.yml"] = text("account-1")
    return disk


@pytest.fixture(name="files")
def make_files(disk: SimDisk) -> AccountFiles:
    files = AccountFiles(disk)
    files.load()
    return files


def keys(files: AccountFiles) -> list[str]:
    return sorted(files.rules.accounts)


def test_all_files_below_the_folder_are_read_the_default_one_last(disk: SimDisk) -> None:
    disk.small["acl/b.yaml"] = text("account-2", "account-1")
    disk.small["acl/deep/er/c.yml"] = text("account-3")
    disk.small["acl/tools.yml"] = b"accessKey: x"
    disk.small["acl/notes.txt"] = b"{"
    disk.small["other.yml"] = b"{"
    files = AccountFiles(disk)
    files.load()
    assert keys(files) == ["account-1", "account-2", "account-3"]
    assert files.loaded_files() == ["acl/b.yaml", "acl/deep/er/c.yml", "plain_acl.yml"]
    assert files.rules.homes["account-1"] == "acl/b.yaml"


def test_without_a_file_nobody_has_an_account(caplog: pytest.LogCaptureFixture) -> None:
    files = AccountFiles(SimDisk())
    files.load()
    assert keys(files) == []
    assert "all requests are refused" in caplog.text


def test_a_bad_file_is_named_when_the_broker_starts(disk: SimDisk) -> None:
    disk.small["acl/bad.yml"] = b"accounts: [7]"
    with pytest.raises(UsageError, match=r"acl/bad\.yml: account 1: members"):
        AccountFiles(disk).load()


def test_files_have_bounds(disk: SimDisk) -> None:
    disk.small["acl/big.yml"] = bytes(ACL_FILE_SIZE_MAX + 1)
    with pytest.raises(UsageError, match=r"acl/big\.yml: 1048577 bytes"):
        AccountFiles(disk).load()
    del disk.small["acl/big.yml"]
    disk.small |= {f"acl/{number}.yml": b"" for number in range(ACL_FILES_MAX + 9)}
    with pytest.raises(UsageError, match="files of accounts; 256 are allowed"):
        AccountFiles(disk).load()
    deep = SimDisk()
    deep.small["acl/1/2/3/4/5/6/7/8/9/a.yml"] = b""
    with pytest.raises(UsageError, match="8 levels deep"):
        AccountFiles(deep).load()


def test_a_change_counts_when_two_looks_find_it(disk: SimDisk, files: AccountFiles) -> None:
    assert not files.reload_if_changed()
    disk.small["plain_acl.yml"] = text("account-1", "account-2")
    assert not files.reload_if_changed()
    assert keys(files) == ["account-1"]
    assert files.reload_if_changed()
    assert keys(files) == ["account-1", "account-2"]
    assert not files.reload_if_changed()


def test_what_is_being_written_is_not_taken(disk: SimDisk, files: AccountFiles) -> None:
    whole = text("account-1", "account-2")
    disk.small["plain_acl.yml"] = b""
    assert not files.reload_if_changed()
    disk.small["plain_acl.yml"] = whole[:20]
    assert not files.reload_if_changed()
    disk.small["plain_acl.yml"] = whole
    assert not files.reload_if_changed()
    assert keys(files) == ["account-1"]
    assert files.reload_if_changed()
    assert keys(files) == ["account-1", "account-2"]
    assert files.stale_reason == ""


class TimedDisk(SimDisk):
    def __init__(self) -> None:
        super().__init__()
        self.written_ms = 0

    def modified_ms(self, path: str) -> int:
        return self.written_ms


def test_what_was_written_between_two_looks_is_not_taken() -> None:
    disk = TimedDisk()
    disk.small["plain_acl.yml"] = text("account-1")
    files = AccountFiles(disk)
    files.load()
    disk.small["plain_acl.yml"] = b""  # as an editor leaves it for a moment, again and again
    for disk.written_ms in range(1, 9):
        assert not files.reload_if_changed()
    assert keys(files) == ["account-1"]
    assert files.reload_if_changed()
    assert keys(files) == []


def test_files_come_and_go(disk: SimDisk, files: AccountFiles) -> None:
    disk.small["acl/more.yml"] = text("account-2")
    assert (files.reload_if_changed(), files.reload_if_changed()) == (False, True)
    assert keys(files) == ["account-1", "account-2"]
    del disk.small["plain_acl.yml"]
    assert (files.reload_if_changed(), files.reload_if_changed()) == (False, True)
    assert keys(files) == ["account-2"]


def test_a_bad_file_changes_nothing_and_is_told_once(
    disk: SimDisk, files: AccountFiles, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    disk.small["plain_acl.yml"] = b"accounts: ["
    for _ in range(5):
        assert not files.reload_if_changed()
    assert keys(files) == ["account-1"]
    assert len(caplog.records) == 1
    assert "plain_acl.yml: line 2: this is not YAML" in files.stale_reason
    disk.small["plain_acl.yml"] = text("account-1")
    assert not files.reload_if_changed()  # as it was: nothing is to be done
    assert files.stale_reason == ""
    disk.small["plain_acl.yml"] = b"accounts: ["
    for _ in range(3):
        files.reload_if_changed()
    assert len(caplog.records) == 2


def test_what_cannot_be_read_changes_nothing(disk: SimDisk, files: AccountFiles) -> None:
    def fail(path: str) -> bytes:
        raise PermissionError(13, "Permission denied", path)

    disk.read = fail  # type: ignore[method-assign]
    assert not files.reload_if_changed()
    assert keys(files) == ["account-1"]
    assert "Permission denied" in files.stale_reason


def test_what_is_written_counts_at_once(disk: SimDisk, files: AccountFiles) -> None:
    document = {ACCOUNTS: [{"accessKey": "account-9", "secretKey": "0012345"}]}
    files.replace_file("plain_acl.yml", document)
    assert keys(files) == ["account-9"]
    again = AccountFiles(disk)
    again.load()
    assert again.rules.accounts["account-9"].secret == "0012345"
    assert not files.reload_if_changed()


def test_files_with_secrets_are_their_owners_alone(tmp_path: Path) -> None:
    (tmp_path / "plain_acl.yml").write_bytes(text("account-1"))
    files = AccountFiles(FileDisk(str(tmp_path)))
    files.load()
    files.replace_file("plain_acl.yml", {ACCOUNTS: []})
    assert (tmp_path / "plain_acl.yml").stat().st_mode & 0o077 == 0
    (tmp_path / "plain_acl.yml").write_bytes(text("account-2"))
    assert (files.reload_if_changed(), files.reload_if_changed()) == (False, True)
    assert keys(files) == ["account-2"]


def test_an_account_may_be_changed_in_a_file_of_the_folder(disk: SimDisk) -> None:
    disk.small["acl/more.yml"] = text("account-2")
    files = AccountFiles(disk)
    files.load()
    document = {ACCOUNTS: [{"accessKey": "account-1", "secretKey": "another-secret"}]}
    files.replace_file("acl/more.yml", document)
    assert files.rules.accounts["account-1"].secret == "another-secret"  # the default file is last
    assert files.rules.homes == {"account-1": "acl/more.yml"}


def test_a_file_that_vanishes_while_it_is_looked_at_is_none(
    disk: SimDisk, files: AccountFiles
) -> None:
    disk.small["acl/more.yml"] = text("account-2")
    read = disk.read
    disk.read = lambda path: None if path.startswith("acl") else read(path)  # type: ignore[method-assign]
    files.load()
    assert keys(files) == ["account-1"]


def test_a_bad_file_beside_it_hinders_no_change(disk: SimDisk, files: AccountFiles) -> None:
    disk.small["acl/bad.yml"] = b"accounts: ["
    files.replace_file("plain_acl.yml", {ACCOUNTS: []})
    assert keys(files) == []


def test_nothing_is_written_when_it_would_be_bad(disk: SimDisk, files: AccountFiles) -> None:
    before = disk.small["plain_acl.yml"]
    with pytest.raises(UsageError):
        files.replace_file("plain_acl.yml", {ACCOUNTS: [{"accessKey": "short"}]})
    assert disk.small["plain_acl.yml"] == before
    assert keys(files) == ["account-1"]
    assert files.read_document("plain_acl.yml") is not None
    assert files.read_document("acl/none.yml") is None
