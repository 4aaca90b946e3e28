"""Users and policies changed in a real browser, before brokers with accounts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from escrowmq.testing import Broker
from tests.browser import axe_core
from tests.browser.chromium import Chromium
from tests.browser.looks import assert_whole_in_every_look
from tests.harness.console import HOST, before, until
from tests.interop import jars

NAME, PASSWORD = "operator", "secret-of-operator"
SETTINGS = {
    "authenticationEnabled": "true", "authorizationEnabled": "true",
    "initAuthenticationUser": json.dumps({"username": NAME, "password": PASSWORD}),
}  # fmt: skip


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with (
        Broker(sockets=True, settings=SETTINGS) as broker,
        before(broker, login="accounts", users=()) as port,
    ):
        yield f"http://{HOST}:{port}"


@pytest.fixture
def inside(chromium: Chromium, address: str) -> Chromium:
    """A browser that is logged in as an operator."""
    chromium.look()
    chromium.open(f"{address}/login")
    if chromium.run("document.querySelector('[name=password]') !== null"):
        chromium.run(f"document.querySelector('[name=name]').value = '{NAME}'")
        chromium.run(f"document.querySelector('[name=password]').value = '{PASSWORD}'")
        chromium.run("document.querySelector('[name=password]').form.requestSubmit()")
        chromium.until_loaded()
    chromium.errors.clear()
    return chromium


def test_a_user_is_made_in_a_dialog_that_asks_for_its_password(
    inside: Chromium, address: str, pictures: Path
) -> None:
    inside.open(f"{address}/accounts")
    inside.run("document.querySelector('[action=\"/do/access.create-user\"] [name=user]').focus()")
    inside.type("orders")
    inside.press("Enter")
    until(lambda: bool(inside.run("document.querySelector('dialog[open]') !== null")))
    assert "would be created" in inside.run("document.querySelector('dialog').textContent")
    inside.picture(pictures / "accounts-dialog-light.png")
    inside.type("secret-of-orders")  # the box has the focus
    inside.press("Enter")
    inside.until_loaded()
    assert "The user orders was created." in inside.run("document.body.textContent")
    assert "orders" in inside.run("document.querySelector('tbody').textContent")
    assert inside.errors == []


def test_the_forms_are_whole_light_dark_and_on_a_phone(
    inside: Chromium, address: str, pictures: Path
) -> None:
    inside.open(f"{address}/accounts")
    assert_whole_in_every_look(inside, pictures, "accounts-changes")
    assert inside.errors == []


def test_axe_finds_nothing_wrong(inside: Chromium, address: str) -> None:
    missing = jars.missing_tools(*axe_core.TOOLS)
    if missing:
        pytest.skip(f"not on this machine: {missing}")
    inside.open(f"{address}/accounts")
    script = axe_core.script().read_text(encoding="utf-8")
    assert axe_core.violations(inside, script) == []
