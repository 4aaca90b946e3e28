"""The console's own users, for brokers without accounts: `admin`, with a password that the first
start generates, and `viewer` if it has a password. Passwords are in files, never in a command line
or a log."""

from __future__ import annotations

import logging
import os
import secrets
from pathlib import Path
from typing import Final

from escrowmq.console.options import LocalUser
from escrowmq.errors import UsageError

_log = logging.getLogger(__name__)
ADMIN: Final = "admin"
VIEWER: Final = "viewer"
PASSWORD_FILE: Final = "consolePassword"  # noqa: S105 - a file's name
_PASSWORD_SIZE: Final = 12
_PASSWORD_MIN: Final = 8
_PASSWORD_MAX: Final = 1_024


def read_local_users(
    folder: str, *, password_file: str | None = None, viewer_file: str | None = None
) -> tuple[LocalUser, ...]:
    """Read the passwords of the console's users. The password of `admin` is in `password_file`, or
    in a file in `folder`, which is generated if missing. `viewer`, who may only read, exists if
    `viewer_file` is given."""
    path = Path(password_file) if password_file else Path(folder) / PASSWORD_FILE
    if not password_file and not _has_content(path):
        _make_password_file(path)
    if not password_file:
        _log.info("console: user %s, the password is in %s", ADMIN, path)
    users = [LocalUser(name=ADMIN, password=_read_password(path), may_change=True)]
    if viewer_file:
        users.append(
            LocalUser(name=VIEWER, password=_read_password(Path(viewer_file)), may_change=False)
        )
    return tuple(users)


def _has_content(path: Path) -> bool:
    """Whether a file exists and is not empty. A full disk, or a loss of power, leaves an empty
    one."""
    try:
        return path.stat().st_size > 0
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True  # reading it says why it cannot be used


def _make_password_file(path: Path) -> None:
    """Create a file that only its owner can read, from the first moment on. It is complete, also
    after a loss of power, or not there."""
    new = path.with_name(f"{path.name}.new")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        new.unlink(missing_ok=True)
        descriptor = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(secrets.token_urlsafe(_PASSWORD_SIZE) + "\n")
            file.flush()
            os.fsync(descriptor)
        new.replace(path)
    except OSError as error:
        raise UsageError(
            f"the console's password cannot be written to {path}: {error.strerror}; name a "
            "file with a password (--console-password-file), or open no http port "
            "(--http-port -1)"
        ) from error


def _read_password(path: Path) -> str:
    try:
        with path.open(encoding="utf-8") as file:
            found = file.read(_PASSWORD_MAX + 1).strip()
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "this is no text"
        raise UsageError(
            f"the console's password cannot be read from {path}: {reason}; name a file that "
            "contains only the password"
        ) from error
    if not _PASSWORD_MIN <= len(found) <= _PASSWORD_MAX:
        raise UsageError(
            f"the console's password in {path} has {len(found)} characters; {_PASSWORD_MIN} to "
            f"{_PASSWORD_MAX} are expected"
        )
    return found
