"""Messages that no broker could store when their transaction committed: rows of `escrowmq_kept`,
written in that transaction, and every statement about them.

| column | |
|---|---|
| `position` | assigned by the database; messages are sent in its order |
| `bundle` | its transaction, all of whose messages are sent together |
| `together` | the number of these messages |
| `made_ms` | by the database's clock, milliseconds since 1970 |
| `topic`, `body` | of the message |
| `fields` | the other fields of the message, as JSON |

To send them later, the rows are deleted in a transaction with a marker, like any that sends: it
says whether the messages were sent and the rows deleted, or neither."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Collection, Iterator, Sequence
from typing import Final, NamedTuple

import msgspec

from escrowmq.client.core.message import Message
from escrowmq.errors import InvalidMessage, UsageError
from escrowmq.integrations.outbox import tables
from escrowmq.integrations.outbox.steps import Rows, SqlStep, Steps
from escrowmq.integrations.outbox.tables import KEPT, SqlFamily, Statement

ROWS_A_STATEMENT: Final = 100
"""Limit of the rows in one statement: each has four values, and databases accept some thousands per
statement."""

STATEMENT_SIZE_MAX: Final = 4_194_304
"""Limit of the bytes of bodies and fields in one statement; a larger message has a statement of its
own. MariaDB accepts 16 MiB by default (max_allowed_packet), and some drivers write a byte of a body
as two."""

FIELDS_SIZE_MAX: Final = 65_535
"""Bytes that a column of type `text` holds in MariaDB and MySQL; a lax mode cuts off the rest."""

RELAYED_SIZE_MAX: Final = 4_194_304
"""Limit of the bytes of bodies that are sent in one transaction; a larger bundle is sent alone."""


class KeptRow(NamedTuple):
    """One row of `escrowmq_kept`, without its message."""

    position: int
    bundle: str
    together: int
    topic: str
    size: int
    """Bytes of the body."""


class KeptStatus(msgspec.Struct, kw_only=True, frozen=True):
    """The messages in a database that wait for a broker."""

    count: int
    """Number of messages."""
    size: int
    """Bytes of their bodies."""
    oldest_ms: int
    """How long the oldest one has waited; 0 if there is none."""


class _MessageFields(msgspec.Struct, omit_defaults=True):
    """Fields of a message besides its topic and body. None is a default, too: programs pass it for
    what they do not have, and brokers get nothing then."""

    tag: str | None = ""
    keys: list[str] | str | None = []
    properties: dict[str, str] | None = {}
    order_key: str | None = ""
    delay_level: int = 0
    deliver_at: float | None = None
    flag: int = 0


_ENCODER: Final = msgspec.json.Encoder()
_DECODER: Final = msgspec.json.Decoder(_MessageFields)


def insert_rows(
    family: SqlFamily, messages: Sequence[Message], *, bundle: str, now_ms: int
) -> list[Statement]:
    """Return the statements that write messages as rows, in order. `now_ms` turns delays into
    times: a delay begins now, not when the message is sent."""
    values = [(bundle, len(messages), *_row_values(message, now_ms=now_ms)) for message in messages]
    if family is SqlFamily.MYSQL:
        _check_fields(max(len(each[-1].encode()) for each in values))
    row = f"(?, ?, {tables.now_ms_expression(family)}, ?, ?, ?)"
    return [
        Statement(
            f"insert into {KEPT} (bundle, together, made_ms, topic, body, fields) "
            f"values {', '.join([row] * len(some))}",
            tuple(value for each in some for value in each),
        )
        for some in _split_rows(values)
    ]


_Values = tuple[str, int, str, bytes, str]


def _split_rows(values: Sequence[_Values]) -> Iterator[list[_Values]]:
    """Divide rows into portions, each small enough for one statement."""
    some: list[_Values] = []
    size = 0
    for each in values:
        own_size = len(each[3]) + len(each[4])
        if some and (len(some) == ROWS_A_STATEMENT or size + own_size > STATEMENT_SIZE_MAX):
            yield some
            some, size = [], 0
        some.append(each)
        size += own_size
    if some:
        yield some


def _check_fields(size: int) -> None:
    if size > FIELDS_SIZE_MAX:
        raise UsageError(
            f"a message's properties, keys and tag take {size} bytes as JSON, in which control "
            f"characters are longer; {FIELDS_SIZE_MAX} are allowed while messages are kept. Put "
            "large data into the body"
        )


def _row_values(message: Message, *, now_ms: int) -> tuple[str, bytes, str]:
    deliver_at = message.deliver_at
    if isinstance(deliver_at, dt.datetime):
        deliver_at = deliver_at.timestamp()
    if message.delay is not None:
        delay = message.delay
        seconds = delay.total_seconds() if isinstance(delay, dt.timedelta) else delay
        deliver_at = now_ms / 1000 + seconds
    fields = _MessageFields(
        tag=message.tag,
        keys=message.keys,
        properties=message.properties,
        order_key=message.order_key,
        delay_level=message.delay_level,
        deliver_at=deliver_at,
        flag=message.flag,
    )
    return message.topic, bytes(message.body), _ENCODER.encode(fields).decode()


# -- handing over ----------------------------------------------------------------------------


class SentByAnother(Exception):
    """Raised if another process has sent the messages meanwhile."""


def select_page(
    family: SqlFamily,
    *,
    after: int,
    without: Collection[str] = (),
    bundle: str = "",
    count_max: int,
    is_locked: bool,
) -> Statement:
    """Return the statement that selects rows after a position, without their bodies: those of one
    bundle, or the first `count_max` except those of some topics. With `is_locked` it locks the
    rows, after waiting for another process that is sending them."""
    text = "select position, bundle, together, topic, length(body) "
    text += f"from {KEPT} where position > ?"
    values: list[str | int | bytes] = [after]
    if without:
        condition, topics = _exclude_topics(without)
        text += f" and {condition}"
        values += topics
    if bundle:
        text += " and bundle = ?"
        values.append(bundle)
    text += " order by position"
    if not bundle:
        text += f" limit {count_max}"
    if is_locked and family is not SqlFamily.SQLITE:  # whose one lock a transaction takes itself
        text += " for update"
    return Statement(text, tuple(values))


def parse_rows(rows: Rows) -> list[KeptRow]:
    """Convert the result of `select_page` to rows."""
    return [
        KeptRow(int(str(position)), str(bundle), int(str(together)), str(topic), int(str(size)))
        for position, bundle, together, topic, size in rows
    ]


def read_messages(chosen: Sequence[KeptRow]) -> Steps[list[Message]]:
    """Read the messages of some rows, in their order. Raises SentByAnother if a row is gone."""
    found: dict[int, Message] = {}
    for at in range(0, len(chosen), ROWS_A_STATEMENT):
        some = tuple(row.position for row in chosen[at : at + ROWS_A_STATEMENT])
        marks = ", ".join("?" * len(some))
        text = f"select position, topic, body, fields from {KEPT} where position in ({marks})"
        rows = yield SqlStep(Statement(text, some), is_read=True)
        found.update(
            (int(str(position)), _decode_message(position, *rest)) for position, *rest in rows
        )
    if len(found) < len(chosen):
        raise SentByAnother
    return [found[row.position] for row in chosen]


def _decode_message(position: object, topic: object, body: object, fields: object) -> Message:
    """Make a row's message. Raises InvalidMessage, as if a broker had refused it, if its fields
    cannot be read: it must block its own topic alone."""
    assert isinstance(body, bytes | bytearray | memoryview)
    try:
        found = _DECODER.decode(str(fields))
    except msgspec.DecodeError as error:
        raise InvalidMessage(
            f"the column `fields` of the row {position} of {KEPT} cannot be read: {error}"
        ) from error
    return Message(
        str(topic),
        bytes(body),
        tag=found.tag or "",
        keys=found.keys or [],
        properties=found.properties or {},
        order_key=found.order_key or "",
        delay_level=found.delay_level,
        deliver_at=found.deliver_at,
        flag=found.flag,
    )


def group_by_bundle(rows: Sequence[KeptRow]) -> list[list[KeptRow]]:
    """Group rows by bundle, in the order of their first rows, up to the first bundle that is not
    complete. Later rows must wait for that bundle, because it may have messages of the same
    topics."""
    found: dict[str, list[KeptRow]] = {}
    for row in rows:
        found.setdefault(row.bundle, []).append(row)
    return list(
        itertools.takewhile(lambda rows: len(rows) == rows[0].together, found.values()),
    )


def first_fitting_bundles(bundles: Sequence[list[KeptRow]]) -> list[list[KeptRow]]:
    """Return as many of the first bundles as one transaction may send; at least one."""
    count, size = 0, 0
    for bundle in bundles:
        size += sum(row.size for row in bundle)
        if count and size > RELAYED_SIZE_MAX:
            break
        count += 1
    return list(bundles[:count])


def delete_rows(positions: Sequence[int]) -> list[Statement]:
    """Delete the rows of sent messages."""
    return [
        Statement(f"delete from {KEPT} where position in ({', '.join('?' * len(some))})", some)
        for some in (
            tuple(positions[at : at + ROWS_A_STATEMENT])
            for at in range(0, len(positions), ROWS_A_STATEMENT)
        )
    ]


def delete_existing_rows(positions: Sequence[int]) -> Steps[None]:
    """Delete the rows of sent messages, which were not locked. Raises SentByAnother if some no
    longer exist; then roll back."""
    for statement in delete_rows(positions):
        rows = yield SqlStep(statement)
        if rows[0][0] != len(statement.values):
            raise SentByAnother


# -- figures ---------------------------------------------------------------------------------


def query_status(family: SqlFamily) -> Steps[KeptStatus]:
    """Query the number, the size and the age of the kept messages."""
    rows = yield SqlStep(select_status(family), is_read=True)
    return parse_status(rows)


def select_status(family: SqlFamily) -> Statement:
    """Return the statement that selects the number, the size and the age of the kept messages."""
    return Statement(
        f"select count(*), coalesce(sum(length(body)), 0), "
        f"coalesce({tables.now_ms_expression(family)} - min(made_ms), 0) from {KEPT}"
    )


def parse_status(rows: Rows) -> KeptStatus:
    """Convert the result of `select_status`."""
    count, size, oldest_ms = (int(str(value)) for value in rows[0])
    return KeptStatus(count=count, size=size, oldest_ms=max(0, oldest_ms))


def select_oldest(*, without: Collection[str] = ()) -> Statement:
    """Return the statement that selects the position of the oldest kept message, if there is one.
    Messages of the topics `without` do not count."""
    where, values = _exclude_topics(without)
    if where:
        where = f" where {where}"
    return Statement(f"select position from {KEPT}{where} order by position limit 1", values)


def _exclude_topics(topics: Collection[str]) -> tuple[str, tuple[str, ...]]:
    """Return a condition that excludes topics, and its values; both empty without topics."""
    if not topics:
        return "", ()
    return f"topic not in ({', '.join('?' * len(topics))})", tuple(sorted(topics))
