"""A group that fails over, in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from escrowmq.console.options import ConsoleOptions
from tests.authority import etcd_servers
from tests.browser.chromium import Chromium
from tests.browser.looks import assert_whole_in_every_look
from tests.group.test_cluster_command import NAMES, Group
from tests.harness.console import ADMIN, HOST, console, until


@pytest.fixture(scope="module")
def group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Group]:
    if missing := etcd_servers.missing():
        pytest.skip(f"not on this machine: {missing}")
    with ExitStack() as stack:
        yield Group(tmp_path_factory.mktemp("group"), stack)


@pytest.fixture(scope="module")
def address(group: Group) -> Iterator[str]:
    options = ConsoleOptions(name_servers=group.nameserver, login="local", users=(ADMIN,))
    with console(options) as port:
        yield f"http://{HOST}:{port}/replicas"


def test_the_master_is_changed_by_the_keyboard_alone(
    chromium: Chromium, group: Group, address: str, pictures: Path
) -> None:
    chromium.look()
    chromium.open(address)
    chromium.run(f"document.querySelector('[name=name]').value = '{ADMIN.name}'")
    chromium.run(f"document.querySelector('[name=password]').value = '{ADMIN.password}'")
    chromium.run("document.querySelector('[name=password]').form.requestSubmit()")
    chromium.until_loaded()
    chromium.errors.clear()
    chromium.open(address)
    assert_whole_in_every_look(chromium, pictures, "replicas-group")
    before = group.now
    to = next(name for name in NAMES if name != before.master)
    chromium.look()
    chromium.open(address)
    chromium.run("document.querySelector('[name=to]').focus()")
    chromium.type(to)  # chooses by the first letter
    chromium.run("document.querySelector('[name=to]').form.querySelector('button').focus()")
    chromium.press("Enter")
    until(lambda: bool(chromium.run("document.querySelector('dialog[open]') !== null")))
    assert f"{to} would be the master" in chromium.run(
        "document.querySelector('dialog').textContent"
    )
    chromium.picture(pictures / "replicas-group-dialog-light.png")
    chromium.run("document.querySelector('dialog button:not([data-leave])').focus()")
    chromium.press("Enter")
    chromium.until_loaded()
    assert "is the master of" in chromium.run("document.querySelector('.note').textContent")
    until(lambda: group.now.master == to)
    assert chromium.errors == []
