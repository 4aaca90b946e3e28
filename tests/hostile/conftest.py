from __future__ import annotations

from collections.abc import Iterator

import pytest

from .place import Place


@pytest.fixture(params=["1.0", "2.0"], scope="module", name="place")
def open_place(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A server with accounts of either kind, which the tests of one file share."""
    with Place(tmp_path_factory.mktemp("hostile"), acl=request.param) as found:
        yield found


@pytest.fixture(scope="module", name="users")
def open_users(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A server with users and policies."""
    with Place(tmp_path_factory.mktemp("users"), acl="2.0") as found:
        yield found
