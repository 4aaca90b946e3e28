"""Whose a request is, by the password that signed it."""

from __future__ import annotations

from escrowmq.acl.acl2_authentication import authenticate
from escrowmq.acl.acl2_users import UserTable
from escrowmq.base.command import Command
from escrowmq.codec.acl2_bodies import UserInfo
from escrowmq.codec.signature import sign_fields
from escrowmq.testing.disk import SimDisk

SECRET = "a-long-secret"


def signed(name: str, secret: str = SECRET) -> Command:
    ext = {"topic": "orders", "AccessKey": name}
    ext["Signature"] = sign_fields(ext, b"", secret=secret)
    return Command(code=30, opaque=1, ext=ext, version=479)


def book() -> UserTable:
    found = UserTable(SimDisk())
    found.create_user(UserInfo("orders", SECRET))
    found.create_user(UserInfo("gone", SECRET, user_status="disable"))
    return found


def test_a_user_is_who_signs_with_his_password() -> None:
    user, reason = authenticate(book(), signed("orders"))
    assert user is not None
    assert (user.name, reason) == ("orders", "")
    assert authenticate(book(), signed("orders", "another")) == (None, "check signature failed.")
    assert authenticate(book(), signed("gone")) == (None, "User:gone is disabled.")
    assert authenticate(book(), signed("nobody")) == (None, "User:nobody is not found.")
    assert authenticate(book(), Command(code=30, opaque=1)) == (None, "username cannot be null.")


def test_who_is_proved_otherwise_needs_no_signature() -> None:
    user, _ = authenticate(book(), signed("orders", "another"), is_proved=True)
    assert user is not None
    assert authenticate(book(), signed("gone"), is_proved=True)[0] is None


def test_both_passwords_of_a_user_sign() -> None:
    found = book()
    found.update_user(UserInfo("orders", "another-secret", keeps_former=True))
    for secret in (SECRET, "another-secret"):
        assert authenticate(found, signed("orders", secret))[0] is not None
    found.update_user(UserInfo("orders", keeps_former=False))
    assert authenticate(found, signed("orders"))[0] is None
