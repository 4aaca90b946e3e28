"""Users and policies of ACL 2.0, changed by pages and by calls."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest

from escrowmq.console.options import LocalUser
from escrowmq.testing import Broker
from tests.harness.console import Browser, before, program

OPERATOR = LocalUser(name="operator", password="secret-of-operator", may_change=True)
FIRST = json.dumps({"username": OPERATOR.name, "password": OPERATOR.password})
SETTINGS = {
    "authenticationEnabled": "true", "authorizationEnabled": "true",
    "initAuthenticationUser": FIRST,
}  # fmt: skip

POLICY = {"user": "operator", "resource": "*", "actions": ["Pub"]}


@pytest.fixture(name="port")
def guarded_port() -> Iterator[int]:
    with (
        Broker(sockets=True, settings=SETTINGS) as broker,
        before(broker, login="accounts", users=()) as port,
    ):
        yield port


@pytest.fixture(name="browser")
def operators_browser(port: int) -> Browser:
    browser = Browser(port)
    assert browser.log_in(OPERATOR).status == 303
    browser.get("/accounts")
    return browser


@pytest.fixture(name="api")
def operators_program(port: int) -> Browser:
    return program(port, OPERATOR)


def names(api: Browser) -> dict[str, tuple[bool, bool]]:
    found = api.call("GET", "/access/users").json["items"]
    return {one["name"]: (one["isSuper"], one["isEnabled"]) for one in found}


def policies(api: Browser) -> list[tuple[str, str, list[str], str]]:
    found = api.call("GET", "/access/policies").json["items"]
    return [(one["user"], one["resource"], one["actions"], one["decision"]) for one in found]


def test_a_user_is_made_changed_and_deleted_after_previews(
    port: int, browser: Browser, api: Browser, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "escrowmq.audit")
    preview = browser.send("/do/access.create-user", {"user": "orders"})
    assert "user orders would be created" in preview.words()
    assert 'type="password" required' in preview.text
    assert "orders" not in names(api)
    without = browser.send("/do/access.create-user", {"user": "orders", "confirmed": "yes"})
    assert (without.status, "the password is missing" in without.words()) == (400, True)
    wanted = {"user": "orders", "password": "secret-of-orders", "reason": "a new service"}
    done = browser.send("/do/access.create-user", {**wanted, "confirmed": "yes"})
    assert done.status == 303
    assert names(api)["orders"] == (False, True)
    assert "secret-of-orders" not in caplog.text
    assert "access.create-user" in caplog.text
    assert "a new service" in caplog.text

    preview, done = browser.do("access.update-user", {"user": "orders", "is_enabled": "false"})
    assert "enabled disabled" in preview.words()
    assert names(api)["orders"] == (False, False)
    browser.do("access.update-user", {"user": "orders", "is_enabled": "true", "is_super": "true"})
    assert names(api)["orders"] == (True, True)

    preview = browser.send("/do/access.set-password", {"user": "orders", "password": "never shown"})
    assert "a new one" in preview.words()
    assert "never shown" not in preview.text
    fields = {"user": "orders", "password": "another secret", "confirmed": "yes"}
    assert browser.send("/do/access.set-password", fields).status == 303
    orders = LocalUser(name="orders", password="another secret", may_change=True)
    assert Browser(port).log_in(orders).status == 303

    preview, done = browser.do("access.delete-user", {"user": "orders"})
    assert "would delete the user orders" in preview.words()
    assert "orders" not in names(api)


def test_a_policy_is_set_and_deleted_after_previews(browser: Browser, api: Browser) -> None:
    fields = {"user": "orders", "password": "secret-of-orders"}
    assert api.call("POST", "/access/users", fields).json["isDryRun"] is False
    wanted = {
        "user": "orders", "resource": "Topic:paid*", "actions": ["Pub", "Sub"],
        "sources": "10.0.0.0/8",
    }  # fmt: skip
    preview = browser.send("/do/access.put-policy", wanted)
    assert "allow pub, sub from 10.0.0.0/8" in preview.words()
    assert policies(api) == []
    assert browser.do("access.put-policy", {**wanted, "sources": ""})[1].status == 303
    assert policies(api) == [("orders", "Topic:paid*", ["Pub", "Sub"], "Allow")]
    page = browser.get("/accounts")
    assert "Topic:paid*" in page.words()
    assert "Delete the policy of orders for Topic:paid*" in page.text
    body = {"user": "orders", "resource": "Topic:paid*", "actions": ["Pub"], "decision": "Deny"}
    changed = api.call("POST", "/access/policies?dry_run=1", body).json
    assert [(one["before"], one["after"]) for one in changed["rows"]] == [
        ("allow pub, sub", "deny pub")
    ]
    path = "/access/policies?user=orders&resource=Topic:paid*"
    assert api.call("DELETE", f"{path}&dry_run=1").json["count"] == 1
    assert len(policies(api)) == 1
    assert api.call("DELETE", path).json["count"] == 1
    assert policies(api) == []


@pytest.mark.parametrize(
    ("method", "path", "body", "status"),
    [
        ("POST", "/access/users/nobody?dry_run=1", {"is_super": True}, 404),
        ("POST", "/access/users?dry_run=1", {"user": "operator"}, 400),
        ("POST", "/access/users?password=x", {"user": "orders"}, 400),
        ("POST", "/access/users", {"user": "orders"}, 400),
        ("POST", "/access/users/operator", {}, 400),
        ("POST", "/access/policies", {**POLICY, "resource": "Topc:x"}, 400),
        ("POST", "/access/policies", {**POLICY, "actions": ["Push"]}, 400),
        ("POST", "/access/policies", {**POLICY, "actions": []}, 400),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_with_a_word(
    api: Browser, method: str, path: str, body: dict[str, object], status: int
) -> None:
    refused = api.call(method, path, body)
    assert (refused.status, bool(refused.json["message"])) == (status, True), refused.json
    assert names(api) == {"operator": (True, True)}


def test_a_form_without_its_token_changes_nothing(browser: Browser, api: Browser) -> None:
    wanted = {"user": "orders", "password": "secret-of-orders", "confirmed": "yes"}
    assert browser.send("/do/access.create-user", wanted, csrf="guessed").status == 403
    assert "orders" not in names(api)


def test_an_account_that_may_not_is_offered_nothing_and_refused(port: int, api: Browser) -> None:
    fields = {"user": "reader", "password": "secret-of-reader"}
    api.call("POST", "/access/users", fields)
    for resource in ("Cluster:*", "Topic:*", "Group:*"):
        rights = {"user": "reader", "resource": resource, "actions": ["Get", "List"]}
        assert api.call("POST", "/access/policies", rights).status == 200
    reader = Browser(port)
    someone = LocalUser(name="reader", password="secret-of-reader", may_change=False)
    assert reader.log_in(someone).status == 303
    assert "/do/" not in reader.get("/accounts").text
    refused = program(port, someone).call("POST", "/access/users", {"user": "x", "password": "y"})
    assert (refused.status, refused.json["code"]) == (403, "read_only")
