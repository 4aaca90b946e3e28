"""Options of the suites that can judge EscrowMQ's servers and RocketMQ's alike; in which order the
suites run."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

_COMPUTING = ("spark", "simulation")
_WAITING = ("interop", "sdk", "compensation")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --peer."""
    parser.addoption("--peer", choices=("escrow", "java"), default="escrow", help="who is judged")


@pytest.fixture(scope="session")
def peer(request: pytest.FixtureRequest) -> str:
    """Who is judged: "escrow" or "java"."""
    return str(request.config.getoption("--peer"))


@pytest.fixture(autouse=True)
def _assertions_are_seen(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """What a server gets over is logged; an assertion among it is a mistake of ours."""
    yield
    for record in caplog.get_records("call"):
        error = record.exc_info[1] if record.exc_info else None
        assert not isinstance(error, AssertionError), record.getMessage()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that compute and files that wait take turns, so that the workers do not all do the same
    at a time; what takes no time is left to the end."""
    files: dict[Path, list[pytest.Item]] = {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    computing = [file for suite in _COMPUTING for file in files if _suite(file) == suite]
    waiting = [file for file in files if _suite(file) in _WAITING]
    turns = itertools.chain(*itertools.zip_longest(computing, waiting))
    order = dict.fromkeys([*filter(None, turns), *files])
    items[:] = [item for file in order for item in files[file]]


def _suite(file: Path) -> str:
    inside = file.parts[file.parts.index("tests") + 1 :] if "tests" in file.parts else ()
    return inside[0] if inside else ""
