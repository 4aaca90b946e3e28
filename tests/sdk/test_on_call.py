"""The questions of docs/operating.md, each asked of a server."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

import escrowmq
from escrowmq.cli.completion import continuations
from escrowmq.cli.main import build_parser
from escrowmq.console.page_table import PAGES
from tests.interop.ports import free_port
from tests.interop.process import until
from tests.interop.servers import Server

from .commands import run
from .conftest import new_topic
from .test_cli_tx import asked, leave_pending
from .test_consume import send

pytestmark = pytest.mark.ours_alone

PAGE = Path(__file__).resolve().parents[2] / "docs" / "operating.md"
RULES = PAGE.parents[1] / "deploy" / "prometheus" / "rules.yaml"
TITLE = "## Thirty questions at three in the morning\n"


def rows() -> list[tuple[str, list[str]]]:
    """Each question with its commands."""
    section = PAGE.read_text().partition(TITLE)[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("| ")][1:]
    found = []
    for line in lines:
        question, answer = line.strip("| ").split(" | ")[:2]
        found.append((question, re.findall(r"`(escrowmq [^`]+)`", answer)))
    return found


ANSWERS = {
    "why was a message not delivered to a group?": "group {group}: ",
    "which groups lag?": "{group}\t3",
    "since when does a group lag?": "CONSUMED",
    "who holds this transaction?": "group      {producers}",
    "which are older than 10 minutes?": "",
    "which service leaves them open?": "group\t{producers}\t1",
    "what changed in the settings?": "transactionCheckMax\t14\t15\t127.0.0.1",
    "what is different from the defaults?": "transactionCheckMax=14",
    "is the disk the problem?": "ready",
    "what would that do?": "dry run: ",
    "how many are there, of whom?": "%DLQ%{group}",
    "who produces?": "{producers}\t",
    "why may an account not do something?": "no access control",
    "which build runs, since when?": "broker-a",
    "is the store sound?": "sound",
    "was the last stop clean?": "broker-a",
}
"""What one of its commands prints; of the others it is enough that they succeed."""


@pytest.fixture(scope="module")
def names() -> dict[str, str]:
    return {}


def test_there_are_thirty_and_each_has_an_answer() -> None:
    found = rows()
    assert len(found) == 30
    without = [question for question, commands in found if not commands]
    assert without == ["when will the disk be full?"]
    assert "EscrowMQDiskFillsUp" in RULES.read_text()
    assert ANSWERS.keys() <= {question for question, _ in found}
    known = {one.path for one in continuations(build_parser(), "")}
    for _, commands in found:
        for command in commands:
            words = command.split()[1:]
            assert {words[0], " ".join(words[:2])} & known, command
    assert {path for path, _ in PAGES} >= {"/messages", "/groups", "/transactions", "/brokers"}


def test_each_is_answered(own_server: Callable[..., Server]) -> None:
    http = free_port()
    server = own_server(transactionTimeOut=600_000, escrowHttpPort=http)
    topic, group, producers = new_topic(server, queues=1), "mailer-of-T", "PG-of-T"
    (transaction,) = leave_pending(server, topic, producers, ["a"])
    send(server, topic, [b"1", b"2", b"3", b"4"], keys=["k"])
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic) as consumer:
        for delivery in consumer:
            delivery.ack()
            break
    found = until("the index", lambda: asked(server, "message", "find", topic, "k"))
    last = max(found, key=lambda one: int(one["queueOffset"]))
    asked(server, "broker", "set", "--name", server.broker_name, "transactionCheckMax=14")
    with escrowmq.Admin(server.nameserver) as admin:
        admin.topics.create("stock", queues=1)
    texts = {"group": group, "producers": producers}
    of = {"G": group, "T": topic, "B": server.broker_name, "USER": "bob", "WHY": "night",
          "DIR": str(server.store), "OFFSET": "2", "09:00": "first",
          "%DLQ%G": f"%DLQ%{group}"}  # fmt: skip
    die(server, topic, group)
    unknown = escrowmq.Producer(
        server.nameserver, group=producers, check=lambda _: escrowmq.Outcome.UNKNOWN
    )
    with unknown as producer:
        producer.send(topic, b"5")
        for question, commands in rows():
            of["ID"] = transaction if "tx" in " ".join(commands) else last["messageId"]
            said = ""
            for command in commands:
                words = [of.get(word, word) for word in shlex.split(command)[1:]]
                said += answer(server, words, http)
            if question in ANSWERS:
                assert ANSWERS[question].format(**texts) in said, (question, said)


def answer(server: Server, words: list[str], http: int) -> str:
    """What a command prints; one that changes something only says what it would do."""
    if words[0] == "health":
        words = [*words, f"127.0.0.1:{http}"]
        done = run(*words)
    elif words[0] == "store":
        done = run(*words)
    else:
        changes = words[:2] in (["group", "redeliver-dead"], ["tx", "resume"], ["offset", "reset"])
        dry = ["--dry-run"] if changes and "--dry-run" not in words else []
        done = run(*words, *dry, "-n", server.nameserver)
    assert done.returncode == 0, done
    return done.stdout


def die(server: Server, topic: str, group: str) -> None:
    """Let the group have a dead letter."""
    other = {"group": group, "topic": topic, "attempts_max": 0}
    with escrowmq.Consumer(server.nameserver, **other) as consumer:  # type: ignore[arg-type]
        for delivery in consumer:
            delivery.reject()
            break
    with escrowmq.Admin(server.nameserver) as admin:
        until("the dead letter", lambda: f"%DLQ%{group}" in admin.topics.names(with_system=True))
