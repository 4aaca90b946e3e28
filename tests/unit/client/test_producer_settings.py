from __future__ import annotations

import functools
from typing import Any

import pytest

from escrowmq.client.core.sending import Outcome
from escrowmq.client.producer_settings import ProducerOptions, split_producer_settings
from escrowmq.errors import UsageError


class Listener:
    def execute(self, message: object, arg: object) -> Outcome:
        return Outcome.COMMIT

    def check(self, message: object) -> Outcome:
        return Outcome.COMMIT


def yielding(message: object) -> Any:
    yield message


def without_message() -> Outcome:
    return Outcome.COMMIT


async def awaited(message: object) -> Outcome:
    return Outcome.COMMIT


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"check": Outcome.COMMIT}, "check"),
        ({"check": without_message}, "check"),
        ({"check": yielding}, "check"),
        ({"checkers": {"paid": 5}}, r"checkers\['paid'\]"),
        ({"checkers": [awaited]}, "checkers"),
        ({"listener": object()}, "listener.check"),
    ],
)
def test_a_check_that_could_never_answer_is_refused(settings: dict[str, Any], name: str) -> None:
    """It was noticed with the first check, of a producer that had died: its transactions were given
    up after fifteen of them."""
    with pytest.raises(UsageError, match=f"^{name}="):
        ProducerOptions(**settings)


@pytest.mark.parametrize(
    "settings",
    [
        {}, {"check": awaited}, {"check": lambda message: Outcome.COMMIT}, {"check": None},
        {"check": functools.partial(Listener.check, Listener())}, {"listener": Listener()},
        {"check": Listener().check, "checkers": {"paid": awaited, "refunds": Listener().check}},
    ],
)  # fmt: skip
def test_a_check_is_a_function_that_takes_a_message(settings: dict[str, Any]) -> None:
    own, rest = split_producer_settings(settings)
    assert rest == {}
    assert own.has_checks == any(settings.values())
