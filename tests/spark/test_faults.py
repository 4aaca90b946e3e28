"""The exactly-once sink keeps its promise whatever is killed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.interop.servers import Server

from .faults import Run, differences
from .topics import send_numbers


@pytest.mark.parametrize(
    ("master", "kinds", "kills"),
    [
        ("local[2,4]", ("worker", "driver"), 2),
        pytest.param(
            "local-cluster[2,1,1024]", ("driver", "worker", "executor"), 20, marks=pytest.mark.long
        ),
    ],
)
def test_every_row_is_visible_once(
    server: Server, tmp_path: Path, master: str, kinds: tuple[str, ...], kills: int
) -> None:
    run = Run(server, tmp_path, master=master, per_batch=50)
    send_numbers(server, run.source, range(300 * kills))
    run.drive(kills=kills, chance=random.Random(20 + kills), kinds=kinds)
    assert differences(run) == []
    assert run.kills.total() == kills
