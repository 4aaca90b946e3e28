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
from escrowmq.console.audit import audit
from escrowmq.console.options import ConsoleOptions
from escrowmq.console.problems import Problem, problem_of
from escrowmq.console.sessions import Attempts, SessionUser, same
from escrowmq.errors import EscrowMQError, NotSupported, PermissionDenied, RouteMissing

_PROVED_S: Final = 60.0
"""The seconds for which a name and password that a program sends with each call are trusted without
asking the brokers again."""

_PROVED_MAX: Final = 1_000
_NAME_MAX: Final = 256
_UNPROVED: Final = (
    "signature", "no acl config for", "no accesskey", "is not found", "is disabled",
    "username cannot be null", "authentication failed",
)  # fmt: skip
"""Words in a refusal by which a broker says that it did not accept the account itself, rather than
that a right is missing. RocketMQ's come first, then ours."""

_WRONG: Final = "the name or the password is wrong"


class Accounts:
    """Verifies names and passwords of users who log in."""

    def __init__(
        self, options: ConsoleOptions, desks: AccountClients, now_s: Callable[[], float]
    ) -> None:
        self._options = options
        self._desks = desks
        self._now_s = now_s
        self._attempts = Attempts(now_s)
        self._proved: OrderedDict[bytes, tuple[float, SessionUser]] = OrderedDict()
        self._proving: dict[tuple[bytes, str], asyncio.Task[SessionUser]] = {}
        """The attempts in progress; their number is limited."""

    async def prove(self, name: str, password: str, address: str) -> SessionUser:
        """Verify a name and password, and return their user. Raises Problem if they are wrong, or
        after too many failed attempts."""
        self._attempts.begin(address)
        try:
            who = await self._find_user(name, password)
        except BaseException:
            self._attempts.withdraw(address)
            raise
        if who is None:
            self._attempts.failed(address)
            audit("login_failed", name=name, peer=address)  # as often as that may happen
            raise Problem(401, "wrong_login", _WRONG, "see docs/console.md for who may log in")
        self._attempts.passed(address)
        return who

    async def prove_again(self, name: str, password: str, address: str) -> SessionUser:
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
            proving = asyncio.ensure_future(self.prove(name, password, address))
            self._proving[key, address] = proving
            proving.add_done_callback(lambda done: self._note_proof(key, address, done))
        return await asyncio.shield(proving)

    def _note_proof(self, key: bytes, address: str, proving: asyncio.Task[SessionUser]) -> None:
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
            return await self._account(name, password)
        found: SessionUser | None = None
        for user in self._options.users:  # all of them: how long it takes tells no name
            is_right = same(password, user.password)
            if same(name, user.name) and is_right:
                found = SessionUser(name=user.name, may_change=user.may_change)
        return found

    async def _account(self, name: str, password: str) -> SessionUser | None:
        """Return the user for an account of the brokers; None if they do not accept it."""
        try:
            # Brokers do not verify secrets of addresses that they trust. If this address is
            # trusted, a login proves nothing.
            if await self._is_let_in(Credentials(name, secrets.token_urlsafe())):
                raise Problem(
                    503, "nothing_proved", "the brokers trust this console's address and check "
                        "no secrets: a login would prove nothing", "take it out of "
                    "globalWhiteRemoteAddresses and whiteRemoteAddress (docs/security.md)",
                )  # fmt: skip
            credentials = Credentials(name, password)
            if not await self._is_let_in(credentials):
                return None
            async with self._desks.client(credentials) as admin:
                may_change = await _may_operate(admin, name)
        except EscrowMQError as error:
            raise problem_of(error) from error
        return SessionUser(name=name, may_change=may_change, credentials=credentials)

    async def _is_let_in(self, credentials: Credentials) -> bool:
        """Whether the brokers accept an account's signature, whatever rights it has."""
        async with self._desks.client(credentials) as admin:
            brokers = sorted({one.name for one in await admin.brokers.all() if one.id == 0})
            for broker in brokers:
                try:
                    await admin.brokers.runtime(broker)
                except PermissionDenied as error:
                    if any(mark in error.remark.lower() for mark in _UNPROVED):
                        return False
            if not brokers:
                raise RouteMissing("no broker can be reached to verify this account")
        return True


async def _may_operate(admin: Admin, name: str) -> bool:
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
