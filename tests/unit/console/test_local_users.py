from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest

from escrowmq.console.local_users import PASSWORD_FILE, read_local_users
from escrowmq.errors import UsageError


def test_the_first_start_makes_a_password_and_later_ones_keep_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    (first,) = read_local_users(str(tmp_path / "config"))
    path = tmp_path / "config" / PASSWORD_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(first.password) >= 16
    assert read_local_users(str(tmp_path / "config")) == (first,)
    assert str(path) in caplog.text
    assert first.password not in caplog.text
    assert first.password not in repr(first)
    assert (first.name, first.may_change) == ("admin", True)


def test_an_empty_file_of_an_earlier_start_gets_a_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk or a loss of power left one, with which no broker started any more."""
    path = tmp_path / PASSWORD_FILE
    path.touch()
    (admin,) = read_local_users(str(tmp_path))
    assert path.read_text().strip() == admin.password
    assert [each.name for each in tmp_path.iterdir()] == [PASSWORD_FILE]

    def fail(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    path.unlink()
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", fail)
        with pytest.raises(UsageError, match="No space left"):
            read_local_users(str(tmp_path))
    assert not path.exists()
    assert len(read_local_users(str(tmp_path))) == 1


def test_passwords_of_files_are_taken_and_none_is_made(tmp_path: Path) -> None:
    for name in ("admins", "viewers"):
        (tmp_path / name).write_text(f"the password of {name}\n")
    found = read_local_users(
        str(tmp_path / "config"),
        password_file=str(tmp_path / "admins"),
        viewer_file=str(tmp_path / "viewers"),
    )
    assert [(user.name, user.password, user.may_change) for user in found] == [
        ("admin", "the password of admins", True),
        ("viewer", "the password of viewers", False),
    ]
    assert not (tmp_path / "config").exists()


@pytest.mark.parametrize(
    ("text", "said"), [(b"short", "5 characters"), (b"", "0 characters"), (b"\xff" * 9, "no text")]
)
def test_a_password_that_is_none_is_refused(tmp_path: Path, text: bytes, said: str) -> None:
    path = tmp_path / "password"
    path.write_bytes(text)
    with pytest.raises(UsageError, match=said):
        read_local_users(str(tmp_path), password_file=str(path))


def test_files_that_cannot_be_had_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="No such file"):
        read_local_users(str(tmp_path), password_file=str(tmp_path / "nowhere"))
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--http-port -1"):
        read_local_users(str(tmp_path / "file"))
