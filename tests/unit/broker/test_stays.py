"""How far a reader of one request has to go (tests/unit/broker/stays), pinned: a step that enters
more files than before has to say here why."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest

from escrowmq.lane.native import requests_lane
from tests.unit.broker.stays import Walk, walk_for

MOST: Final = {
    ("send", False): (50, 14),
    ("half", False): (83, 32),
    ("END", False): (75, 32),
    ("END that rolls back", False): (64, 25),
    ("pull", False): (28, 6),
    ("send", True): (26, 10),
    ("half", True): (33, 10),
    ("END", True): (53, 21),
    ("END that rolls back", True): (50, 18),
    ("pull", True): (18, 2),
}
"""Stays and returns by request, and whether it takes the fast path."""

PAGE: Final = Path(__file__).parents[3] / "ARCHITECTURE.md"
NAMES: Final = {"END that commits": "END", "pull that finds messages": "pull"}
"""Requests that the page calls by another name."""

ROW: Final = re.compile(r"\| ([\w ]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|")


@pytest.mark.parametrize(("request_kind", "is_short"), MOST)
def test_a_request_leads_its_reader_no_further_than_it_did(
    request_kind: str, *, is_short: bool
) -> None:
    if requests_lane is None:
        pytest.skip("without the native lane a pull is served otherwise, and nothing is fast")
    walk = walk_for(request_kind, is_short=is_short)
    most_stays, most_returns = MOST[request_kind, is_short]
    assert len(walk.stays) <= most_stays, walk.stays
    assert walk.returns_count <= most_returns, walk.stays


def test_stays_are_runs_of_calls_in_one_file() -> None:
    walk = Walk([("a", "f"), ("a", "g"), ("b", "h"), ("a", "g")])
    assert walk.stays == ["a", "b", "a"]
    assert walk.files == {"a", "b"}
    assert walk.returns_count == 1


def test_architecture_names_these_figures() -> None:
    shown: dict[tuple[str, bool], tuple[int, int]] = {}
    for request, *texts in ROW.findall(PAGE.read_text()):
        general, returns, fast, fast_returns = map(int, texts)
        name = NAMES.get(request, request)
        shown |= {(name, False): (general, returns), (name, True): (fast, fast_returns)}
    assert shown == MOST
