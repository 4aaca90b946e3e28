from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.base.command import Command
from escrowmq.client.core.end_request import (
    Half,
    check_answer_fields,
    end_fields,
    judge_end,
    parse_transaction_id,
    transaction_id_of,
)
from escrowmq.client.core.sending import (
    Outcome,
)
from escrowmq.errors import (
    BrokerBusy,
    OutcomeContradicted,
    UsageError,
)

halves = st.builds(
    Half,
    broker_name=st.text(),
    topic=st.text(),
    group=st.text(),
    unique_key=st.text(),
    log_offset=st.integers(0, 2**63 - 1),
    queue_offset=st.integers(0, 2**63 - 1),
    signed_id=st.just(""),
)


@given(halves)
def test_an_id_of_our_own_says_all_that_an_end_needs(half: Half) -> None:
    if len(transaction_id_of(half)) < 2048:
        assert parse_transaction_id(transaction_id_of(half)) == half
        assert "escrowId" not in end_fields(half, Outcome.COMMIT)


@given(st.text() | st.binary())
def test_whatever_is_no_id_is_refused(token: object) -> None:
    try:
        found = parse_transaction_id(token)
    except UsageError:
        return
    assert found.signed_id == token


def test_ends_are_judged_by_what_was_asked_for() -> None:
    for code in (200, 201, 202):
        error = judge_end(Command(code=code), Outcome.COMMIT, address="h:1")
        assert isinstance(error, OutcomeContradicted)
    assert judge_end(Command(code=0), Outcome.COMMIT, address="h:1") is None
    assert isinstance(judge_end(Command(code=2), Outcome.COMMIT, address="h:1"), BrokerBusy)


def half_of(topic: str, **fields: str) -> Half:
    given = {"broker_name": "b", "group": "G", "unique_key": "K", **fields}
    return Half(topic=topic, log_offset=1, queue_offset=2, **given)


def test_an_id_has_a_bounded_size_and_none_but_its_own_letters() -> None:
    sizes = []
    for length in range(1_300, 1_500):
        half = half_of("t" * length)
        token = transaction_id_of(half)
        try:
            assert parse_transaction_id(token) == half
            sizes.append(len(token))
        except UsageError:
            assert len(token) > 2_047
    assert max(sizes) == 2_047
    token = transaction_id_of(half_of("T"))
    for odd in (token[:9] + "!" + token[9:], token + "\n", token + "="):
        with pytest.raises(UsageError, match="no transaction id"):
            parse_transaction_id(odd)


@pytest.mark.parametrize(
    ("unique_key", "count", "has_id"), [("K", 0, False), ("K", 2, True), ("", 0, True)]
)
def test_an_end_is_signed_where_the_place_of_one_half_does_not_say_it_all(
    unique_key: str, count: int, *, has_id: bool
) -> None:
    half = half_of("T", unique_key=unique_key, signed_id="signed")
    fields = end_fields(half, Outcome.COMMIT, count=count)
    assert ("escrowId" in fields, fields.get("escrowId", "signed")) == (has_id, "signed")


def test_the_answer_to_a_check_says_again_what_the_check_named() -> None:
    check = {"msgId": "K", "commitLogOffset": "7", "tranStateTableOffset": "8"}
    fields = check_answer_fields(check, Outcome.COMMIT, group="G")
    assert not {"topic", "bname"} & fields.keys()
    named = check_answer_fields(check | {"topic": "T", "bname": "b"}, Outcome.COMMIT, group="G")
    assert named == fields | {"topic": "T", "bname": "b"}
