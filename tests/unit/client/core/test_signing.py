from __future__ import annotations

from escrowmq.client.core.credentials import Credentials
from escrowmq.client.core.signing import Signer
from escrowmq.codec.signature import sign_fields

FIELDS = {"topic": "T"}


def test_without_an_account_requests_stay_as_they_are() -> None:
    assert Signer(None).add_common_fields(FIELDS, b"x") is FIELDS


def test_common_fields_are_added_and_signed_too() -> None:
    assert Signer(None, also={"bname": "b"}).add_common_fields(FIELDS, b"x") == {
        "topic": "T",
        "bname": "b",
    }
    signed = dict(
        Signer(Credentials("a", "s"), also={"bname": "b"}).add_common_fields(FIELDS, b"x")
    )
    signature = signed.pop("Signature")
    assert signed == {"topic": "T", "bname": "b", "AccessKey": "a"}
    assert signature == sign_fields(signed, b"x", secret="s")


def test_a_token_goes_with_the_request_if_there_is_one() -> None:
    who = Credentials("a", "s", security_token="t")
    signed = dict(Signer(who).add_common_fields(FIELDS, b"x"))
    signature = signed.pop("Signature")
    assert signed == {"topic": "T", "AccessKey": "a", "SecurityToken": "t"}
    assert signature == sign_fields(signed, b"x", secret="s")
