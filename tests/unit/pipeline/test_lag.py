"""The lag, out of progress reports."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from escrowmq.client.core.routes import MessageQueue
from escrowmq.errors import UsageError
from escrowmq.pipeline.lag import lag, lag_by_queue


def place(**queues: int) -> str:
    return json.dumps(
        {"v": 1, "q": {"t": {"b": {n.removeprefix("q"): o for n, o in queues.items()}}}}
    )


def report(*sources: tuple[str | None, str | None]) -> dict[str, Any]:
    return {"sources": [{"endOffset": end, "latestOffset": latest} for end, latest in sources]}


def test_all_queues_of_all_topics_count() -> None:
    found = report((place(q0=3, q1=5), place(q0=10, q1=5, q2=2)), ('"7"', '"9"'))
    assert lag(found) == 9
    assert lag_by_queue(found)[MessageQueue("t", "b", 0)] == 7
    assert lag(report((place(q0=3), place(q0=10)), (place(q0=3), place(q0=4)))) == 8


def test_a_report_of_pyspark_is_an_object() -> None:
    source = SimpleNamespace(endOffset=place(q0=3), latestOffset=place(q0=4))
    assert lag(SimpleNamespace(sources=[source])) == 1


def test_a_queue_that_was_emptied_has_no_lag() -> None:
    assert lag(report((place(q0=8), place(q0=3)))) == 0


@pytest.mark.parametrize(
    ("found", "text"),
    [
        (report((place(q0=3), None)), "PySpark 4.2 and later"),
        (report(('{"other": 1}', None), (None, None)), "no source of EscrowMQ"),
        (report(), "no source of EscrowMQ"),
    ],
)
def test_what_tells_no_lag(found: dict[str, Any], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        lag(found)
