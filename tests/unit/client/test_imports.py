"""What the SDK costs a program to import, without a clock: which modules are loaded, and when."""

from typing import Final

import pytest

from tests.harness.imports import loaded, outsiders

ROOMS: Final = {"base", "client", "codec", "errors", "filter", "net"}
"""Of ours, what clients need. Of `net` it is the clock alone."""

LIBRARIES: Final = {"msgspec", "typing_extensions"}
"""Others' code; msgspec loads the second where it is installed."""

SELDOM: Final = {"multiprocessing", "pathlib", "tempfile", "urllib", "zipfile"}
"""Of the standard library, what costs milliseconds and few programs need."""


def test_the_package_alone_is_next_to_nothing() -> None:
    found = loaded("import escrowmq")
    assert {name for name in found if name.startswith("escrowmq")} == {"escrowmq"}
    assert outsiders(found) == set()
    assert not found & {"asyncio", "logging", "ssl"}


@pytest.mark.parametrize(
    "statement",
    [
        "import escrowmq; escrowmq.Producer; escrowmq.Consumer; escrowmq.Admin",
        "import escrowmq.aio",
    ],
)
def test_clients_load_no_server_and_nothing_that_few_need(statement: str) -> None:
    found = loaded(statement)
    rooms = {name.split(".")[1] for name in found if name.startswith("escrowmq.")}
    assert rooms <= ROOMS | {"aio"}
    net = {name.split(".")[2] for name in found if name.startswith("escrowmq.net.")}
    assert net == {"clock", "dialling"}
    assert outsiders(found) <= LIBRARIES
    assert not found & SELDOM
    # Seven further modules cost a millisecond, compiled; ask whether they are needed at once.
    assert len([name for name in found if name.startswith("escrowmq")]) <= 138
