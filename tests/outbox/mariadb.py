"""A MariaDB server of a test's own, from the distribution's package."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pymysql

from tests.interop.process import until


def missing() -> str:
    """Empty when MariaDB is here."""
    return "" if shutil.which("mariadbd") and shutil.which("mariadb-install-db") else "mariadb"


class MariaDbServer:
    """A server with no database yet. Its user is root, without a password, on a socket alone."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        data = folder / "data"
        # A server that starts removes every `#sql*` file of its folder for temporary tables, those
        # of other servers too.
        temporary = folder / "tmp"
        temporary.mkdir(exist_ok=True)
        user = ["--user=root"] if os.getuid() == 0 else []
        done = subprocess.run(
            ["mariadb-install-db", "--no-defaults", f"--datadir={data}", "--skip-test-db",
             f"--tmpdir={temporary}",
             "--auth-root-authentication-method=normal", *user],
            check=False, capture_output=True, text=True, cwd=folder,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        self.socket = str(folder / "mariadb.sock")
        self._databases_count = 0
        self._errors = folder / "mariadb.err"
        with self._errors.open("ab") as errors:
            self._child = subprocess.Popen(
                ["mariadbd", "--no-defaults", f"--datadir={data}", "--skip-networking",
                 f"--socket={self.socket}", f"--tmpdir={temporary}",
                 "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=16M",
                 "--performance-schema=off", *user],
                stdout=subprocess.DEVNULL, stderr=errors, cwd=folder,
            )  # fmt: skip
        until("MariaDB answers", self._answers, within_s=60)

    def _answers(self) -> bool:
        assert self._child.poll() is None, self._errors.read_text()[-3000:]
        command = ["mariadb-admin", "--no-defaults", f"--socket={self.socket}", "ping"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0

    def _connect(self) -> pymysql.Connection:
        return pymysql.connect(unix_socket=self.socket, user="root")

    def new_database(self) -> str:
        """The name of one that is empty."""
        self._databases_count += 1
        name = f"shop{self._databases_count}"
        with self._connect() as db, db.cursor() as cursor:
            cursor.execute(f"create database {name}")
        return name

    def stop(self) -> None:
        """End it."""
        self._child.terminate()
        self._child.wait(30)
