"""Who hears of an engine's connections."""

from __future__ import annotations

import gc
import os
import signal
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from sqlalchemy import Connection, Engine, create_engine

from escrowmq.integrations.sqlalchemy import engine_listener as module
from escrowmq.integrations.sqlalchemy.engine_listener import engine_listener


class Outbox:
    """Notes what it is told."""

    def __init__(self) -> None:
        self.told: list[str] = []

    def before_commit(self, connection: Connection) -> None:
        self.told.append("commit")

    def before_prepare(self, connection: Connection) -> None:
        self.told.append("prepare")

    def before_commit_unprepared(self, connection: Connection) -> None:
        self.told.append("commit unprepared")

    def after_rollback(self, connection: Connection) -> None:
        self.told.append("rollback")

    def on_savepoint(self, connection: Connection, name: str) -> None:
        self.told.append(f"savepoint {name}")

    def on_rollback_to(self, connection: Connection, name: str) -> None:
        self.told.append(f"back to {name}")

    def on_release(self, connection: Connection, name: str) -> None:
        self.told.append(f"released {name}")

    def on_checkin(self, driver_connection: Any, info: dict[Any, Any]) -> None:
        self.told.append("checkin")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    yield engine
    engine.dispose()


def test_all_engines_over_one_pool_have_one(engine: Engine) -> None:
    branch = engine.execution_options(a=1).execution_options(b=2)
    assert (
        engine_listener(branch)
        is engine_listener(engine)
        is engine_listener(engine.execution_options())
    )
    with branch.connect() as connection:
        assert engine_listener(engine).listens_to(connection)


def test_outboxes_are_told_until_they_leave(engine: Engine) -> None:
    board, first, second = engine_listener(engine), Outbox(), Outbox()
    board.add_outbox(first)
    with engine.execution_options(a=1).begin() as connection:
        connection.exec_driver_sql("begin")
        with connection.begin_nested():
            pass
        connection.begin_nested().rollback()
    board.add_outbox(second)
    assert board.outboxes_count == 2
    board.remove_outbox(first)
    with engine.connect() as connection, connection.begin() as transaction:
        transaction.rollback()
    one, two = "sa_savepoint_1", "sa_savepoint_2"
    expected = [f"savepoint {one}", f"released {one}", f"savepoint {two}", f"back to {two}"]
    assert first.told == [*expected, "commit", "checkin"]
    assert second.told == ["rollback", "checkin"]


def test_one_goes_with_its_engine(tmp_path: Path) -> None:
    """An engine of each test's own, and all their outboxes stayed."""
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    gone = weakref.ref(engine_listener(engine))
    engine.dispose()
    del engine
    gc.collect()
    assert gone() is None


def test_a_process_that_is_forked_while_a_thread_has_the_lock_is_not_held_up(
    engine: Engine,
) -> None:
    """The thread is not in the child, and its lock was held there for ever."""
    with module._lock:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            engine_listener(engine).add_outbox(Outbox())
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
