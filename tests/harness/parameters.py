"""Parameters of tests."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

import pytest


def quick(chosen: Collection[Any], *, of: Iterable[Any]) -> list[Any]:
    """All of these; those that are not chosen are left to `make long`."""
    return [each if each in chosen else pytest.param(each, marks=pytest.mark.long) for each in of]
