"""Options of the suites that can judge EscrowMQ's servers and RocketMQ's alike; in which order the
suites run; where the examples of Hypothesis come from."""

from __future__ import annotations

import gc
import itertools
import logging
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.harness import examples

pytest_plugins = ["pytester"]

_COMPUTING = ("simulation", "spark")
_WAITING = (
    "authority", "compensation", "console", "crash", "failover", "frameworks", "group", "hostile",
    "interop", "outbox", "sdk", "shop", "v5",
)  # fmt: skip
_QUICK = ("fuzz", "golden", "unit")
_WITHOUT_CLIENTS = ("acl", "base", "broker", "net", "registry", "store")
_LONGEST = (
    "simulation/test_planted.py", "spark/test_cli_pipeline.py", "spark/test_commits.py",
    "spark/test_faults.py", "spark/test_reconcile.py", "spark/test_remade.py",
    "compensation/test_older_server.py", "compensation/test_reader.py", "console/test_rocketmq.py",
    "failover/test_clients.py", "failover/test_faults.py", "failover/test_upgrade.py",
    "frameworks/test_celery.py", "group/test_drill_command.py", "group/test_tls_processes.py",
    "group/worlds/test_worlds.py", "interop/test_acl.py", "interop/test_mqadmin.py",
    "interop/test_offsets.py", "interop/test_pop.py", "interop/test_registration.py",
    "interop/test_replication.py", "interop/test_retry.py", "interop/test_store_exchange.py",
    "interop/test_takeover.py", "outbox/test_keep.py", "outbox/test_keep_locks.py",
    "sdk/test_interrupts.py", "shop/test_killed.py", "unit/node/test_group.py",
    "unit/testing/kit/test_broker.py", "v5/test_clients.py", "v5/test_matrix.py",
)  # fmt: skip
"""Files of half a minute and more, and the longest of the quick ones: one that begins late keeps a
single worker busy at the end."""

_COMPILED = ("v5/", "failover/test_clients.py")
"""Clients that a fresh clone may still be compiling take part in these: they follow the longest
ones."""


# Here, and not in a folder of its own: Hypothesis asks for the profile of the command line before
# anything else is imported, and what is loaded later would take its place.
examples.register_profiles()


def pytest_configure(config: pytest.Config) -> None:
    """With CI's profile, examples depend on nothing but their test."""
    if config.getoption("--hypothesis-profile", None) == examples.CI:
        examples.forget_constants()


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --peer."""
    parser.addoption("--peer", choices=("escrow", "java"), default="escrow", help="who is judged")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files as a whole, as `--dist loadfile` says; those of Spark to one worker if it can be."""
    from tests.harness.sessions import FewSessions

    return FewSessions(config, log) if config.getoption("dist") == "loadfile" else None


@pytest.fixture(scope="session")
def peer(request: pytest.FixtureRequest) -> str:
    """Who is judged: "escrow" or "java"."""
    return str(request.config.getoption("--peer"))


@pytest.fixture(autouse=True)
def _lines_of_others_are_not_seen(
    request: pytest.FixtureRequest, caplog: pytest.LogCaptureFixture
) -> Iterator[None]:
    """Of the log a test sees what EscrowMQ says, and where no client takes part nothing of clients:
    one that a test before it has left in the process may just lose its broker."""
    rooms = request.path.parts
    has_clients = "unit" not in rooms or rooms[rooms.index("unit") + 1] not in _WITHOUT_CLIENTS

    def is_own(record: logging.LogRecord) -> bool:
        return record.name.startswith("escrowmq") and (
            has_clients or not record.name.startswith("escrowmq.client")
        )

    caplog.handler.addFilter(is_own)
    yield
    caplog.handler.removeFilter(is_own)


@pytest.fixture(autouse=True)
def _assertions_are_seen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What a server gets over is logged; an assertion among it is a mistake of ours."""
    yield
    for record in caplog.get_records("call"):
        error = record.exc_info[1] if record.exc_info else None
        assert not isinstance(error, AssertionError), record.getMessage()


@pytest.fixture(scope="module", autouse=True)
def _clients_are_closed() -> Iterator[None]:
    """Blocking clients of a process share one thread, which ends with the last of them: one that a
    file of tests leaves open is seen by every file behind it."""
    before = _clients_count()
    yield
    assert _clients_count() <= before, "a test of this file left a blocking client open"


def _clients_count() -> int:
    portal = sys.modules.get("escrowmq.client.portal")
    return portal._shared.users_count if portal is not None else 0


def pytest_collection_finish() -> None:
    """What was imported and collected lasts until the end, so the garbage collector need not look
    through it again and again. With this, and fewer collections, the unit tests take a fifth less
    CPU time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(7_000)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that compute and files that wait take turns, so that the workers do not all do the same
    at a time, the longest first; small files are left to the end, where they fill all workers."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    by_length = sorted(files, key=lambda file: not file.as_posix().endswith(_LONGEST))
    computing = [file for file in by_length if _suite(file) in _COMPUTING]
    waiting = sorted((file for file in by_length if _suite(file) in _WAITING), key=_turn)
    turns = itertools.chain(*itertools.zip_longest(computing, waiting))
    quick = [file for file in by_length if _suite(file) in _QUICK]
    rest = [file for file in files if file not in quick]
    order = dict.fromkeys([*filter(None, turns), *rest, *quick])
    items[:] = [item for file in order for item in files[file]]


def _turn(file: Path) -> int:
    """When a file of those that wait has its turn."""
    if any(f"tests/{part}" in file.as_posix() for part in _COMPILED):
        return 1
    return 0 if file.as_posix().endswith(_LONGEST) else 2


def _suite(file: Path) -> str:
    inside = file.parts[file.parts.index("tests") + 1 :] if "tests" in file.parts else ()
    return inside[0] if inside else ""
