"""Sessions by cookie or token. Everything is in memory: a restart ends
every session."""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

import msgspec

from escrowmq.client.core.credentials import Credentials

COOKIE: Final = "escrowmq_console"
"""Prefix of the cookie's name; the console's port follows. Browsers send the cookies of a host to
all its ports, and an operator may have consoles of several clusters on one host."""

IDLE_S: Final = 30 * 60
"""The seconds after its last use when a session expires."""

AGE_MAX_S: Final = 12 * 3_600
"""The seconds after its begin when a session expires."""

SESSIONS_MAX: Final = 10_000
TOKENS_MAX: Final = 10_000
OF_USER_MAX: Final = 1_000
"""The most sessions of one user, and the most tokens. A user who opens one more ends the oldest of
these."""

_TOKEN_SIZE: Final = 32


class SessionUser(msgspec.Struct, frozen=True, kw_only=True):
    """An authenticated user."""

    name: str
    may_change: bool
    credentials: Credentials | None = None
    """The account that signs the user's requests; None if the brokers require no signature."""


class BrowserSession(msgspec.Struct, kw_only=True):
    """A browser's session."""

    who: SessionUser
    csrf: str
    """The token that forms must contain; a page of another site cannot know it."""
    began_s: float
    seen_s: float
    notice: str = ""
    """A text shown once, on the next page."""


class ApiToken(msgspec.Struct, frozen=True, kw_only=True):
    """A secret that a program sends instead of a password."""

    who: SessionUser
    until_s: float
    issuer: str = ""
    """The token that was used to issue this one; when it ends, this one ends too."""


V = TypeVar("V", BrowserSession, ApiToken)


class _SecretStore(Generic[V]):
    """Sessions or tokens by their secrets, of which only digests are stored. At the limit of one
    user, the oldest of that user is dropped; at the limit of all, the oldest."""

    def __init__(self, count_max: int) -> None:
        self._found: OrderedDict[bytes, V] = OrderedDict()
        self._of_user: dict[str, OrderedDict[bytes, None]] = {}
        self._count_max = count_max

    def add_value(self, value: V) -> str:
        secret = secrets.token_urlsafe(_TOKEN_SIZE)
        mine = self._of_user.get(value.who.name, ())
        if len(mine) >= OF_USER_MAX:
            self._remove_digest(next(iter(mine)))
        elif len(self._found) >= self._count_max:
            self._remove_digest(next(iter(self._found)))
        digest = _digest(secret)
        self._found[digest] = value
        self._of_user.setdefault(value.who.name, OrderedDict())[digest] = None
        return secret

    def find(self, secret: str) -> V | None:
        return self._found.get(_digest(secret))

    def remove(self, secret: str) -> None:
        self._remove_digest(_digest(secret))

    def _remove_digest(self, digest: bytes) -> None:
        value = self._found.pop(digest, None)
        if value is None:
            return
        name = value.who.name
        del self._of_user[name][digest]
        if not self._of_user[name]:
            del self._of_user[name]


class SessionStore:
    """All open sessions and tokens. `now_s` is a monotonic clock."""

    def __init__(self, now_s: Callable[[], float], *, port: int = 0) -> None:
        self._now_s = now_s
        self.cookie = f"{COOKIE}_{port}"
        self._sessions: _SecretStore[BrowserSession] = _SecretStore(SESSIONS_MAX)
        self._tokens: _SecretStore[ApiToken] = _SecretStore(TOKENS_MAX)

    def open_session(self, who: SessionUser) -> str:
        """Open a session; return the cookie's value."""
        now_s = self._now_s()
        csrf = secrets.token_urlsafe(_TOKEN_SIZE)
        return self._sessions.add_value(
            BrowserSession(who=who, csrf=csrf, began_s=now_s, seen_s=now_s)
        )

    def find_session(self, cookie: str, *, is_use: bool = True) -> BrowserSession | None:
        """Return the session of a cookie; None if it has ended or expired. With `is_use`, this
        prolongs the session."""
        found = self._sessions.find(cookie)
        if found is None:
            return None
        now_s = self._now_s()
        if now_s - found.seen_s > IDLE_S or now_s - found.began_s > AGE_MAX_S:
            self._sessions.remove(cookie)
            return None
        if is_use:
            found.seen_s = now_s
        return found

    def end_session(self, cookie: str) -> None:
        """End the session of a cookie."""
        self._sessions.remove(cookie)

    def issue_token(
        self, who: SessionUser, span_s: float, *, issuer: str = ""
    ) -> tuple[str, float]:
        """Issue a token. Return it, and the seconds for which it is valid. `issuer`: the token with
        which it was requested; when that one ends, the new one ends too."""
        now_s = self._now_s()
        until_s = now_s + span_s
        if issuer and (found := self._tokens.find(issuer)) is not None:
            until_s = min(until_s, found.until_s)
        token = ApiToken(who=who, until_s=until_s, issuer=issuer)
        return self._tokens.add_value(token), until_s - now_s

    def token_user(self, token: str) -> SessionUser | None:
        """Return the user of a token. Return None if the token has expired or was revoked, or if
        the one with which it was issued has ended."""
        found = self._tokens.find(token)
        if found is None:
            return None
        if self._now_s() > found.until_s or (
            found.issuer and self.token_user(found.issuer) is None
        ):
            self._tokens.remove(token)
            return None
        return found.who

    def revoke_token(self, token: str) -> None:
        """Revoke a token."""
        self._tokens.remove(token)


def are_equal_secrets(given: str, expected: str) -> bool:
    """Compare two secrets in constant time."""
    return hmac.compare_digest(given.encode(), expected.encode())


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
