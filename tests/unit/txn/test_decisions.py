"""Which decisions about batches are remembered when there are too many."""

from __future__ import annotations

import uuid

import pytest

from escrowmq.txn import decisions
from escrowmq.txn.decisions import Decisions, LastDecision, StreamQuery

SOME = LastDecision(1, {"a": 2})
NOTHING = LastDecision(1, {})


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decisions, "EPOCH_QUERIES_MAX", 3)
    monkeypatch.setattr(decisions, "EPOCH_UNNAMED_MAX", 2)
    monkeypatch.setattr(decisions, "EPOCH_TOKENS_KEPT_MAX", 8)
    monkeypatch.setattr(decisions, "EPOCH_QUERIES_TOTAL_MAX", 8)


def nothing_pending() -> Decisions:
    return Decisions(lambda query: False)


def known(table: Decisions, group: str = "PG") -> list[str]:
    return [query.name for query, _ in table.items() if query.group == group]


def test_a_group_forgets_the_query_decided_longest_ago() -> None:
    table = nothing_pending()
    for name in ("a", "b", "a", "c", "d"):
        table.record(StreamQuery("PG", name), SOME)
    assert known(table) == ["a", "c", "d"]
    assert table.get(StreamQuery("PG", "b")) is None
    assert table.get(StreamQuery("PG", "d")) == SOME
    assert len(table) == 3


def test_no_group_makes_another_ones_decisions_forgotten() -> None:
    table = nothing_pending()
    table.record(StreamQuery("orders", "nightly"), SOME)
    for number in range(100):
        table.record(StreamQuery("other", f"q{number}"), SOME)
    for number in range(100):
        table.record(StreamQuery(f"other-{number % 4}", f"q{number}"), SOME)
    assert known(table, "orders") == ["nightly"]
    assert len(table) == 8


def test_decisions_for_nothing_and_writes_without_a_name_displace_no_others() -> None:
    table = nothing_pending()
    table.record(StreamQuery("PG", "nightly"), SOME)
    for number in range(10):
        table.record(StreamQuery("PG", uuid.uuid4().hex), SOME)
        table.record(StreamQuery("PG", f"q{number}"), NOTHING)
    assert known(table)[-1] == "nightly"
    assert len(table) == 3
    assert table.get(StreamQuery("PG", "q9")) == NOTHING


def test_a_named_decision_displaces_no_transient_one_nor_the_other_way_round() -> None:
    table = nothing_pending()
    for name in ("a", "b"):
        table.record(StreamQuery("PG", name), NOTHING)
    for name in ("c", "d", "e"):
        table.record(StreamQuery("PG", name), SOME)
    table.record(StreamQuery("PG", "f"), SOME)
    assert set(known(table)) == {"a", "b", "d", "e", "f"}
    table.record(StreamQuery("PG", "g"), NOTHING)
    assert set(known(table)) == {"b", "g", "d", "e", "f"}


def test_tokens_are_bounded_and_the_newest_decision_is_kept_all_the_same() -> None:
    table = nothing_pending()
    table.record(StreamQuery("PG", "q"), NOTHING)
    for name in ("a", "b", "c"):
        table.record(StreamQuery("PG", name), LastDecision(1, dict.fromkeys("1234", 1)))
    assert known(table) == ["b", "c"]
    table.record(StreamQuery("PG", "d"), LastDecision(1, dict.fromkeys("123456789", 1)))
    assert known(table) == ["d"]


def test_a_decision_of_which_halves_are_pending_is_not_forgotten() -> None:
    table = Decisions(lambda query: query.name == "slow")
    table.record(StreamQuery("PG", "slow"), SOME)
    for number in range(10):
        table.record(StreamQuery("PG", f"q{number}"), SOME)
    assert known(table) == ["slow", "q8", "q9"]


def test_recording_all_again_gives_the_same() -> None:
    table, again = nothing_pending(), nothing_pending()
    for name in ("a", "b", "e", "a", "c"):
        table.record(StreamQuery("PG", name), NOTHING if name == "e" else SOME)
    for query, decision in table.items():
        again.record(query, decision)
    assert list(again.items()) == list(table.items())


def test_a_group_whose_last_decision_was_forgotten_takes_no_room() -> None:
    table = nothing_pending()
    for number in range(100):
        table.record(StreamQuery(f"PG{number}", "q"), SOME)
    assert len(table) == len(table._groups) == 8
