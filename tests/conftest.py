"""Options of the suites that can judge EscrowMQ's servers and the peer's alike."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --peer."""
    parser.addoption("--peer", choices=("escrow", "java"), default="escrow", help="who is judged")


@pytest.fixture(scope="session")
def peer(request: pytest.FixtureRequest) -> str:
    """Who is judged: "escrow" or "java"."""
    return str(request.config.getoption("--peer"))
