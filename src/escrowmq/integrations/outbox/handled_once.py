"""Records the identity of messages, so that each is handled once."""

from __future__ import annotations

import functools
import hashlib
import inspect
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from escrowmq.client.core.callables import has_yield
from escrowmq.client.delivery import HeldMessage
from escrowmq.errors import MarkerNotWritten, UsageError
from escrowmq.integrations.outbox.tables import (
    TEXT_SIZE_MAX,
    SqlFamily,
    Statement,
    delete_handled_message,
    insert_handled,
    schema_prefix,
)

if TYPE_CHECKING:
    from types import TracebackType

Key = Callable[[HeldMessage], str]
F = TypeVar("F", bound=Callable[..., Any])
_MARK: Final = "sha256:"


def message_id(message: HeldMessage) -> str:
    """Return the id that a message keeps on every delivery."""
    return message.message_id


def storable_identity(family: SqlFamily, text: str) -> str:
    """Return an identity in a form that the table keeps distinct. MariaDB and MySQL take two texts
    for equal if they differ only in blanks at the end (PAD SPACE)."""
    is_plain = len(text) <= TEXT_SIZE_MAX and text.isascii() and text.isprintable()
    if is_plain and not (family is SqlFamily.MYSQL and text.endswith(" ")):
        return text
    return _MARK + hashlib.sha256(text.encode(errors="surrogatepass")).hexdigest()


class RecordOptions(NamedTuple):
    """Options for recording handled messages."""

    key: Key = message_id
    group: str = ""
    """The consumer group, if not the message's own."""
    schema: str = ""
    """The table's schema, if connections would not find it by its name."""


def record_handled(family: SqlFamily, message: HeldMessage, how: RecordOptions) -> Statement:
    """Return the statement that records a message as being handled. It changes one row, or none if
    the message was recorded before."""
    statement = insert_handled(family, *_group_and_identity(family, message, how))
    return statement.in_schema(schema_prefix(family, how.schema))


# -- whether the record is still in the transaction ------------------------------------------

# PostgreSQL commits nothing of a transaction in which a statement has failed, and reports no error
# for that COMMIT. MariaDB and MySQL roll back a whole transaction for a deadlock, SQLite for a full
# disk, and begin another one if the handler catches the error (see `marking`); a handler may also
# end the transaction itself. The record alone does not show it: a redelivery that waited for it may
# have written one of its own by then. So a savepoint behind the record does: its release fails.
_SAVEPOINT: Final = "escrowmq_handled"

MAKE_SAVEPOINT: Final = Statement(f"savepoint {_SAVEPOINT}")
"""The statement to run after the records and before the user's work."""

RELEASE_SAVEPOINT: Final = Statement(f"release savepoint {_SAVEPOINT}")
"""The statement to run after the user's work. It fails if the work has rolled the transaction back;
then raise `rolled_back_error`."""


def rolled_back_error() -> MarkerNotWritten:
    """Make the error for work that has rolled back its transaction, and with it the records."""
    return MarkerNotWritten(
        "the handler's transaction cannot commit any more, and with it the record of its message: "
        "a statement failed (on PostgreSQL any error, elsewhere a deadlock or a full disk) and the "
        "handler caught the error, or the handler itself ended the transaction. All is rolled "
        "back, and the message is delivered again. Let the database's errors leave the handler, or "
        "run a statement that may fail in a savepoint, and do not commit or roll back in it"
    )


def forget_retried(
    family: SqlFamily, messages: Iterable[HeldMessage], how: RecordOptions
) -> list[Statement]:
    """Delete the records of messages that the user's work itself retried or rejected, so that the
    next delivery, or a dead letter that is sent again, is handled. A message abandoned because its
    handler took too long keeps its record: its work is done."""
    schema = schema_prefix(family, how.schema)
    return [
        delete_handled_message(*_group_and_identity(family, each, how)).in_schema(schema)
        for each in messages
        if _is_retried_or_rejected(each)
    ]


def _is_retried_or_rejected(message: HeldMessage) -> bool:
    return message.delivery_state is not None and message.delivery_state.asked_level is not None


class AcksAfterCommit:
    """A block around the transaction in which messages are handled. Acknowledgements made inside it
    wait; `acknowledge` sends them after the commit."""

    def __init__(self, given: Any) -> None:  # noqa: ANN401 - a message, or a list of them
        self._messages: list[Any] = given if isinstance(given, list) else [given]
        states = [each.delivery_state for each in self._messages]
        self._tickets = [state for state in states if state is not None]

    def __enter__(self) -> Self:
        for ticket in self._tickets:
            ticket.begin_handling()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for ticket in self._tickets:
            ticket.end_handling(is_committed=error is None)

    def acknowledge(self) -> None:
        """Send the waiting acknowledgements."""
        for message in self._waiting_deliveries():
            message.ack()

    async def acknowledge_async(self) -> None:
        """Send the waiting acknowledgements, with asyncio."""
        for message in self._waiting_deliveries():
            await message.ack()

    def _waiting_deliveries(self) -> list[Any]:
        return [
            each
            for each in self._messages
            if each.delivery_state is not None and each.delivery_state.has_ack_waiting
        ]


def check_function(work: Callable[..., object]) -> None:
    """Raise UsageError for a function that does nothing when it is called, such as a generator
    function."""
    if has_yield(work):
        raise UsageError(
            f"{_function_name(work)} has a yield, so calling it runs none of its code; give "
            "consume_once a function that does its work when it is called"
        )


def check_result(work: Callable[..., object], result: object) -> None:
    """Raise UsageError if a plain function returned a coroutine: no one would await it, and the
    message would be recorded as handled."""
    if inspect.iscoroutine(result):
        result.close()  # it has not begun, and must not warn that it was never awaited
    elif not inspect.isawaitable(result) and not inspect.isgenerator(result):
        return
    raise UsageError(
        f"{_function_name(work)} returned {type(result).__name__}, which nothing awaits, so "
        "its message is not handled. If a decorator hides a coroutine function, put consume_once "
        "below it, directly on the coroutine function"
    )


def _function_name(work: Callable[..., object]) -> str:
    return getattr(work, "__qualname__", "") or repr(work)


def _group_and_identity(
    family: SqlFamily, message: HeldMessage, how: RecordOptions
) -> tuple[str, str]:
    found: object = how.key(message)
    if not isinstance(found, str) or not found:
        raise UsageError(
            f"key= returned {found!r} for message {message.message_id}; a non-empty text is "
            "expected, the same on every delivery"
        )
    return storable_identity(family, how.group or message.group), storable_identity(family, found)


def with_name_of(handler: F, work: Callable[..., object]) -> F:
    """Give the handler the name and docstring of the user's function, but not its signature."""
    functools.update_wrapper(handler, work)
    del handler.__wrapped__  # type: ignore[attr-defined]
    return handler
