from __future__ import annotations

import inspect

import pytest

from escrowmq.client.delivery import HeldMessage
from escrowmq.errors import UsageError
from escrowmq.integrations.outbox import handled_once
from escrowmq.integrations.outbox.tables import TEXT_SIZE_MAX, SqlFamily

from .scripted import LITE

POSTGRES = SqlFamily.POSTGRESQL


def test_what_the_table_can_hold_is_kept_as_it_is() -> None:
    for text in ("0A" * 16, "order 1/é"[:8], "x" * TEXT_SIZE_MAX):
        assert handled_once.storable_identity(LITE, text) == text
    for text in ("é", "x" * (TEXT_SIZE_MAX + 1), "a\nb", "\ud800"):
        assert handled_once.storable_identity(LITE, text).startswith("sha256:")
    assert handled_once.storable_identity(LITE, "é") != handled_once.storable_identity(LITE, "è")


def test_a_blank_at_the_end_is_hashed_where_the_database_does_not_compare_it() -> None:
    for family in (LITE, POSTGRES):
        assert handled_once.storable_identity(family, "a ") == "a "
    assert handled_once.storable_identity(SqlFamily.MYSQL, "a ").startswith("sha256:")
    assert handled_once.storable_identity(SqlFamily.MYSQL, " a") == " a"


def test_a_message_is_known_by_its_id_or_by_what_the_user_says() -> None:
    message = HeldMessage("T", b"x", message_id="m-1", keys=["o-1"])
    assert handled_once.record_handled(
        LITE, message, handled_once.RecordOptions(group="g")
    ).values == (
        "g",
        "m-1",
    )
    by_key = handled_once.record_handled(
        LITE, message, handled_once.RecordOptions(lambda each: each.key_list[0], "g")
    )
    assert by_key.values == ("g", "o-1")


@pytest.mark.parametrize("found", ["", None, 7])
def test_a_key_that_is_none_is_refused(found: object) -> None:
    message = HeldMessage("T", b"x", message_id="m-1")
    options = handled_once.RecordOptions(lambda each: found, "g")  # type: ignore[arg-type, return-value]
    with pytest.raises(UsageError, match="the same on every delivery"):
        handled_once.record_handled(LITE, message, options)


def test_a_handler_has_the_name_of_the_work_and_a_signature_of_its_own() -> None:
    def work(message: object, session: object) -> None:
        """Send the letter."""

    found = handled_once.with_name_of(lambda message: None, work)
    assert (found.__name__, found.__doc__) == ("work", "Send the letter.")
    assert list(inspect.signature(found).parameters) == ["message"]


def test_the_table_may_have_a_schema() -> None:
    message = HeldMessage("T", b"x", message_id="m-1")
    how = handled_once.RecordOptions(group="g", schema="sales")
    assert (
        'into "sales".escrowmq_handled' in handled_once.record_handled(POSTGRES, message, how).text
    )
