from __future__ import annotations

import base64
import hashlib
import hmac
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.own_signature import is_request_signed, sign_request

SECRET, SESSION = "12345678", "0" * 32
SIGNED: dict[str, Any] = {
    "code": 202, "fields": {"a": "PG_", "b": "TA"}, "body": b"body", "secret": SECRET,
    "session": SESSION,
}  # fmt: skip


def signature_of(**changed: Any) -> str:
    given_ = {**SIGNED, **changed}
    code, fields, body = (given_.pop(name) for name in ("code", "fields", "body"))
    return sign_request(code, fields, body, **given_)


def test_what_is_signed_is_written_in_one_way() -> None:
    content = (
        b"escrowmq-1" + SESSION.encode() + b"\0\0\0\xca\0\0\0\2"
        b"\0\0\0\1a\0\0\0\3PG_\0\0\0\1b\0\0\0\2TAbody"
    )
    expected = base64.b64encode(hmac.digest(SECRET.encode(), content, hashlib.sha256)).decode()
    assert signature_of() == expected
    assert signature_of(fields={"Signature": "x", "b": "TA", "a": "PG_"}) == expected


@pytest.mark.parametrize(
    "changed",
    [
        {"code": 215},
        {"fields": {"a": "P", "b": "G_TA"}},
        {"fields": {"a": "PG_", "c": "TA"}},
        {"fields": {"a": "PG_"}},
        {"fields": {"a": "PG_", "b": "TAb"}, "body": b"ody"},
        {"fields": {"a": "PG_", "b": "TA", "": ""}},
        {"body": b""},
        {"secret": "123456789"},
        {"session": "1" * 32},
    ],
)
def test_nothing_else_has_the_same_signature(changed: dict[str, Any]) -> None:
    assert signature_of(**changed) != signature_of()


@given(st.dictionaries(st.text(), st.text()), st.binary(), st.integers(-5, 1 << 33))
def test_whatever_fields_somebody_writes_are_judged(
    fields: dict[str, str], body: bytes, code: int
) -> None:
    assert not is_request_signed(code, fields, body, secret=SECRET, session=SESSION)


def test_half_a_surrogate_pair_is_signed_by_nobody() -> None:
    assert not is_request_signed(1, {"a": "\ud800"}, b"", secret=SECRET, session=SESSION)
