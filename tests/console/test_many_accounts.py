"""Fifty thousand users are pages like any others."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from escrowmq.console.options import ConsoleOptions, LocalUser
from tests.harness.console import Browser, console, program
from tests.interop.servers import EscrowServer

COUNT = 50_000
ROOT = LocalUser(name="root", password="secret-of-root", may_change=True)


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    folder = tmp_path_factory.mktemp("many")
    config = folder / "store" / "config"
    config.mkdir(parents=True)
    users = [
        {"username": f"user-{nth}", "password": f"secret-of-{nth}", "userType": "Normal",
         "userStatus": "enable"}
        for nth in range(COUNT)
    ]  # fmt: skip
    users.append({**users[0], "username": ROOT.name, "password": ROOT.password,
                  "userType": "Super"})  # fmt: skip
    (config / "auth.json").write_text(json.dumps({"users": users}))
    server = EscrowServer(Path(folder), authenticationEnabled=True, authorizationEnabled=True)
    try:
        options = ConsoleOptions(name_servers=server.nameserver, login="accounts")
        with console(options) as port:
            yield port
    finally:
        server.kill()


@pytest.mark.thorough
def test_they_are_listed_found_and_changed(port: int) -> None:
    browser, api = Browser(port), program(port, ROOT)
    assert browser.log_in(ROOT).status == 303
    page = browser.get("/accounts")
    assert page.status == 200
    assert len(page.body) < 60 * 1024
    found = api.call("GET", "/access/users").json
    assert (found["total"], len(found["items"])) == (COUNT + 1, 50)
    assert "user-31234" in browser.get("/accounts?part=31234").words()
    past = api.call("GET", "/access/users?page=100000").json
    assert (past["items"], past["hasMore"]) == ([], False)
    fields = {"user": "user-31234", "is_enabled": "false"}
    browser.do("access.update-user", fields, back="/accounts")
    (changed,) = api.call("GET", "/access/users?part=user-31234").json["items"]
    assert changed["isEnabled"] is False
    wrong = Browser(port)
    assert wrong.log_in(LocalUser(name="user-5", password="guess", may_change=False)).status != 303
