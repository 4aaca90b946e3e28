from __future__ import annotations

import json
from typing import Annotated

import msgspec
import pytest

from escrowmq.codec.changed_settings import ChangedSettings
from escrowmq.errors import UsageError


class Table(msgspec.Struct, kw_only=True):
    count: Annotated[int, msgspec.Meta(ge=1)] = msgspec.field(default=5, name="itsCount")
    is_on: bool = msgspec.field(default=True, name="itIsOn")
    name: str = msgspec.field(default="a", name="itsName")


class Other(msgspec.Struct, kw_only=True):
    size: int = msgspec.field(default=7, name="itsSize")


def changed(changes: ChangedSettings, **texts: str) -> bytes:
    """Change settings as a request does; the file that was saved before."""
    parsed = changes.parse_values(texts)
    data = changes.encode_with(parsed)
    changes.apply_values(parsed)
    return data


def loaded(data: bytes | None, table: Table) -> ChangedSettings:
    changes = ChangedSettings(table, fixed=frozenset({"itsName"}))
    changes.load(data, source="file")
    return changes


def test_settings_of_all_tables_are_shown_in_javas_spelling() -> None:
    changes = ChangedSettings(Table(), Other())
    assert changes.current_texts() == {
        "itsCount": "5",
        "itIsOn": "true",
        "itsName": "a",
        "itsSize": "7",
    }


def test_only_known_settings_that_are_not_fixed_may_change() -> None:
    changes = loaded(None, Table())
    names = ("itsCount", "itIsOn", "itsName", "unknown")
    assert [changes.may_change(name) for name in names] == [True, True, False, False]


def test_values_are_typed_and_blanks_around_them_do_not_count() -> None:
    table, other = Table(), Other()
    changed(ChangedSettings(table, other), itsCount=" 9 ", itIsOn="FALSE", itsSize="1")
    assert (table.count, table.is_on, other.size) == (9, False, 1)


@pytest.mark.parametrize(("name", "text"), [("itsCount", "0"), ("itIsOn", "maybe")])
def test_value_that_cannot_be_is_named(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=f"{name}={text}: "):
        ChangedSettings(Table()).parse_values({name: text})


def test_changes_of_several_requests_are_made_again() -> None:
    table = Table()
    changes = ChangedSettings(table)
    changed(changes, itsCount="9")
    changed(changes, itIsOn="false")
    data = changed(changes, itsCount="10")
    assert json.loads(data) == {
        "itIsOn": {"insteadOf": "true", "value": "false"},
        "itsCount": {"insteadOf": "5", "value": "10"},
    }
    again = Table()
    later = loaded(data, again)
    assert again == table
    assert changed(later, itsCount="5") == b'{"itIsOn":{"insteadOf":"true","value":"false"}}'


def test_nothing_is_kept_of_a_value_that_is_what_it_was() -> None:
    assert changed(ChangedSettings(Table()), itsCount="5") == b"{}"


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"{broken", "cannot be read"),
        (b'{"itsCount":3}', "cannot be read"),
        (b'{"itsCount":{"insteadOf":"6","value":"9"}}', "edited since"),
        (b'{"itsName":{"insteadOf":"a","value":"b"}}', "not used"),
        (b'{"unknown":{"insteadOf":"a","value":"b"}}', "not used"),
        (b'{"itsCount":{"insteadOf":"5","value":"0"}}', "itsCount=0: "),
    ],
)
def test_what_cannot_be_made_again_is_told_and_passed_over(
    data: bytes, why: str, caplog: pytest.LogCaptureFixture
) -> None:
    table = Table()
    changes = loaded(data, table)
    assert table == Table()
    assert why in caplog.text
    assert changed(changes, itIsOn="false") == b'{"itIsOn":{"insteadOf":"true","value":"false"}}'


@pytest.mark.parametrize("data", [None, b""])
def test_absent_file_is_no_change(data: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    table = Table()
    loaded(data, table)
    assert (table, caplog.text) == (Table(), "")
