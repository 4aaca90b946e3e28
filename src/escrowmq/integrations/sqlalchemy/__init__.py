"""Sends messages exactly if a SQLAlchemy transaction commits; handles messages once.
`docs/outbox.md` is the guide.

    outbox = Outbox(producer, engine)
    with Session(engine) as session, outbox.transaction(session) as tx:
        session.add(Order(id="o-1"))
        tx.send("paid", b"order 1", keys=["o-1"])
"""

from escrowmq.base.extras import require_extra

require_extra("sqlalchemy", "sqlalchemy")

from escrowmq.integrations.sqlalchemy.async_outbox import AsyncOutbox, AsyncTransaction
from escrowmq.integrations.sqlalchemy.inbox import consume_once
from escrowmq.integrations.sqlalchemy.outbox import Outbox, Transaction
from escrowmq.integrations.sqlalchemy.schema import add_tables

__all__ = [
    "AsyncOutbox",
    "AsyncTransaction",
    "Outbox",
    "Transaction",
    "add_tables",
    "consume_once",
]
