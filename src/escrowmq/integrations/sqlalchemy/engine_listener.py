"""Notifies outboxes of what the connections of an engine do.

An engine and its copies made by `execution_options` are several objects over one pool, and a
listener of one does not hear the others. So this listens to the engine under all of them, once and
for good, because removing a listener would race with commits on other threads. Outboxes join and
leave here."""

from __future__ import annotations

import os
import threading
import weakref
from typing import Any, Final, Protocol

from sqlalchemy import Connection, Engine, event

_lock = threading.Lock()
_boards: Final[weakref.WeakKeyDictionary[Engine, EngineListener]] = weakref.WeakKeyDictionary()


class EngineEvents(Protocol):
    """An outbox that is notified of events."""

    def before_commit(self, connection: Connection) -> None:
        """React to a commit that is about to be made; raising prevents it."""

    def before_prepare(self, connection: Connection) -> None:
        """React to a two-phase commit that is about to be prepared."""

    def before_commit_unprepared(self, connection: Connection) -> None:
        """React to the commit of a two-phase transaction that was not prepared."""

    def after_rollback(self, connection: Connection) -> None:
        """React to a rollback of the transaction."""

    def on_savepoint(self, connection: Connection, name: str) -> None:
        """React to a savepoint that is about to be made."""

    def on_rollback_to(self, connection: Connection, name: str) -> None:
        """React to the rollback of a savepoint."""

    def on_release(self, connection: Connection, name: str) -> None:
        """React to the release of a savepoint."""

    def on_checkin(self, driver_connection: Any, info: dict[Any, Any]) -> None:  # noqa: ANN401
        """React to the return of a connection to the pool; `info` is its `Connection.info`."""


class EngineListener:
    """The listener of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._outboxes: tuple[
            EngineEvents, ...
        ] = ()  # never changed in place: threads go through it
        event.listen(engine, "commit", self._on_commit)
        event.listen(engine, "prepare_twophase", self._on_prepare)
        event.listen(engine, "commit_twophase", self._on_commit_twophase)
        event.listen(engine, "rollback", self._on_rollback)
        event.listen(engine, "rollback_twophase", self._on_rollback_twophase)
        event.listen(engine, "savepoint", self._on_savepoint)
        event.listen(engine, "rollback_savepoint", self._on_rollback_savepoint)
        event.listen(engine, "release_savepoint", self._on_release_savepoint)
        event.listen(engine, "checkin", self._on_checkin)

    def add_outbox(self, outbox: EngineEvents) -> None:
        """Add an outbox, to notify it from now on."""
        with _lock:
            self._outboxes = (*self._outboxes, outbox)

    def remove_outbox(self, outbox: EngineEvents) -> None:
        """Stop notifying an outbox."""
        with _lock:
            self._outboxes = tuple(each for each in self._outboxes if each is not outbox)

    @property
    def outboxes_count(self) -> int:
        """Number of outboxes that are notified."""
        return len(self._outboxes)

    def listens_to(self, connection: Connection) -> bool:
        """Whether this object is notified of the connection's events."""
        listeners: Any = connection.dispatch
        return self._on_commit in list(listeners.commit)

    # -- what the engine tells ---------------------------------------------------------------

    def _on_commit(self, connection: Connection) -> None:
        for each in self._outboxes:
            each.before_commit(connection)

    def _on_prepare(self, connection: Connection, xid: object) -> None:
        for each in self._outboxes:
            each.before_prepare(connection)

    def _on_commit_twophase(self, connection: Connection, xid: object, is_prepared: bool) -> None:
        if not is_prepared:  # else all was handed over
            for each in self._outboxes:
                each.before_commit_unprepared(connection)

    def _on_rollback(self, connection: Connection) -> None:
        for each in self._outboxes:
            each.after_rollback(connection)

    def _on_rollback_twophase(self, connection: Connection, xid: object, is_prepared: bool) -> None:
        self._on_rollback(connection)

    def _on_savepoint(self, connection: Connection, name: str | None) -> None:
        for each in self._outboxes:
            each.on_savepoint(connection, name or _next_savepoint(connection))

    def _on_rollback_savepoint(self, connection: Connection, name: str, context: object) -> None:
        for each in self._outboxes:
            each.on_rollback_to(connection, name)

    def _on_release_savepoint(self, connection: Connection, name: str, context: object) -> None:
        for each in self._outboxes:
            each.on_release(connection, name)

    def _on_checkin(self, driver_connection: Any, record: Any) -> None:  # noqa: ANN401
        for each in self._outboxes:
            each.on_checkin(driver_connection, record.info)


def engine_listener(engine: Engine) -> EngineListener:
    """Return the listener of an engine; its copies made by `execution_options` share one."""
    while proxied := getattr(engine, "_proxied", None):  # SQLAlchemy has no public name for it
        engine = proxied
    with _lock:
        found = _boards.get(engine)
        if found is None:
            found = _boards[engine] = EngineListener(engine)
    return found


def _next_savepoint(connection: Connection) -> str:
    """Return the name that SQLAlchemy will give to the next savepoint; the event comes before."""
    number: int = getattr(connection, "_Connection__savepoint_seq")  # noqa: B009 - mangled
    return f"sa_savepoint_{number + 1}"


def _replace_lock_after_fork() -> None:
    """Replace the lock in a forked child: a thread of the parent may have held it."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_replace_lock_after_fork)
