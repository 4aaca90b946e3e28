"""`escrowmq acl`, against a real broker and against files."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.interop.servers import Server

from . import commands

pytestmark = pytest.mark.ours_alone

SECRET = "secret-7-of-them"
OPERATOR = ("--access-key", "operator", "--secret-key", SECRET)
FILE = f"""
accounts:
- {{accessKey: orders-service, secretKey: {SECRET}, topicPerms: [orders=PUB]}}
"""


def run(*words: str, typed: str = "") -> subprocess.CompletedProcess[str]:
    return commands.run("acl", *words, typed=typed)


@pytest.fixture
def guarded(own_server: Callable[..., Server]) -> Server:
    first = json.dumps({"username": "operator", "password": SECRET})
    return own_server(
        authenticationEnabled=True, authorizationEnabled=True, initAuthenticationUser=first
    )


def test_users_and_policies_are_made_asked_about_and_removed(guarded: Server) -> None:
    where = ("-n", guarded.nameserver, *OPERATOR)

    def ask(*words: str, typed: str = "", code: int = 0) -> str:
        done = run(*words, *where, typed=typed)
        assert done.returncode == code, done
        return done.stdout

    assert ask("user", "create", "orders", typed=f"{SECRET}\n") == "orders created\n"
    ask("policy", "set", "orders", "Topic:ord*", "pub", "sub", "--source", "10.0.0.0/8")
    ask("policy", "set", "orders", "Topic:ordinary", "all", "--deny")
    for words, reason in (
        (("orders", "Topc:ord*", "pub"), "'Topc:ord*' is not a resource"),
        (("orders", "Topic:ord*", "push"), "'push' is not an action; allowed are all"),
    ):
        wrong = run("policy", "set", *words, *where)
        assert (wrong.returncode, reason in wrong.stderr) == (2, True), wrong
    shown = ask("policy", "list", "orders", "--json")
    assert json.loads(shown.splitlines()[0])["resource"] == "Topic:ord*"
    allowed = ask("explain", "orders", "pub", "orders", "--address", "10.1.1.1")
    assert "orders may pub orders from 10.1.1.1 (ACL 2.0 at broker-a): custom entry" in allowed
    refused = ask("explain", "orders", "pub", "orders", "--json", code=1)
    assert json.loads(refused)["decidedBy"] == "no entry matches"
    for line in ("update orders --password", "create empty"):
        for typed in ("", "\n"):
            unread = run("user", *line.split(), *where, typed=typed)
            assert (unread.returncode, "password is empty" in unread.stderr) == (2, True), unread
    assert ask("user", "list", "empty") == ""
    ask("user", "update", "orders", "--no-enabled")
    assert "orders\tnormal\tdisabled\tbroker-a" in ask("user", "list", "orders")
    ask("policy", "delete", "orders", "Topic:ordinary")
    ask("user", "delete", "orders")
    assert ask("policy", "list", "--json") == ""
    nobody = run("user", "list", "-n", guarded.nameserver)
    assert (nobody.returncode, "username cannot be null" in nobody.stderr) == (1, True)
    data = guarded.store / "config" / "auth.json"
    assert data.stat().st_mode & 0o777 == 0o600
    told = run("explain", "operator", "delete", "Cluster:c", "--data", str(guarded.store))
    assert (told.returncode, "operator is a super user" in told.stdout) == (0, True)


def test_files_are_explained_without_a_broker(tmp_path: Path) -> None:
    file = tmp_path / "plain_acl.yml"
    file.write_text(FILE)
    for path in (file, tmp_path):
        allowed = run("explain", "orders-service", "pub", "orders", "--accounts", str(path))
        assert (allowed.returncode, "topicPerms: orders=PUB" in allowed.stdout) == (0, True)
    refused = run("explain", "orders-service", "sub", "orders", "--accounts", str(file), "--json")
    assert (refused.returncode, json.loads(refused.stdout)["isAllowed"]) == (1, False)
    for words in (
        ("pub", "orders", "--accounts", str(tmp_path / "none.yml")),
        ("jump", "orders", "--accounts", str(file)),
        ("pub", "orders", "--data", str(tmp_path)),
        ("pub", "orders", "--accounts", str(file), "--address", "here"),
    ):
        failed = run("explain", "orders-service", *words)
        assert (failed.returncode, len(failed.stderr.splitlines())) == (2, 1), failed
        assert "Errno" not in failed.stderr
    assert SECRET not in refused.stdout


def test_where_nothing_is_asked_that_is_told(own_server: Callable[..., Server]) -> None:
    server = own_server()
    told = run("explain", "anybody", "pub", "orders", "-n", server.nameserver)
    assert (told.returncode, "there is no access control" in told.stdout) == (0, True)
