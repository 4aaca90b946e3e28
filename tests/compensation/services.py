"""Redis and PostgreSQL as processes of a test's own, from the distribution's packages."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import psycopg
import pytest
import redis

import escrowmq
from escrowmq.compensation.announcing import TOPIC
from escrowmq.errors import OutcomeUnknown
from tests.interop.ports import free_port
from tests.interop.process import Process, until

_POSTGRES_FOLDERS: Final = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
_NOBODY: Final = 65_534


def missing() -> str:
    """The first of both servers that this machine has not; empty when both are there."""
    if shutil.which("redis-server") is None:
        return "redis-server"
    return missing_postgres()


def missing_postgres() -> str:
    """Empty when PostgreSQL is here."""
    return "" if _POSTGRES_FOLDERS else "postgresql"


class RedisServer:
    """A Redis server; it can be killed, and started again with or without its data. One that is not
    durable has what its last snapshot has: `snapshot`."""

    def __init__(self, folder: Path, *, is_durable: bool = True) -> None:
        self._folder = folder
        self._is_durable = is_durable
        self._port = free_port()
        self._process: Process | None = None
        self.url = f"redis://127.0.0.1:{self._port}/0"
        self.start()

    def start(self) -> None:
        """Start it on what its folder holds."""
        self._folder.mkdir(parents=True, exist_ok=True)
        command = [
            "redis-server", "--port", str(self._port), "--bind", "127.0.0.1",
            "--dir", str(self._folder), "--save", "", "--daemonize", "no",
        ]  # fmt: skip
        if self._is_durable:
            command += ["--appendonly", "yes", "--appendfsync", "always"]
        self._process = Process(command, folder=self._folder, name="redis")
        with redis.Redis(port=self._port) as client:
            until("Redis answers", lambda: _answers(client))

    def kill(self) -> None:
        """kill -9."""
        if self._process is not None:
            self._process.kill()
            self._process = None

    def snapshot(self) -> None:
        """Keep what it has now, and what comes later in its memory alone."""
        with redis.Redis.from_url(self.url) as client:
            client.save()

    def follow(self, master: RedisServer) -> None:
        """Copy all of a master's data from now on; it has the data of now when this returns."""
        with redis.Redis.from_url(self.url) as client:
            client.replicaof("127.0.0.1", str(master._port))
            until("the replica is up to date", lambda: _has_all(client))

    def stop_following(self) -> None:
        """Nothing more comes from its master."""
        with redis.Redis.from_url(self.url) as client:
            client.replicaof("NO", "ONE")

    def take_place_of(self, master: RedisServer) -> None:
        """Answer at the address of a master that is dead."""
        with redis.Redis.from_url(self.url) as client:
            client.config_set("port", master._port)
        self._port, self.url = master._port, master.url

    def lose_data(self) -> None:
        """Nothing is left of what it kept; it must not run."""
        assert self._process is None
        shutil.rmtree(self._folder)


def _has_all(client: redis.Redis) -> bool:
    """Whether a replica has read whatever its master has."""
    state = client.info("replication")
    return bool(state["master_link_status"] == "up" and not state["master_sync_in_progress"])


def _answers(client: redis.Redis) -> bool:
    try:
        return bool(client.ping())
    except redis.RedisError:
        return False


class PostgresServer:
    """A PostgreSQL server with an empty database. It listens on a socket in its folder: a port
    could be taken by somebody else before it is listened on. Tests do not wait for the disk, unless
    it is durable."""

    def __init__(self, folder: Path, *, is_durable: bool = False) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._user = _NOBODY if os.getuid() == 0 else None  # it refuses to run as root
        if self._user is not None:
            os.chown(folder, self._user, self._user)
            for parent in folder.parents:
                if parent.stat().st_uid == 0 and parent.stat().st_mode & 0o001 == 0:
                    parent.chmod(parent.stat().st_mode | 0o011)
        data = folder / "data"
        tools = _POSTGRES_FOLDERS[0]
        subprocess.run(
            [tools / "initdb", "-D", data, "-U", "shop", "-A", "trust", "-E", "UTF8", "-N",
             "--locale=C"],
            check=True, stdout=subprocess.DEVNULL, user=self._user, group=self._user, cwd=folder,
            extra_groups=[] if self._user is not None else None,
        )  # fmt: skip
        self._databases_count = 0
        self._folder = folder
        self.url = self._url("postgres")
        self._child = subprocess.Popen(
            [tools / "postgres", "-D", data, "-h", "", "-k", folder, "-c",
             f"fsync={'on' if is_durable else 'off'}", "-c", "max_prepared_transactions=10"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=self._user,
            group=self._user, cwd=folder, extra_groups=[] if self._user is not None else None,
        )  # fmt: skip
        until("PostgreSQL answers", self._answers)

    def _answers(self) -> bool:
        assert self._child.poll() is None, "PostgreSQL has ended"
        try:
            psycopg.connect(self.url).close()
        except psycopg.OperationalError:
            return False
        return True

    def new_database(self) -> str:
        """The address of one that is empty."""
        self._databases_count += 1
        name = f"shop{self._databases_count}"
        with psycopg.connect(self.url, autocommit=True) as db:
            db.execute(f"create database {name}".encode())
        return self._url(name)

    def _url(self, database: str) -> str:
        return f"postgresql://shop@/{database}?host={self._folder}"

    def stop(self) -> None:
        """End it; a SIGTERM would wait for clients that are still connected."""
        self._child.send_signal(signal.SIGINT)
        self._child.wait(30)


def is_all_read(admin: escrowmq.Admin) -> bool:
    """Whether the reader has acknowledged all announcements. A group whose reader has not begun yet
    has no queues."""
    lags = admin.groups.lag(TOPIC)
    return bool(lags) and all(one.count == 0 for one in lags)


def start_forgetful(
    folder: Path, *, share: float, settings: Sequence[str] = (), ahead_ms: int = 0
) -> tuple[Process, str]:
    """A broker that forgets some ENDs (forgetful.py), and the address of its name server."""
    command = [
        sys.executable, "-m", "tests.compensation.forgetful", str(share), str(ahead_ms), "serve",
        "--data", str(folder / "store"), "--nameserver-port", "0", "--broker-port", "0",
        "--set", "transactionTimeOut=3600000",
        *(word for one in settings for word in ("--set", one)),
    ]  # fmt: skip
    process = Process(
        command, folder=folder, name="forgetful",
        environment={"PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    found = re.search(r"nameserver=(\S+)", process.wait_line("escrowmq ready ", within_s=60))
    assert found is not None
    return process, found[1]


@contextmanager
def forgotten_commit(folder: Path, *, ahead_ms: int) -> Iterator[tuple[escrowmq.Admin, str]]:
    """A broker whose clock is ahead and that forgot the commit of a message of `paid`: its
    administration, and the id of the message."""
    process, nameserver = start_forgetful(folder, share=1, ahead_ms=ahead_ms)
    try:
        with escrowmq.Admin(nameserver) as admin:
            admin.topics.create("paid", queues=1)
            with (
                escrowmq.Producer(nameserver, group="orders") as producer,
                pytest.raises(OutcomeUnknown),
                producer.transaction("paid", b"x") as tx,
            ):
                pass
            yield admin, tx.results[0].message_id
    finally:
        process.kill()
