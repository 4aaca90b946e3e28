"""Remembers which account sent a request that waits for another client's reply, and to which topic.

A reply is addressed by a client id, which any client can claim, and by the request's correlation
id, which no other client knows before the request is stored. So the first account that sends a
request with these two is the requester. Accounts that may read its topic may reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from escrowmq.base.fixed_limits import WAITING_REQUESTS_MAX
from escrowmq.base.message import Property

_REPLY_TIMEOUT_MS: Final = 300_000
"""How long a reply is expected. Clients wait for some seconds."""

_SHARE: Final = 4
"""One account may have at most the total divided by this. Beyond that, its oldest requests are
forgotten."""

_ID_SIZE_MAX: Final = 255

Key = tuple[str, str]
"""Identifies a request: client id and correlation id."""


class WaitingRequest(NamedTuple):
    """A request that waits for its reply: the account that sent it, its topic, and when it
    expires."""

    account: str
    topic: str
    until_ms: int


class WaitingRequests:
    """The recent requests that wait for replies."""

    def __init__(self, count_max: int = WAITING_REQUESTS_MAX) -> None:
        self._asked: dict[Key, WaitingRequest] = {}
        self._of: dict[str, dict[Key, None]] = {}
        self._count_max = count_max

    def __len__(self) -> int:
        return len(self._asked)

    def remember(
        self, properties: Mapping[str, str], account: str, topic: str, now_ms: int
    ) -> None:
        """Remember who sent a request that is stored."""
        key = _key(properties)
        if key is None:
            return
        known = self._asked.get(key)
        if known is not None:
            if known.until_ms > now_ms:
                return
            self._forget(key)
        own = self._of.setdefault(account, {})
        if len(own) >= max(1, self._count_max // _SHARE):
            self._forget(next(iter(own)))
        elif len(self._asked) >= self._count_max:
            self._forget(next(iter(self._asked)))
        self._asked[key] = WaitingRequest(account, topic, now_ms + _REPLY_TIMEOUT_MS)
        self._of.setdefault(account, {})[key] = None

    def find(self, properties: Mapping[str, str], now_ms: int) -> WaitingRequest | None:
        """Return the request that a reply answers; None if it is unknown or has expired."""
        key = _key(properties)
        requester = None if key is None else self._asked.get(key)
        return requester if requester is not None and requester.until_ms > now_ms else None

    def forget_answered(self, properties: Mapping[str, str]) -> None:
        """Forget a request, because its reply has reached the requester."""
        key = _key(properties)
        if key in self._asked:
            self._forget(key)

    def _forget(self, key: Key) -> None:
        account = self._asked.pop(key).account
        own = self._of[account]
        del own[key]
        if not own:
            del self._of[account]


def _key(properties: Mapping[str, str]) -> Key | None:
    client_id = properties.get(Property.REPLY_TO_CLIENT, "")
    correlation_id = properties.get(Property.CORRELATION_ID, "")
    sizes = (len(client_id), len(correlation_id))
    if not min(sizes) or max(sizes) > _ID_SIZE_MAX:
        return None
    return client_id, correlation_id
