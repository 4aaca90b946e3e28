"""Verifies a name and password of one of the console's own users, or of an account of the
brokers."""

from __future__ import annotations

import asyncio
import hashlib
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from escrowmq.aio import Admin, Credentials
from escrowmq.console.account_clients import AccountClients
from escrowmq.console.audit import write_audit_line
from escrowmq.console.login_attempts import LoginAttempts
from escrowmq.console.options import ConsoleOptions
from escrowmq.console.problems import Problem, to_problem
from escrowmq.console.sessions import SessionUser, are_equal_secrets
from escrowmq.errors import EscrowMQError, NotSupported, PermissionDenied, RouteMissing

_PROVED_S: Final = 60.0
"""The seconds for which a name and password that a program sends with each call are trusted without
asking the brokers again."""

_PROVED_MAX: Final = 1_000
_NAME_MAX: Final = 256
_NOT_ACCEPTED_WORDS: Final = (
    "signature", "no acl config for", "no accesskey", "is not found", "is disabled",
    "username cannot be null", "authentication failed",
)  # fmt: skip
"""Words in a refusal by which a broker says that it did not accept the account itself, rather than
that a right is missing. RocketMQ's come first, then ours."""

_WRONG: Final = "the name or the password is wrong"


class PasswordChecks:
    """Verifies names and passwords of users who log in."""

    def __init__(
        self, options: ConsoleOptions, account_clients: AccountClients, now_s: Callable[[], float]
    ) -> None:
        self._options = options
        self._account_clients = account_clients
        self._now_s = now_s
        self._attempts = LoginAttempts(now_s)
        self._proved: OrderedDict[bytes, tuple[float, SessionUser]] = OrderedDict()
        self._proving: dict[tuple[bytes, str], asyncio.Task[SessionUser]] = {}
        """The attempts in progress; their number is limited."""

    async def check_password(self, name: str, password: str, address: str) -> SessionUser:
        """Verify a name and password, and return their user. Raises Problem if they are wrong, or
        after too many failed attempts."""
        self._attempts.begin_attempt(address)
        try:
            who = await self._find_user(name, password)
        except BaseException:
            self._attempts.withdraw_attempt(address)
            raise
        if who is None:
            self._attempts.attempt_failed(address)
            write_audit_line("login_failed", name=name, peer=address)  # as often as that may happen
            raise Problem(401, "wrong_login", _WRONG, "see docs/console.md for who may log in")
        self._attempts.attempt_succeeded(address)
        return who

    async def check_password_cached(self, name: str, password: str, address: str) -> SessionUser:
        """Verify the name and password that a program sends with each request, and return their
        user. Recent results are cached."""
        key = hashlib.sha256(f"{len(name)}:{name}{password}".encode()).digest()
        at_s, who = self._proved.get(key, (0.0, None))
        if who is not None and self._now_s() - at_s < _PROVED_S:
            return who
        # Concurrent calls of one program count as one attempt; otherwise there would soon be too
        # many.
        proving = self._proving.get((key, address))
        if proving is None:
            proving = asyncio.ensure_future(self.check_password(name, password, address))
            self._proving[key, address] = proving
            proving.add_done_callback(lambda done: self._cache_result(key, address, done))
        return await asyncio.shield(proving)

    def _cache_result(self, key: bytes, address: str, proving: asyncio.Task[SessionUser]) -> None:
        del self._proving[key, address]
        if proving.cancelled() or proving.exception() is not None:
            return
        self._proved[key] = (self._now_s(), proving.result())
        while len(self._proved) > _PROVED_MAX:
            self._proved.popitem(last=False)

    async def _find_user(self, name: str, password: str) -> SessionUser | None:
        if not name or not password or max(len(name), len(password)) > _NAME_MAX * 4:
            return None
        if self._options.login == "accounts":
            return await self._find_account(name, password)
        found: SessionUser | None = None
        for user in self._options.users:  # all of them: how long it takes tells no name
            is_right = are_equal_secrets(password, user.password)
            if are_equal_secrets(name, user.name) and is_right:
                found = SessionUser(name=user.name, may_change=user.may_change)
        return found

    async def _find_account(self, name: str, password: str) -> SessionUser | None:
        """Return the user for an account of the brokers; None if they do not accept it."""
        try:
            # Brokers do not verify secrets of addresses that they trust. If this address is
            # trusted, a login proves nothing.
            if await self._is_accepted_by_brokers(Credentials(name, secrets.token_urlsafe())):
                raise Problem(
                    503, "nothing_proved", "the brokers trust this console's address and check "
                        "no secrets: a login would prove nothing", "take it out of "
                    "globalWhiteRemoteAddresses and whiteRemoteAddress (docs/security.md)",
                )  # fmt: skip
            credentials = Credentials(name, password)
            if not await self._is_accepted_by_brokers(credentials):
                return None
            async with self._account_clients.make_admin(credentials) as admin:
                may_change = await _may_make_changes(admin, name)
        except EscrowMQError as error:
            raise to_problem(error) from error
        return SessionUser(name=name, may_change=may_change, credentials=credentials)

    async def _is_accepted_by_brokers(self, credentials: Credentials) -> bool:
        """Whether the brokers accept an account's signature, whatever rights it has."""
        async with self._account_clients.make_admin(credentials) as admin:
            brokers = sorted({one.name for one in await admin.brokers.all() if one.id == 0})
            for broker in brokers:
                try:
                    await admin.brokers.runtime(broker)
                except PermissionDenied as error:
                    if any(mark in error.remark.lower() for mark in _NOT_ACCEPTED_WORDS):
                        return False
            if not brokers:
                raise RouteMissing("no broker can be reached to verify this account")
        return True


async def _may_make_changes(admin: Admin, name: str) -> bool:
    """Whether the brokers allow an account to make changes."""
    clusters = {one.cluster for one in await admin.brokers.all()}
    try:
        for cluster in clusters:
            answers = await admin.access.explain(name, "Update", f"Cluster:{cluster}")
            if not all(answer.is_allowed for answer in answers):
                return False
    except (PermissionDenied, NotSupported):
        return False
    return True
