"""The page of replicas, its calls, and the tool of a model, before a group that fails over."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from escrowmq.console.options import ConsoleOptions
from tests.authority import etcd_servers
from tests.group.test_cluster_command import NAMES, Group
from tests.harness.console import ADMIN, VIEWER, Browser, console, program, until

BROKER = "pair"
"""What tests of kills call all their brokers."""


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    if missing := etcd_servers.missing():
        pytest.skip(f"not on this machine: {missing}")
    with ExitStack() as stack:
        yield Group(tmp_path_factory.mktemp("group"), stack)


@pytest.fixture(scope="module")
def port(group: Group) -> Iterator[int]:
    options = ConsoleOptions(name_servers=group.nameserver, login="local", users=(ADMIN, VIEWER))
    with console(options) as port:
        yield port


def shown(port: int) -> dict[str, Any]:
    (found,) = program(port).call("GET", "/replicas").json
    assert isinstance(found, dict)
    return found


def test_a_group_is_shown_with_its_members(group: Group, port: int) -> None:
    until(lambda: not shown(port)["isDegraded"])
    found = shown(port)
    assert (found["broker"], found["kind"], found["master"]) == (BROKER, "group", group.now.master)
    assert found["epoch"] >= 1
    assert sorted(found["inSync"]) == [*NAMES]
    assert {one["name"]: one["behind"] for one in found["members"]} == dict.fromkeys(NAMES, 0)
    browser = Browser(port)
    browser.log_in()
    page = browser.get("/replicas")
    assert "all in sync" in page.words()
    assert "Preview…" in page.text
    assert "/api/v1/replicas" in page.text


def test_the_master_is_changed_after_a_preview(group: Group, port: int) -> None:
    until(lambda: not shown(port)["isDegraded"])
    before = shown(port)
    to = next(name for name in NAMES if name != before["master"])
    browser = Browser(port)
    browser.log_in()
    browser.get("/replicas")
    fields = {"broker": BROKER, "to": to}
    preview = browser.send("/do/replicas.switch", {**fields, "back": "/replicas"})
    assert f"{to} would be the master of {BROKER}" in preview.words()
    assert shown(port)["epoch"] == before["epoch"]
    done = browser.send("/do/replicas.switch", {**fields, "back": "/replicas", "confirmed": "yes"})
    assert done.status == 303, done.words()
    assert done.headers["location"] == "/replicas"
    assert f"{to} is the master of {BROKER} instead of {before['master']}" in (
        browser.get("/replicas").words()
    )
    until(lambda: shown(port)["master"] == to)
    assert shown(port)["epoch"] > before["epoch"]


def test_what_cannot_be_is_told_and_nothing_changed(group: Group, port: int) -> None:
    until(lambda: not shown(port)["isDegraded"])
    before, api = shown(port), program(port)
    for to in (before["master"], "nobody"):
        for dry_run in (True, False):
            refused = api.call("POST", f"/replicas/{BROKER}/switch", {"to": to, "dry_run": dry_run})
            assert refused.status in (400, 502), refused.text
            assert to in refused.json["message"]
    assert api.call("POST", "/replicas/nowhere/switch", {}).status == 404
    assert shown(port)["epoch"] == before["epoch"]


def test_who_may_only_look_is_offered_nothing_and_refused(port: int) -> None:
    browser = Browser(port)
    browser.log_in(VIEWER)
    assert "Preview…" not in browser.get("/replicas").text
    refused = program(port, VIEWER).call("POST", f"/replicas/{BROKER}/switch", {})
    assert (refused.status, refused.json["code"]) == (403, "read_only")


def test_a_member_that_is_gone_is_seen(group: Group, port: int) -> None:
    gone = next(name for name in NAMES if name != shown(port)["master"])
    group.members[gone].kill()
    browser = Browser(port)
    browser.log_in()
    until(lambda: gone not in shown(port)["inSync"])
    found = shown(port)
    assert found["isDegraded"]
    assert {one["role"] for one in found["members"]} == {"master", "in sync", "not reached"}
    until(lambda: "degraded" in browser.get("/replicas").words())
    findings = {one.what: one for one in group.admin.diagnosis.cluster()}
    assert f"not in sync: {gone}" in findings
    assert "cluster status" in findings[f"not in sync: {gone}"].hint
    assert {one.severity for one in findings.values()} == {"warning"}, findings
    group.members[gone].start()
    until(lambda: not shown(port)["isDegraded"])
