"""Authentication by ACL 2.0: by the user's password, unless the request is already proved
(account_proofs.py)."""

from __future__ import annotations

from escrowmq.acl.acl1_guard import is_signed
from escrowmq.acl.acl2_users import User, UserStatus, UserTable
from escrowmq.base.command import Command
from escrowmq.codec.signature import ACCESS_KEY


def authenticate(
    book: UserTable, request: Command, *, is_proved: bool = False
) -> tuple[User | None, str]:
    """Authenticate the user of a request. Return the user and an empty text, or None and the reason
    for the refusal."""
    name = (request.ext or {}).get(ACCESS_KEY)
    if not name:
        return None, "username cannot be null."
    user = book.users.get(name)
    if user is None:
        return None, f"User:{name} is not found."
    if user.status is UserStatus.DISABLE:
        return None, f"User:{name} is disabled."
    if not (is_proved or is_signed(request, user.password, user.former)):
        return None, "check signature failed."
    return user, ""
