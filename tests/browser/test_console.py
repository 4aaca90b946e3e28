"""The console in a real browser: every page in light, in dark and on a phone, and by keyboard
alone."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from escrowmq.console.page_table import PAGES
from tests.browser import axe_core
from tests.browser.chromium import Chromium
from tests.browser.conftest import Shop
from tests.browser.looks import assert_whole_in_every_look
from tests.harness.console import until
from tests.harness.parameters import quick
from tests.interop import jars

EXAMPLES = {
    "/transactions/{transaction:path}": "/transactions/{transaction}",
    "/topics/{topic}": "/topics/orders-paid",
    "/groups/{group}": "/groups/mailer",
    "/groups/{group}/dead-letters": "/groups/mailer/dead-letters",
    "/messages/{id:path}": "/messages/broker-a:0@3?topic=orders-paid",
    "/brokers/{broker}": "/brokers/broker-a",
}
PAGE_MAX = 60 * 1024


@pytest.mark.parametrize("path", [path for path, _ in PAGES])
def test_every_page_is_whole_light_dark_and_on_a_phone(
    inside: Chromium, shop: Shop, pictures: Path, path: str
) -> None:
    example = EXAMPLES.get(path, path).format(transaction=shop.transaction)
    inside.open(shop.address + example)
    name = re.sub(r"[{}]|:path", "", path).strip("/").replace("/", "-") or "overview"
    assert_whole_in_every_look(inside, pictures, name)
    assert inside.run("document.querySelector('main h1') !== null")
    assert inside.run("document.querySelector('.note.bad')") is None
    assert inside.run("document.documentElement.outerHTML.length") < PAGE_MAX
    assert inside.run("document.querySelectorAll('h1').length") == 1
    # What the content-security policy refuses, and what fails in the script, would stand here.
    assert inside.errors == []


@pytest.fixture(scope="module")
def axe() -> str:
    missing = jars.missing_tools(*axe_core.TOOLS)
    if missing:
        pytest.skip(f"not on this machine: {missing}")
    return axe_core.script().read_text(encoding="utf-8")


@pytest.mark.parametrize("is_dark", quick([False], of=[False, True]))
def test_axe_finds_nothing_wrong_with_any_page(
    inside: Chromium, shop: Shop, axe: str, is_dark: bool
) -> None:
    inside.look(is_dark=is_dark)
    for path, _ in PAGES:
        example = EXAMPLES.get(path, path).format(transaction=shop.transaction)
        inside.open(shop.address + example)
        assert axe_core.violations(inside, axe) == [], path


def test_a_transaction_is_settled_by_the_keyboard_alone(inside: Chromium, shop: Shop) -> None:
    inside.open(f"{shop.address}/")
    inside.type("gx")
    inside.until_loaded()
    assert inside.run("location.pathname") == "/transactions"
    key = ""
    while not key.startswith("t-"):
        inside.type("j")  # past the producer groups, to the first transaction
        before = key
        key = inside.run("document.activeElement.textContent")
        assert key != before, "the table has ended"
    inside.press("Enter")
    inside.until_loaded()
    assert inside.run("document.querySelector('h1').textContent") == key
    for _ in range(40):
        inside.press("Tab")
        if inside.run("document.activeElement.textContent") == "Commit…":
            break
    inside.press("Enter")
    until(lambda: bool(inside.run("document.querySelector('dialog[open]') !== null")))
    assert "It cannot be taken back" in inside.run("document.querySelector('dialog').textContent")
    assert inside.run("document.activeElement.textContent") == "Commit the transaction"
    inside.press("Escape")
    until(lambda: bool(inside.run("document.querySelector('dialog') === null")))
    assert inside.run("document.activeElement.textContent") == "Commit…"
    assert f"{key}" in inside.run("document.body.textContent")
    inside.press("Enter")
    until(lambda: bool(inside.run("document.querySelector('dialog[open]') !== null")))
    inside.press("Enter")
    inside.until_loaded()
    assert "The transaction is committed." in inside.run("document.body.textContent")
    assert len(shop.broker.delivered("orders-paid")) == 41
    assert inside.errors == []


def test_figures_move_without_a_reload_and_not_under_somebody_who_types(
    inside: Chromium, shop: Shop
) -> None:
    inside.open(f"{shop.address}/topics?part=orders")
    inside.run("window.stayed = true")
    inside.run("document.querySelector('[name=part]').value = 'typing'")
    shop.broker.send("orders-paid", b"one more")
    count = len(shop.broker.delivered("orders-paid"))
    until(lambda: str(count) in inside.run("document.querySelector('tbody').textContent"))
    assert inside.run("window.stayed") is True
    assert inside.run("document.querySelector('[name=part]').value") == "typing"


def test_a_hostile_body_is_text_in_a_real_browser(inside: Chromium, shop: Shop) -> None:
    inside.open(f"{shop.address}/messages/broker-a:0@3?topic=orders-paid")
    assert "<script>alert(1)</script>" in inside.run("document.querySelector('pre').textContent")
    assert inside.run("document.querySelectorAll('script').length") == 1
    assert inside.errors == []


def test_pages_work_without_the_script(inside: Chromium, shop: Shop) -> None:
    inside.call("Emulation.setScriptExecutionDisabled", value=True)
    try:
        inside.open(f"{shop.address}/groups/mailer")
        inside.press("Tab")
    finally:
        inside.call("Emulation.setScriptExecutionDisabled", value=False)
    assert "Queue by queue" in inside.run("document.body.textContent")
