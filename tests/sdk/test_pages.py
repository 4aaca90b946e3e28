"""The examples of the tutorial and of the coming-from pages run as they stand."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

import escrowmq
from escrowmq.base import fixed_limits
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.setting_facts import settings_of
from escrowmq.base.store_settings import StoreSettings
from escrowmq.cli.completion import continuations
from escrowmq.cli.main import build_parser
from escrowmq.cli.option_order import move_options
from escrowmq.testing import Broker
from tests.interop.process import until

from .commands import run

pytestmark = pytest.mark.ours_alone

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGES = ("coming-from-rocketmq", "coming-from-kafka", "coming-from-durable-execution")
WITH_COMMANDS = ("../README.md", *sorted(path.name for path in DOCS.glob("*.md")))
NAME_SERVER = "127.0.0.1:9876"


def blocks(page: str, language: str = "python") -> list[str]:
    return in_fences((DOCS / f"{page}.md").read_text(), language)


def in_fences(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


class Base(DeclarativeBase):
    pass


class Order(Base):
    __tablename__ = "orders"
    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)


class Parcel(Base):
    __tablename__ = "parcels"
    id: Mapped[str] = mapped_column(sa.String(40), primary_key=True)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(sockets=True) as broker:
        broker.create_topic("paid", 1)
        yield broker


@pytest.fixture
def names(broker: Broker, tmp_path: Path) -> Iterator[dict[str, Any]]:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'shop.db'}")
    Base.metadata.create_all(engine)
    yield {
        "escrowmq": escrowmq, "nameserver": broker.nameserver, "engine": engine, "Order": Order,
        "Parcel": Parcel, "orders": set(), "sent": [],
    }  # fmt: skip
    engine.dispose()


def sent(broker: Broker) -> list[bytes]:
    """Bodies that consumers of the topic see."""
    with escrowmq.Admin(broker.nameserver) as admin:
        (status,) = admin.topics.describe("paid").queues
        found: list[bytes] = []
        while status.min_offset + len(found) < status.max_offset:
            at = status.min_offset + len(found)
            found += [one.body for one in admin.messages.at(status.queue, at, count_max=32)]
        return found


def execute(page: str, names: dict[str, Any]) -> None:
    for text in blocks(page):
        code = text.replace(NAME_SERVER, names["nameserver"])
        exec(compile(code, f"{page}.md", "exec", dont_inherit=True), names)


def test_rocketmqs_listener_and_the_block_commit(broker: Broker, names: dict[str, Any]) -> None:
    execute("coming-from-rocketmq", names)
    assert names["orders"] == {"o-1", "o-2"}
    assert sent(broker) == [b"order 1", b"order 2"]


def test_the_outbox_sends_and_the_inbox_handles_once(broker: Broker, names: dict[str, Any]) -> None:
    execute("coming-from-kafka", names)
    assert sent(broker) == [b"order 1"]
    with names["engine"].connect() as connection:
        assert list(connection.scalars(sa.select(Parcel.id))) == ["o-1"]
    names["ship"](names["message"])  # once more
    with names["engine"].connect() as connection:
        assert list(connection.scalars(sa.select(Parcel.id))) == ["o-1"]


def test_a_step_that_runs_twice_sends_once(broker: Broker, names: dict[str, Any]) -> None:
    execute("coming-from-durable-execution", names)
    assert sent(broker) == [b"confirmed", b"order 2"]


def test_the_examples_for_users_of_celery_run(broker: Broker, names: dict[str, Any]) -> None:
    task, django, handler = blocks("coming-from-celery")
    exec(compile(task, "coming-from-celery.md", "exec"), names)
    names["send_mail"].delay("o-1")
    with escrowmq.Admin(broker.nameserver) as admin:
        until("the topic of the tasks", lambda: "celery-celery" in admin.topics.names())
        assert admin.topics.describe("celery-celery").count == 1
    names["app"].pool.force_close_all()  # or its client uses the process's thread for ever
    assert "outbox.send" in django, "tests/outbox/test_docs.py runs it"
    exec(compile(handler, "coming-from-celery.md", "exec"), names)
    with escrowmq.Producer(broker.nameserver, group="shop") as producer:
        producer.send("paid", b"x", keys=["k"])
    until("the handler", lambda: names["sent"] == ["k"])
    names["consumer"].close()


def test_the_tutorial_ends_with_both_orders_and_a_settled_transaction(
    broker: Broker, names: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shop, mailer = blocks("tutorial")
    exec(compile(shop.replace(NAME_SERVER, broker.nameserver), "shop.py", "exec"), names)
    said = capsys.readouterr().out
    assert "order 1: COMMIT" in said
    assert "order 2 is pending: " in said
    lines = [line for text in blocks("tutorial", "sh") for line in text.splitlines()]
    assert f"export NAMESRV_ADDR={NAME_SERVER}" in lines
    listed = run("tx", "list", nameserver=broker.nameserver).stdout.splitlines()
    message_id = listed[1].split("\t")[0]
    settling = [line.removeprefix("demo/bin/escrowmq ") for line in lines if "MESSAGE_ID" in line]
    assert len(settling) == 3
    for line in settling:
        words = line.replace("MESSAGE_ID", message_id).replace("'", "").split(" --reason ")
        reason = ["--reason", words[1]] if len(words) > 1 else []
        done = run(*words[0].split(), *reason, nameserver=broker.nameserver)
        assert done.returncode == 0, done
    assert "seen in the tutorial" in done.stdout
    assert "an operator" in done.stdout
    exec(compile(mailer.replace(NAME_SERVER, broker.nameserver), "mailer.py", "exec"), names)
    assert sorted(capsys.readouterr().out.splitlines()) == [
        "['o-1'] b'order 1'", "['o-2'] b'order 2'",
    ]  # fmt: skip


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_commands_on_the_page_are_commands(page: str) -> None:
    text = (DOCS / page).resolve().read_text().replace("\\\n", " ")  # long ones go on below
    found = [line for block in in_fences(text, "sh") for line in block.splitlines()]
    found += [line.strip() for line in text.splitlines() if line.startswith("    escrowmq ")]
    inline = re.findall(r"`(escrowmq [^`]+)`", text)
    found += [one.replace("\n", " ") for one in inline if "..." not in one]
    for line in found:
        shown = line.removeprefix("demo/bin/").partition("  #")[0].translate({91: "", 93: ""})
        words = shlex.split(shown)
        if words[0] == "escrowmq" and words[1] != "ready" and "|" not in shown:
            assert is_command(words[1:]), line


def is_command(words: list[str]) -> bool:
    """Whether the words are a verb, a verb with its action, or a whole command line."""
    words = words[: words.index(">")] if ">" in words else words
    if " ".join(words) in {one.path for one in continuations(build_parser(), "")}:
        return True
    try:
        build_parser().parse_args(move_options(words))
    except SystemExit as ended:
        return ended.code == 0
    return True


def test_the_limits_are_those_of_the_code() -> None:
    defaults = {
        one.name: one.default
        for table in (BrokerSettings, StoreSettings)
        for one in settings_of(table)
    }
    text = (DOCS / "promises.md").read_text().partition("## Limits")[2]
    rows = re.findall(r"^\| [^|]+ \| (\d+)[^|]* \| `(\w+)` \|$", text, re.MULTILINE)
    assert len(rows) == 15
    for value, name in rows:
        real = getattr(fixed_limits, name, None)
        assert int(value) == (defaults[name] if real is None else real), name


def test_the_comparison_has_a_date_and_names_what_is_better_elsewhere() -> None:
    text = (DOCS / "comparison.md").read_text()
    assert re.search(r"As of \*\*\d+ \w+ 20\d\d\*\*", text)
    for name in ("RocketMQ", "Kafka", "DTM", "DBOS", "Temporal", "outbox library"):
        assert name in text.partition("## Choose another when")[2], name
