"""The tables as parts of a schema that is the user's."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Column, MetaData, String, Table

from escrowmq.integrations.outbox import tables


def add_tables(metadata: MetaData) -> tuple[Table, Table]:
    """Both tables as part of your own schema, so that Alembic sees them and `create_all` makes
    them: markers, and the messages that consumers have handled."""
    options: dict[str, Any] = {}
    for dialect in ("mysql", "mariadb"):
        options[f"{dialect}_engine"] = "InnoDB"
        options[f"{dialect}_charset"] = "ascii"
        options[f"{dialect}_collate"] = "ascii_bin"
    size, text_size = tables.ID_SIZE_MAX, tables.TEXT_SIZE_MAX
    return (
        Table(
            tables.MARKERS,
            metadata,
            Column("id", String(size), primary_key=True),
            Column("says", String(size), nullable=False),
            Column("made_ms", BigInteger, nullable=False),
            **options,
        ),
        Table(
            tables.HANDLED,
            metadata,
            Column("consumer_group", String(text_size), primary_key=True),
            Column("message_id", String(text_size), primary_key=True),
            Column("made_ms", BigInteger, nullable=False),
            **options,
        ),
    )
