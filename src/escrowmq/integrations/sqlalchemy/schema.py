"""Adds the outbox's tables to the user's metadata."""

from __future__ import annotations

from typing import Any

from sqlalchemy import (
    BigInteger,
    Column,
    Identity,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
)
from sqlalchemy.dialects import mysql

from escrowmq.integrations.outbox import tables


def add_tables(metadata: MetaData) -> tuple[Table, Table]:
    """Add the tables to your own metadata, so that Alembic sees them and `create_all` creates them.
    Returns those of markers and of handled messages; the third has the messages that wait for a
    broker (`when_away="keep"`). If the metadata has a schema (`MetaData(schema="sales")`), give it
    to the outbox too."""
    options: dict[str, Any] = {}
    for dialect in ("mysql", "mariadb"):
        options[f"{dialect}_engine"] = "InnoDB"
        options[f"{dialect}_charset"] = "ascii"
        options[f"{dialect}_collate"] = "ascii_bin"
    size, text_size = tables.ID_SIZE_MAX, tables.TEXT_SIZE_MAX
    Table(
        tables.KEPT,
        metadata,
        # SQLite generates keys only for a column whose type is exactly INTEGER.
        Column(
            "position",
            BigInteger().with_variant(Integer, "sqlite"),
            Identity(always=True),
            primary_key=True,
        ),
        Column("bundle", String(size), nullable=False),
        Column("together", Integer, nullable=False),
        Column("made_ms", BigInteger, nullable=False),
        Column("topic", String(text_size), nullable=False),
        Column(
            "body", LargeBinary().with_variant(mysql.LONGBLOB(), "mysql", "mariadb"), nullable=False
        ),
        Column("fields", Text, nullable=False),
        sqlite_autoincrement=True,
        mysql_engine="InnoDB",
        mysql_charset="utf8mb4",
        mariadb_engine="InnoDB",
        mariadb_charset="utf8mb4",
    )
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
