"""A consumer process whose handler meets a fault once for each message, at the step that the
message names. Whatever the fault is, each message's row is in the database once in the end.

Steps: `begun` (before anything is noted), `noted` (the work begins), `row` (the work has written
its row), `returned` (the work is done, COMMIT is next), `committed` (the acknowledgement is next).
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import escrowmq
from escrowmq.integrations.outbox import handled_once

STEPS: Final = ("begun", "noted", "row", "returned", "committed")
IN_WORK: Final = ("noted", "row")

FAULTS: Final = [
    *(f"{kind}-{step}" for kind in ("kill", "raise", "slow") for step in STEPS),
    *(f"{kind}-{step}" for kind in ("ack", "retry", "reject") for step in IN_WORK),
]
"""Killed; raises; goes on only after the consumer gave it up and delivered the message again. Calls
`ack()` and raises; calls `retry()`, or `reject()`, and returns without a row of its own."""

INTEGRATIONS: Final = ("dbapi", "sqlalchemy", "asyncio", "django")
_WAIT_S: Final = 60
_LIFE_S: Final = 150
"""Longer than the test waits for all of it."""
_FORKS = multiprocessing.get_context("forkserver")


@dataclass(frozen=True)
class Place:
    """Where a consumer works."""

    nameserver: str
    group: str
    topic: str
    address: str
    """Of PostgreSQL, as psycopg takes it."""
    folder: Path
    """One file a fault that was met, so that no process meets it again."""


class GivenBack(Exception):
    """Raised by a handler."""


def start(integration: str, place: Place) -> multiprocessing.process.BaseProcess:
    """A consumer in a process of its own."""
    child = _FORKS.Process(target=_consume, args=(integration, place))
    child.start()
    return child


class _Faults:
    """Lets the process meet each message's fault once."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._second: dict[str, threading.Event] = {}
        self._current = threading.local()

    def begun(self, message: Any) -> str:
        """The message's key; asked for before it is noted, and once more to take a note back."""
        name: str = message.key_list[0]
        if getattr(self._current, "name", "") != name:
            self._current.name = name
            seen = self._second.get(name)
            if seen is not None:
                seen.set()
            self._second.setdefault(name, threading.Event())
            self.at("begun", message)
        return name

    def at(self, step: str, message: Any) -> bool:
        """The handler is there; whether it is to return without a row."""
        name: str = message.key_list[0]
        kind, _, where = name.partition("-")
        if where != step or not self._is_due(kind, name):
            return False
        if kind == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if kind == "slow":
            assert self._second[name].wait(_WAIT_S)
        if kind == "raise":
            raise GivenBack(name)
        return kind in ("ack", "retry", "reject")

    def end(self) -> None:
        """The handler has ended, so that the thread may begin the same message again."""
        self._current.name = ""

    def _is_due(self, kind: str, name: str) -> bool:
        """Faults are met once; a message is rejected until it is sent again, since a rejection is
        forgotten by a process that another message kills before the broker has heard of it."""
        try:
            (self._folder / name).touch(exist_ok=False)
        except FileExistsError:
            return kind == "reject" and not sent_again(self._folder, name).exists()
        return True


def sent_again(folder: Path, name: str) -> Path:
    """The file that is there once a dead letter has been sent again."""
    return folder / f"{name}.again"


def _consume(integration: str, place: Place) -> None:
    faults = _Faults(place.folder)
    _hook(faults)
    if integration == "asyncio":
        asyncio.run(_consume_awaited(place, faults))
        return
    handler = _HANDLERS[integration](place, faults)
    with escrowmq.Consumer(place.nameserver, **_settings(place, handler)) as consumer:
        threading.Event().wait(_LIFE_S)
        consumer.close()


def _settings(place: Place, handler: Callable[[Any], Any]) -> dict[str, Any]:
    return {
        "group": place.group,
        "topic": place.topic,
        "handler": handler,
        "concurrency": 8,
        "consume_timeout_ms": 500,
        "retry_after_s": 1,
    }


def _hook(faults: _Faults) -> None:
    """Be told of the two steps that no code of the user's sees."""
    given_back = handled_once.forget_retried
    exit_block = handled_once.AcksAfterCommit.__exit__

    def returned(family: Any, messages: Iterable[Any], how: Any) -> Any:
        messages = list(messages)
        for message in messages:
            faults.at("returned", message)
        return given_back(family, messages, how)

    def committed(self: Any, kind: Any, error: Any, trace: Any) -> None:
        exit_block(self, kind, error, trace)
        faults.end()
        if error is None:
            faults.at("committed", self._messages[0])

    handled_once.forget_retried = returned
    handled_once.AcksAfterCommit.__exit__ = committed  # type: ignore[method-assign]


def _decide(message: Any) -> None:
    kind = message.key_list[0].partition("-")[0]
    getattr(message, kind)()
    if kind == "ack":
        raise GivenBack(kind)


def _dbapi(place: Place, faults: _Faults) -> Any:
    import psycopg

    from escrowmq.integrations.dbapi import consume_once

    @consume_once(lambda: psycopg.connect(place.address), key=faults.begun)
    def handle(message: Any, connection: Any) -> None:
        if faults.at("noted", message):
            return _decide(message)
        connection.execute("insert into rows (name) values (%s)", [message.key_list[0]])
        if faults.at("row", message):
            connection.execute("delete from rows where name = %s", [message.key_list[0]])
            _decide(message)
        return None

    return handle


def _sqlalchemy(place: Place, faults: _Faults) -> Any:
    import sqlalchemy as sa
    from sqlalchemy.orm import sessionmaker

    from escrowmq.integrations.sqlalchemy import consume_once

    engine = sa.create_engine(f"postgresql+psycopg://{place.address.partition('://')[2]}")

    @consume_once(sessionmaker(engine), key=faults.begun)
    def handle(message: Any, session: Any) -> None:
        name = {"name": message.key_list[0]}
        if faults.at("noted", message):
            return _decide(message)
        session.execute(sa.text("insert into rows (name) values (:name)"), name)
        if faults.at("row", message):
            session.execute(sa.text("delete from rows where name = :name"), name)
            _decide(message)
        return None

    return handle


def _django(place: Place, faults: _Faults) -> Any:
    import django
    import psycopg
    from django.conf import settings
    from django.db import connection

    found = psycopg.conninfo.conninfo_to_dict(place.address)
    settings.configure(
        DATABASES={
            "default": {
                "ENGINE": "django.db.backends.postgresql",
                "USER": found["user"], "NAME": found["dbname"], "HOST": found["host"],
            }
        },
        INSTALLED_APPS=["escrowmq.integrations.django"],
    )  # fmt: skip
    django.setup()
    from escrowmq.integrations.django import consume_once

    @consume_once(key=faults.begun)
    def handle(message: Any) -> None:
        name = [message.key_list[0]]
        with connection.cursor() as cursor:
            if faults.at("noted", message):
                return _decide(message)
            cursor.execute("insert into rows (name) values (%s)", name)
            if faults.at("row", message):
                cursor.execute("delete from rows where name = %s", name)
                _decide(message)
        return None

    return handle


_HANDLERS: Final = {"dbapi": _dbapi, "sqlalchemy": _sqlalchemy, "django": _django}


async def _consume_awaited(place: Place, faults: _Faults) -> None:
    import sqlalchemy as sa
    from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

    from escrowmq.integrations.sqlalchemy import consume_once

    engine = create_async_engine(f"postgresql+asyncpg://{place.address.partition('://')[2]}")

    @consume_once(async_sessionmaker(engine), key=lambda message: message.key_list[0])
    async def handle(message: Any, session: Any) -> None:
        name = {"name": message.key_list[0]}
        if faults.at("noted", message):
            return await _decide_awaited(message)
        await session.execute(sa.text("insert into rows (name) values (:name)"), name)
        if faults.at("row", message):
            await session.execute(sa.text("delete from rows where name = :name"), name)
            await _decide_awaited(message)
        return None

    async with escrowmq.aio.Consumer(place.nameserver, **_settings(place, handle)):
        await asyncio.sleep(_LIFE_S)


async def _decide_awaited(message: Any) -> None:
    kind = message.key_list[0].partition("-")[0]
    await getattr(message, kind)()
    if kind == "ack":
        raise GivenBack(kind)
