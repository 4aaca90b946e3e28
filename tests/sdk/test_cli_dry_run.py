"""`--dry-run` of every verb that changes something: it says what would be, and nothing is."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import escrowmq
from tests.interop.drivers import unique
from tests.interop.process import until
from tests.interop.servers import Server

from .commands import run
from .conftest import new_topic
from .test_cli_tx import asked, leave_pending
from .test_consume import FAST, Seen, numbered, send

pytestmark = pytest.mark.ours_alone

SECRET = "secret-7-of-them"
OPERATOR = ("--access-key", "operator", "--secret-key", SECRET)
NOTES_TIME = {"checkpoint", "consumerOffset.json", "delayOffset.json", "timercheck"}
"""Files with the time of their last save, which a broker writes by itself: compared by meaning."""


@pytest.fixture
def quiet(own_server: Callable[..., Server]) -> Server:
    """A broker that asks nobody about what is pending, and saves its figures at the end alone. Its
    files are small, since all are read often."""
    return own_server(
        transactionTimeOut=600_000,
        mappedFileSizeCommitLog=1 << 20,
        transactionMetricFlushInterval=600_000,
    )


def contents(folder: Path) -> dict[str, str]:
    """A digest of each file of a server, log and tables; not of those that note the time."""
    return {
        str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name.removesuffix(".bak") not in NOTES_TIME
        and not path.name.endswith(".log")
    }  # fmt: skip


def settled(server: Server) -> dict[str, str]:
    """The contents once nothing is being written any more."""
    seen = [contents(server.folder)]

    def is_quiet() -> bool:
        seen.append(contents(server.folder))
        return seen[-1] == seen[-2] == seen[0] or seen.pop(0) is None

    until("the files stay as they are", is_quiet)
    return seen[-1]


def dry(server: Server, *words: str) -> Any:
    """The preview of one verb, which nobody has carried out."""
    (found,) = asked(server, *words, "--dry-run")
    assert found["isDryRun"] is True
    assert found["said"]
    return found


def rows(found: Any) -> list[tuple[str, str, str]]:
    return [(one["what"], one["before"], one["after"]) for one in found["rows"]]


def test_dry_runs_of_topics_groups_and_settings_change_no_byte(quiet: Server) -> None:
    server, topic, group, other = quiet, new_topic(quiet), unique("CG"), unique("CG")
    send(server, topic, numbered(4))
    seen = Seen()
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=seen, **FAST):
        seen.wait(4)
    until("they are found by their keys", lambda: [*server.folder.rglob("index/*")])
    before = settled(server)
    name = server.broker_name
    config = asked(server, "broker", "config", "--name", name)

    found = dry(server, "topic", "create", "new-one", "--queues", "2")
    assert found["said"] == f"The topic new-one would be created on {name}."
    assert ("queues of each broker", "", "2") in rows(found)
    found = dry(server, "topic", "create", topic, "--queues", "8", "--ordered")
    assert rows(found) == [
        ("queues of each broker", "4 read, 4 written", "8"), ("ordered", "false", "true"),
    ]  # fmt: skip
    words = ("--read-queues", "2", "--permission", "none", "--attribute", "message.type=FIFO")
    assert rows(dry(server, "topic", "update", topic, *words)) == [
        ("read queues of each broker", "4", "2"), ("permission", "rw", "none"),
        ("message.type", "", "FIFO"),
    ]  # fmt: skip
    assert dry(server, "topic", "delete", topic)["count"] == 4
    assert len(dry(server, "group", "create", other)["rows"]) == 5
    assert rows(dry(server, "group", "update", group, "--attempts", "3")) == [
        ("attempts before a message becomes a dead letter", "16", "3")
    ]
    assert f"delete the group {group}" in dry(server, "group", "delete", group)["said"]
    assert dry(server, "offset", "clone", group, other, "--topic", topic)["count"] == 4
    (moved,) = asked(server, "offset", "reset", group, topic, "--to", "first", "--dry-run")
    assert [(one["before"], one["offset"]) for one in moved] == [(1, 0)] * 4
    found = dry(server, "broker", "set", "--name", name, "transactionCheckMax=7")
    assert rows(found) == [("transactionCheckMax", config[0]["transactionCheckMax"], "7")]
    assert "at once" in found["said"]
    assert asked(server, "group", "redeliver-dead", group, "--dry-run") == []

    assert "new-one" not in asked(server, "topic", "list")[0]
    assert asked(server, "broker", "config", "--name", name) == config
    assert settled(server) == before


def test_dry_runs_of_messages_and_transactions_change_no_byte(quiet: Server) -> None:
    server, topic, group = quiet, new_topic(quiet), unique("CG")
    ids = leave_pending(server, topic, unique("PG"), ["a", "b"])
    send(server, topic, [b"x"], keys=["k"])
    (sent,) = until("the index", lambda: asked(server, "message", "find", topic, "k"))
    seen = Seen()
    with escrowmq.Consumer(server.nameserver, group=group, topic=topic, handler=seen):
        seen.wait(1)
        member = asked(server, "group", "show", group)[0]["online"]["members"][0]["clientId"]
        before = settled(server)
        found = dry(server, "message", "send", topic, "hello")
        assert rows(found) == [(f"group {group}", "", "gets it")]
        assert "does not exist" in dry(server, "message", "send", "nowhere", "hello")["said"]
        assert dry(server, "message", "resend", sent["offsetId"])["count"] == 1
        who = ("--group", group, "--client")
        dry(server, "message", "deliver", sent["offsetId"], *who, member)
        asked(server, "message", "deliver", sent["offsetId"], *who, "nobody", "--dry-run", code=1)
        assert seen.bodies() == [b"x"]
        assert settled(server) == before
    before = settled(server)
    for verb, outcome in (("commit", "committed"), ("rollback", "rolled back")):
        (row,) = rows(dry(server, "tx", verb, ids[0]))
        assert row[1:] == ("waiting", outcome)
    assert dry(server, "tx", "check", ids[0])["count"] == 1
    assert dry(server, "tx", "check", "--topic", topic)["count"] == 2
    assert dry(server, "tx", "check", "--topic", "another")["count"] == 0
    assert dry(server, "tx", "resume", "--topic", topic)["count"] == 0
    assert server.broker_name in dry(server, "tx", "rotate-key")["said"]
    assert asked(server, "tx", "count")[0]["count"] == 2
    assert settled(server) == before
    asked(server, "tx", "commit", ids[0])
    ended = run("tx", "rollback", ids[0], "--dry-run", nameserver=server.nameserver)
    assert (ended.returncode, "already committed" in ended.stderr) == (1, True), ended


def test_dry_runs_of_users_and_policies_change_no_byte(own_server: Callable[..., Server]) -> None:
    first = json.dumps({"username": "operator", "password": SECRET})
    server = own_server(
        authenticationEnabled=True, authorizationEnabled=True, initAuthenticationUser=first
    )

    def told(*words: str, code: int = 0) -> Any:
        where = ("-n", server.nameserver, *OPERATOR, "--json", "--dry-run")
        done = run("acl", *words, *where, typed=f"{SECRET}\n")
        assert done.returncode == code, done
        return json.loads(done.stdout) if done.stdout else {}

    where = ("-n", server.nameserver, *OPERATOR)
    assert run("acl", "user", "create", "orders", *where, typed=f"{SECRET}\n").returncode == 0
    assert run("acl", "policy", "set", "orders", "Topic:a", "pub", *where).returncode == 0
    before = settled(server)
    assert rows(told("user", "create", "mails", "--super"))[0] == ("kind", "", "super")
    told("user", "create", "orders", code=2)
    assert rows(told("user", "update", "orders", "--no-enabled", "--password")) == [
        ("state", "enabled", "disabled"), ("password", "(secret)", "a new one"),
    ]  # fmt: skip
    told("user", "update", "nobody", "--super", code=1)
    broker = server.broker_name
    place = f"Topic:a on {broker}"
    assert rows(told("user", "delete", "orders")) == [(place, "allow pub", "")]
    assert rows(told("policy", "set", "orders", "Topic:a", "sub", "--deny")) == [
        (place, "allow pub", "deny sub")
    ]
    assert told("policy", "set", "orders", "Topic:b", "sub")["said"].endswith("be added.")
    assert rows(told("policy", "delete", "orders")) == [(place, "allow pub", "")]
    assert told("policy", "delete", "orders", "Topic:b")["count"] == 0
    assert settled(server) == before


def test_dry_runs_of_contexts_write_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "contexts.json"
    monkeypatch.setenv("ESCROWMQ_CONTEXTS", str(file))
    shown = run("context", "set", "prod", "-n", "10.0.0.1:9876", "--dry-run").stdout
    assert "name-servers\t-\t10.0.0.1:9876" in shown
    assert not file.exists()
    assert run("context", "set", "prod", "-n", "10.0.0.1:9876").returncode == 0
    before = file.read_bytes()
    assert "prod\t10.0.0.1:9876\t-" in run("context", "delete", "prod", "--dry-run").stdout
    assert "current context\tprod\tprod" in run("context", "use", "prod", "--dry-run").stdout
    assert file.read_bytes() == before
