from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from escrowmq.client.core.message import Message
from escrowmq.errors import ConnectFailed, NoNameServer, PermissionDenied
from escrowmq.integrations.outbox import kept, kept_pass, schema
from escrowmq.integrations.outbox.kept_pass import FAILING_MAX_S, KeptPass
from escrowmq.integrations.outbox.steps import StepFailed, run_steps
from escrowmq.integrations.outbox.tables import SqlFamily, Statement

LITE = SqlFamily.SQLITE


class Shop:
    """A database, and brokers that refuse some topics."""

    def __init__(self, file: Path) -> None:
        self.connection = sqlite3.connect(file)
        for statement in schema.create_statements(LITE):
            self.connection.execute(statement.text)
        self.refused: dict[str, Exception] = {}
        self.tries: list[str] = []
        """Bodies of each transaction, in its order."""
        self.delivered: list[str] = []

    def keep(self, bundle: str, *bodies: str) -> None:
        """Messages whose topic is the first letter of the body."""
        messages = [Message(body[0], body.encode()) for body in bodies]
        for statement in kept.insert_rows(LITE, messages, bundle=bundle, now_ms=0):
            self.execute(statement)

    def execute(self, statement: Statement) -> list[tuple[object, ...]]:
        return [tuple(row) for row in self.connection.execute(statement.text, statement.values)]

    def go(self, *, took_s: float = 0.0) -> KeptPass:
        """One pass."""
        walk = KeptPass(LITE)
        for _ in range(1_000):
            if walk.is_over:
                return walk
            chosen = walk.choose_rows(kept.parse_rows(self.execute(walk.next_query())))
            if chosen:
                self._hand_over(walk, chosen, took_s)
        raise AssertionError("the pass does not end")

    def _hand_over(self, walk: KeptPass, chosen: list[kept.KeptRow], took_s: float) -> None:
        read = kept.read_messages(chosen)
        bodies = [
            bytes(each.body).decode()
            for each in run_steps(read, lambda it: self.execute(it.statement))
        ]
        self.tries.append(" ".join(bodies))
        for row in chosen:
            if error := self.refused.get(row.topic):
                walk.record_failure(chosen, error, took_s=took_s)
                return
        for statement in kept.delete_rows([row.position for row in chosen]):
            self.execute(statement)
        self.delivered += bodies
        walk.record_sent(chosen)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Shop]:
    found = Shop(tmp_path / "shop.db")
    yield found
    found.connection.close()


def test_everything_goes_in_order_and_in_few_transactions(shop: Shop) -> None:
    shop.keep("A", "T1", "U2")
    shop.keep("B", "T3")
    walk = shop.go()
    assert shop.tries == ["T1 U2 T3"]
    assert (walk.count, walk.error) == (3, None)
    assert shop.go().count == 0


def test_a_topic_that_fails_holds_up_itself_alone(shop: Shop) -> None:
    for bundle, bodies in {"A": "T1", "B": "U2", "C": "T3", "D": "V4"}.items():
        shop.keep(bundle, bodies)
    shop.refused["T"] = ConnectFailed("planted")
    walk = shop.go()
    assert shop.delivered == ["U2", "V4"]
    assert shop.tries[:2] == ["T1 U2 T3 V4", "T1"]
    assert (walk.count, walk.error) == (2, shop.refused["T"])
    assert (walk.has_failed, walk.refused_topics) == (True, frozenset())
    del shop.refused["T"]
    shop.go()
    assert shop.delivered == ["U2", "V4", "T1", "T3"]


def test_a_bundle_with_a_topic_that_fails_waits_whole(shop: Shop) -> None:
    shop.keep("A", "T1")
    shop.keep("B", "V2")
    shop.keep("C", "T3", "V4")
    shop.refused["T"] = PermissionDenied("planted")
    shop.go()
    assert shop.delivered == ["V2"]
    del shop.refused["T"]
    shop.go()
    assert shop.delivered == ["V2", "T1", "T3", "V4"]


def test_none_overtakes_another_of_its_topic_that_waits_with_its_bundle(shop: Shop) -> None:
    shop.keep("A", "T1")
    shop.keep("B", "U2", "T3")
    shop.keep("C", "U4", "V5")
    shop.keep("D", "V6")
    shop.keep("E", "W7")
    shop.refused["T"] = PermissionDenied("planted")
    walk = shop.go()
    assert shop.delivered == ["W7"]
    assert (walk.has_failed, walk.refused_topics) == (False, frozenset({"T", "U", "V"}))
    (text,) = walk.refusals.values()
    assert "with the bundle 'A'), to T, are refused: planted" in text
    del shop.refused["T"]
    shop.go()
    assert shop.delivered == ["W7", "T1", "U2", "T3", "U4", "V5", "V6"]


def test_nor_one_of_which_a_page_has_only_a_part(shop: Shop) -> None:
    first = kept_pass.ROWS_READ_MAX - 1
    shop.keep("A", *(f"T{number}" for number in range(first)))
    shop.keep("B", "Ua", "Ub")
    shop.keep("C", "Uc")
    shop.go()
    assert shop.delivered[first:] == ["Ua", "Ub", "Uc"]


def test_a_bundle_larger_than_a_page_goes_whole(shop: Shop) -> None:
    many = [f"T{number}" for number in range(3 * kept_pass.ROWS_READ_MAX)]
    shop.keep("A", *many)
    shop.keep("B", "U")
    walk = shop.go()
    assert shop.delivered == [*many, "U"]
    assert shop.tries[0] == " ".join(many)
    assert walk.count == len(many) + 1


def test_one_that_fails_lets_those_behind_it_go(shop: Shop) -> None:
    shop.keep("A", *(f"T{number}" for number in range(kept_pass.ROWS_READ_MAX + 1)))
    shop.keep("B", "U")
    shop.refused["T"] = ConnectFailed("planted")
    shop.go()
    assert shop.delivered == ["U"]


def test_bundles_whose_rows_alternate_are_both_handed_over(shop: Shop) -> None:
    for number in range(kept_pass.ROWS_READ_MAX):
        for bundle in "AB":
            statement = kept.insert_rows(
                LITE, [Message("T", f"T{bundle}{number}".encode())], bundle=bundle, now_ms=0
            )[0]
            shop.execute(statement)
    shop.execute(Statement(f"update escrowmq_kept set together = {kept_pass.ROWS_READ_MAX}"))
    assert shop.go().count == 2 * kept_pass.ROWS_READ_MAX
    assert len(shop.delivered) == 2 * kept_pass.ROWS_READ_MAX


@pytest.mark.parametrize("error", [NoNameServer("planted"), StepFailed("planted")])
def test_where_nothing_can_be_reached_one_try_is_enough(shop: Shop, error: Exception) -> None:
    for bundle in "ABC":
        shop.keep(bundle, bundle)
        shop.refused[bundle] = error
    assert shop.go().error is error
    assert len(shop.tries) == 1


def test_a_pass_does_not_wait_for_ever(shop: Shop) -> None:
    for bundle in "ABCDEFGHIJ":
        shop.keep(bundle, bundle)
        shop.refused[bundle] = ConnectFailed("planted")
    shop.go(took_s=FAILING_MAX_S / 2.5)
    assert len(shop.tries) == 3
    failing: Callable[[], KeptPass] = shop.go
    failing()
    assert len(shop.tries) == 3 + 11  # all together, then each
