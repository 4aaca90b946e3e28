"""The examples of README.md run as they stand, with the addresses of the test's servers."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import escrowmq
from tests.interop.process import until
from tests.interop.servers import Server
from tests.sdk.reading import delivered

from .conftest import Place

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
NAME_SERVER = "127.0.0.1:9876"
DATABASE = "postgresql+psycopg://localhost/shop"


class Enough(Exception):
    """Ends a loop that has no end."""


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)


def run(block: str, names: dict[str, Any], server: Server, database: str = DATABASE) -> None:
    assert NAME_SERVER in block
    text = block.replace(NAME_SERVER, server.nameserver).replace(DATABASE, database)
    exec(compile(text, "README.md", "exec", dont_inherit=True), names)


def test_there_are_two_examples_in_python() -> None:
    assert len(BLOCKS) == 2


def test_the_transaction_commits_and_is_consumed(server: Server) -> None:
    with escrowmq.Admin(server.nameserver) as admin:
        admin.topics.create("paid", queues=4)

    def sent() -> int:
        return [message.body for message in delivered(server, "paid")].count(b"order 1")

    before = sent()
    added: list[str] = []
    mailed: list[bytes] = []

    class Database:
        def commit(self) -> None:
            assert added == ["o-1"]

    def send_mail(body: bytes) -> None:
        mailed.append(body)
        if body == b"order 1":  # others' tests have sent to the topic, too
            raise Enough

    names = {"order_exists": added.__contains__, "add_order": added.append,
             "database": Database(), "send_mail": send_mail}  # fmt: skip
    try:
        run(BLOCKS[0], names, server)
    except Enough:
        pass
    else:
        raise AssertionError("the loop has ended")
    assert mailed[-1] == b"order 1"
    until("the message", lambda: sent() == before + 1)


def test_the_outbox_sends_what_the_database_commits(
    server: Server, new_place: Callable[[str], Place]
) -> None:
    place = new_place("postgresql")
    with escrowmq.Admin(server.nameserver) as admin:
        admin.topics.create("paid", queues=4)
    engine = sa.create_engine(place.url)
    Base.metadata.create_all(engine)
    before = len(delivered(server, "paid"))
    names: dict[str, Any] = {"Order": Order, "escrowmq": escrowmq}
    run(BLOCKS[1], names, server, place.url)
    with engine.connect() as connection:
        assert list(connection.scalars(sa.select(Order.id))) == ["o-1"]
    engine.dispose()
    names["engine"].dispose()
    until("the message", lambda: len(delivered(server, "paid")) == before + 1)


def test_the_extras_that_it_names_are_there() -> None:
    (sentence,) = re.findall(r"The extras are (.*?) and others", README, re.DOTALL)
    (installed,) = re.findall(r"pip install '/path/to/the/checkout\[(.*?)\]'", README)
    named = {*re.findall(r"`([\w-]+)`", sentence), *installed.split(",")}
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert named
    assert named <= {*project["optional-dependencies"]}
