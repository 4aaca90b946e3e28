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

from escrowmq.integrations.sqlalchemy import switchboard as module
from escrowmq.integrations.sqlalchemy.switchboard import switchboard


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

    def savepoint(self, connection: Connection, name: str) -> None:
        self.told.append(f"savepoint {name}")

    def rolled_back_to(self, connection: Connection, name: str) -> None:
        self.told.append(f"back to {name}")

    def released(self, connection: Connection, name: str) -> None:
        self.told.append(f"released {name}")

    def back_in_pool(self, driver_connection: Any, info: dict[Any, Any]) -> None:
        self.told.append("checkin")


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    yield engine
    engine.dispose()


def test_all_engines_over_one_pool_have_one(engine: Engine) -> None:
    branch = engine.execution_options(a=1).execution_options(b=2)
    assert switchboard(branch) is switchboard(engine) is switchboard(engine.execution_options())
    with branch.connect() as connection:
        assert switchboard(engine).hears(connection)


def test_outboxes_are_told_until_they_leave(engine: Engine) -> None:
    board, first, second = switchboard(engine), Outbox(), Outbox()
    board.join(first)
    with engine.execution_options(a=1).begin() as connection:
        connection.exec_driver_sql("begin")
        with connection.begin_nested():
            pass
        connection.begin_nested().rollback()
    board.join(second)
    assert board.count == 2
    board.leave(first)
    with engine.connect() as connection, connection.begin() as transaction:
        transaction.rollback()
    one, two = "sa_savepoint_1", "sa_savepoint_2"
    expected = [f"savepoint {one}", f"released {one}", f"savepoint {two}", f"back to {two}"]
    assert first.told == [*expected, "commit", "checkin"]
    assert second.told == ["rollback", "checkin"]


def test_one_goes_with_its_engine(tmp_path: Path) -> None:
    """An engine of each test's own, and all their outboxes stayed."""
    engine = create_engine(f"sqlite:///{tmp_path}/shop.db")
    gone = weakref.ref(switchboard(engine))
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
            switchboard(engine).join(Outbox())
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
