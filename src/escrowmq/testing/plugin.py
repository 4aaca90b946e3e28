"""The pytest plug-in: fixtures with a broker inside the test's process (docs/testing.md)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from escrowmq.testing.kit.broker import Broker

_MARK: Final = "escrowmq"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    config.addinivalue_line(
        "markers",
        f"{_MARK}(settings=None, accounts=()): settings and accounts of the broker of this test's "
        "fixture escrowmq_broker or escrowmq_server",
    )


@pytest.fixture
def escrowmq_broker(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Broker]:
    """A broker inside this process, on a clock that stands still; NAMESRV_ADDR names it."""
    yield from _open_broker(request, monkeypatch, sockets=False)


@pytest.fixture
def escrowmq_server(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Broker]:
    """A broker inside this process, behind real sockets on loopback, for clients in other
    processes; NAMESRV_ADDR names it."""
    yield from _open_broker(request, monkeypatch, sockets=True)


def _open_broker(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, *, sockets: bool
) -> Iterator[Broker]:
    from escrowmq.testing.kit.broker import Broker

    with Broker(sockets=sockets, **_marker_arguments(request.node)) as broker:
        monkeypatch.setenv("NAMESRV_ADDR", broker.nameserver)
        yield broker


def _marker_arguments(item: Any) -> dict[str, Any]:  # noqa: ANN401 - pytest.Item, of which tests are
    """Return the arguments of the test's own marker, merged over those of its class and its
    module."""
    found: dict[str, Any] = {}
    for mark in reversed(list(item.iter_markers(_MARK))):
        if mark.args or not mark.kwargs.keys() <= {"settings", "accounts"}:
            raise pytest.UsageError(
                f"{item.nodeid}: @pytest.mark.{_MARK} takes settings= and accounts=, nothing else"
            )
        found |= mark.kwargs
    return found


def pytest_assertrepr_compare(op: str, left: object, right: object) -> list[str] | None:
    """Describe what the broker held when a comparison of bodies fails."""
    kit = sys.modules.get("escrowmq.testing.kit.inspection")
    if kit is None:
        return None
    found = next((each for each in (left, right) if isinstance(each, kit.Found)), None)
    return None if found is None else [f"{left!r} {op} {right!r}", *found.told.splitlines()]
