"""The shop's tables, and those of the outbox and the inbox beside them."""

from __future__ import annotations

from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from escrowmq.integrations.sqlalchemy import add_tables


class Base(DeclarativeBase):
    """All of them."""


class Order(Base):
    """One order."""

    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(primary_key=True)
    amount: Mapped[int]


class Mail(Base):
    """A mail that was written; a real shop would hand it to a mail server."""

    __tablename__ = "mails"
    id: Mapped[int] = mapped_column(primary_key=True)
    order_id: Mapped[str]
    text: Mapped[str]


add_tables(Base.metadata)


async def create_tables(engine: AsyncEngine) -> None:
    """Make those that are missing. A real shop has migrations."""
    async with engine.begin() as connection:
        await connection.run_sync(Base.metadata.create_all)
