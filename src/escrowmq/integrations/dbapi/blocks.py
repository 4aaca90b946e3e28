"""Guards a connection inside a block of an outbox.

A block is one transaction. So its connection's own `commit`, `rollback`, `begin` and `autocommit`
raise inside it where the driver allows replacing them (psycopg refuses them itself). For SQLite a
savepoint reveals them, because each would end it. Messages in the driver's own nested transactions
are dropped when these are rolled back."""

from __future__ import annotations

import contextlib
import re
import weakref
from collections.abc import AsyncIterator, Callable, Iterator
from types import TracebackType
from typing import Any, Final

from escrowmq.errors import UsageError
from escrowmq.integrations.outbox.unsent_messages import UnsentMessages

_ENDS: Final = ("commit", "rollback", "begin", "autocommit")
"""Methods that end a transaction. For the last two, MariaDB and MySQL commit the open
transaction."""
_WITNESS: Final = "escrowmq_block"
BEGIN_WITNESS: Final = f"savepoint {_WITNESS}"
END_WITNESS: Final = f"release savepoint {_WITNESS}"

_SAVEPOINT: Final = re.compile(
    r"\s*(savepoint|rollback\s+(?:(?:work|transaction)\s+)?to(?:\s+savepoint)?|"
    r"release(?:\s+savepoint)?)\s+(\"(?:[^\"]|\"\")+\"|[\w$]+)\s*;?\s*",
    re.IGNORECASE,
)

_USED_ONCE: Final = ("__asyncpg_savepoint_", "escrowmq_")
"""Prefixes of the names of asyncpg's own savepoints, and of those of `tx.savepoint()`; each name is
used once."""


def ended_inside_error() -> UsageError:
    """Make the error for a block in which other code has ended the transaction."""
    return UsageError(
        "the transaction was committed or rolled back inside the outbox's block, so nothing was "
        "sent: earlier changes are committed, or rolled back, without their messages. Let the "
        "block "
        "commit, and raise in it to roll back"
    )


def owned_by_another_error() -> UsageError:
    """Make the error for a connection whose open transaction other code will commit."""
    return UsageError(
        "the connection is in a transaction already, whose own end would commit it; let "
        "outbox.transaction(connection) begin it, in the place of connection.transaction()"
    )


_occupied: Final[weakref.WeakValueDictionary[int, object]] = weakref.WeakValueDictionary()
"""The open blocks, of any outbox, by the ids of their connections. A second block inside would
commit what belongs to the first. A block that an interrupt ended before it could say so leaves
nothing here."""


def enter_block(connection: object, block: object) -> None:
    """Record that a block of an outbox begins; `block` exists as long as it is open. Raises
    UsageError if another one is open on the connection."""
    if id(connection) in _occupied:
        raise UsageError(
            "this connection already has an open block of an outbox, which commits its whole "
            "transaction; send inside that block, and use its savepoint() for work that may be "
            "rolled back alone. Two outboxes need two connections"
        )
    _occupied[id(connection)] = block


def leave_block(connection: object) -> None:
    """Record that the block has ended."""
    _occupied.pop(id(connection), None)


def is_nested_psycopg(connection: Any) -> bool:  # noqa: ANN401
    """Whether the connection is inside psycopg's `connection.transaction()`. Then only the end of
    that block can commit. psycopg leaves a closed connection inside."""
    has_outer = bool(getattr(connection, "_num_transactions", 0))  # psycopg has no public name
    return has_outer and not connection.closed


def forbid_ending(connection: Any) -> Callable[[], None]:  # noqa: ANN401
    """Make the connection's methods that end a transaction raise; return the function that
    restores them."""

    def refuse(*_: object) -> None:
        raise UsageError(
            "the outbox's block commits the connection, and rolls it back when it raises; "
            "do neither inside it, nor begin another transaction. Use tx.savepoint() for work that "
            "may be rolled back alone"
        )

    guarded: list[str] = []
    for name in _ENDS:
        if not callable(getattr(type(connection), name, None)):
            continue  # a property's setter would run
        with contextlib.suppress(AttributeError, TypeError):  # some are made in C
            setattr(connection, name, refuse)
            guarded.append(name)

    def restore() -> None:
        while guarded:
            delattr(connection, guarded.pop())

    return restore


class _NestedTransactions:
    """psycopg's nested transactions. If one is rolled back, its messages are dropped."""

    def __init__(self, connection: Any, unsent: UnsentMessages) -> None:  # noqa: ANN401
        self._begin = connection.transaction
        self._unsent = unsent
        self._count = 0

    def _new_name(self) -> str:
        self._count += 1
        name = f"psycopg {self._count}"
        self._unsent.add_savepoint(name)
        return name

    def _on_end(self, name: str, *, is_taken_back: bool) -> None:
        if is_taken_back:
            self._unsent.roll_back_to(name)
        self._unsent.release_savepoint(name)


class NestedTransactions(_NestedTransactions):
    """Replaces psycopg's `Connection.transaction` while a block is open."""

    @contextlib.contextmanager
    def __call__(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> Iterator[Any]:
        """Begin a nested transaction, like psycopg's own method."""
        name = self._new_name()
        with self._begin(savepoint_name, force_rollback) as inner:
            try:
                yield inner
            except BaseException:
                self._on_end(name, is_taken_back=True)
                raise
            self._on_end(name, is_taken_back=force_rollback)


class NestedTransactionsAsync(_NestedTransactions):
    """Replaces psycopg's `AsyncConnection.transaction` while a block is open."""

    @contextlib.asynccontextmanager
    async def __call__(
        self, savepoint_name: str | None = None, force_rollback: bool = False
    ) -> AsyncIterator[Any]:
        """Begin a nested transaction, like psycopg's own method."""
        name = self._new_name()
        async with self._begin(savepoint_name, force_rollback) as inner:
            try:
                yield inner
            except BaseException:
                self._on_end(name, is_taken_back=True)
                raise
            self._on_end(name, is_taken_back=force_rollback)


class SavepointListener:
    """Watches asyncpg's statements, and drops the messages of savepoints that are rolled back."""

    def __init__(self, unsent: UnsentMessages) -> None:
        self._unsent = unsent

    def __call__(self, record: Any) -> None:  # noqa: ANN401 - asyncpg has no types
        """Examine a statement that was run."""
        found = _SAVEPOINT.fullmatch(record.query)
        if found is None or record.exception is not None:
            return
        verb, name = found[1].lower(), found[2]
        name = name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
        try:
            self._on_statement(verb, name)
        except UsageError as error:  # asyncpg calls this from the event loop, which would log it
            self._unsent.lose_track(str(error))

    def _on_statement(self, verb: str, name: str) -> None:
        if verb == "savepoint":
            self._unsent.add_savepoint(name)
            return
        if verb.startswith("rollback"):
            self._unsent.roll_back_to_known(name)
            if not name.startswith(_USED_ONCE):  # asyncpg releases none that it has rolled back
                return
        self._unsent.release_savepoint(name)


Raised = tuple[type[BaseException] | None, BaseException | None, TracebackType | None]


def exit_arguments(error: BaseException) -> Raised:
    """Return the three arguments that `__exit__` gets for an exception."""
    return type(error), error, error.__traceback__
