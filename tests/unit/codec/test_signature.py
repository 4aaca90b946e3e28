from __future__ import annotations

import base64
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from escrowmq.codec.signature import SigningKey, sign_fields

SECRET = "12345678"


@pytest.mark.parametrize(
    ("fields", "body", "signature"),
    [  # computed by RocketMQ, 5.3.2
        ({"AccessKey": "rocketmq2"}, b"", "Ou1T58RIcyZWaTIwzkhJZWn/Zvs="),
        ({"topic": "TopicA", "AccessKey": "rocketmq2"}, b"", "yvZvKMqXR7E4uBCgkiiGE2OZ9Zg="),
        (
            {"AccessKey": "RocketMQ", "queueId": "0", "topic": "topicB"},
            b"",
            "80p4sQPjflbpgzzqueyBAdy0mGQ=",
        ),
        (
            {"b": "topicB", "SecurityToken": "tok", "a": "PG", "AccessKey": "RocketMQ"},
            b"hi",
            "Lyg8r2cf6xSnV+GRda0WdiyI0XA=",
        ),
    ],
)
def test_signatures_are_the_peers(fields: dict[str, str], body: bytes, signature: str) -> None:
    assert sign_fields(fields, body, secret=SECRET) == signature
    assert sign_fields({**fields, "Signature": "old"}, body, secret=SECRET) == signature


@given(st.dictionaries(st.text(), st.text()), st.binary())
def test_the_order_of_the_fields_does_not_matter(fields: dict[str, str], body: bytes) -> None:
    turned = dict(reversed(fields.items()))
    assert sign_fields(fields, body, secret=SECRET) == sign_fields(turned, body, secret=SECRET)


def test_names_are_sorted_by_utf_16_units_as_java_does() -> None:
    astral, high = "\U0001f600", "\uffff"  # Java sorts the first one first, by its surrogates
    mixed = sign_fields({high: "2", astral: "1"}, b"", secret=SECRET)
    assert mixed == sign_fields({"a": "1", "b": "2"}, b"", secret=SECRET)


@pytest.mark.parametrize("size", [65_535, 65_536, 1_000_000])
def test_a_large_body_is_signed_as_a_small_one_is(size: int) -> None:
    body = bytes(range(256)) * (size // 256) + bytes(size % 256)
    expected = base64.b64encode(hmac.digest(SECRET.encode(), b"v" + body, "sha1")).decode()
    assert sign_fields({"name": "v"}, body, secret=SECRET) == expected


@given(st.binary(max_size=200), st.lists(st.binary(max_size=200), max_size=3))
def test_key_signs_as_the_library_does(secret: bytes, parts: list[bytes]) -> None:
    expected = base64.b64encode(hmac.digest(secret, b"".join(parts), "sha1"))
    key = SigningKey(secret)
    assert key.sign_parts(*parts) == expected
    assert key.has_signed(expected, *parts)
    assert not key.has_signed(expected[:-2], *parts)
