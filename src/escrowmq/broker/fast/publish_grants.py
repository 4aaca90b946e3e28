"""Caches what accounts may publish to, for the fast path where peers must prove their identity.

The access check (broker/access/access_check) decides. Its decisions for one connection are
remembered until its rules change. Each request must still be signed, and counts for its account.
Requests in any doubt are judged by the access check again."""

from __future__ import annotations

from typing import Final

from escrowmq.base.command import Command
from escrowmq.broker.access.access_check import AccessCheck
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.peer import Peer
from escrowmq.broker.requests.request_server import RequestServer
from escrowmq.codec.request_shapes import RequestShape
from escrowmq.codec.signature import ACCESS_KEY, SigningKey, signing_key
from escrowmq.lane.native import SignedParts

_KNOWN_MAX: Final = 64
"""The most decisions that are cached for one connection."""

PublishRequest = tuple[int, str, str]
"""The key of a decision: request code, account and topic."""

Keys = tuple[tuple[SigningKey, ...], ...]
"""The signing keys of an account, one tuple per ACL version; the signature must match one key of
each."""


class GrantCache:
    """The cached decisions for one connection: the keys to verify signatures with; None if the
    access check must judge each request."""

    __slots__ = ("by_request", "version")

    def __init__(self) -> None:
        self.by_request: dict[PublishRequest, Keys | None] = {}
        self.version = -1
        """The version of the access rules for which the decisions are valid."""


class PublishGrants:
    """Judges the signed sends of one run on the fast path, by cached decisions of the access
    check."""

    def __init__(self, access: AccessCheck, serving: RequestServer) -> None:
        self._access = access
        self._serving = serving
        self._peer: Peer
        self._known: GrantCache
        self._now_ms = 0
        self._counted: list[tuple[str, int]] = []
        """Account and size of each request that was admitted in this run."""

    def begin_run(self, peer: Peer, known: GrantCache, now_ms: int) -> bool:
        """Begin a run of one connection. Return False if the access check must judge all its
        requests."""
        if not self._access.may_cache_decision(peer):
            return False
        if known.version != self._access.version:
            known.by_request.clear()
            known.version = self._access.version
        self._peer, self._known, self._now_ms = peer, known, now_ms
        return True

    def admits(self, one: RequestShape, parts: SignedParts) -> bool:
        """Whether a signed send of a known shape may be stored; if so, count it for its account."""
        signed, topic = one.signed, one.header.topic
        _, queue, born, properties, signature, body = parts
        if signed is None or topic is None or _needs_access_check(properties):
            return False
        account, by_wish = signed.access_key, self._known.by_request
        wish = one.command.code, account, topic
        try:
            accepted = by_wish[wish]
        except KeyError:
            if len(by_wish) >= _KNOWN_MAX:
                by_wish.clear()
            accepted = by_wish[wish] = self._signing_keys(wish)
        if accepted is None:
            return False
        content = signed.content(queue, born, properties)
        for keys in accepted:
            if not any(key.has_signed(signature, content, body) for key in keys):
                return False
        size = len(body)
        if not self._access.quotas.count_plain(self._peer, account, topic, size, self._now_ms):
            return False
        self._counted.append((account, size))
        return True

    def _signing_keys(self, wish: PublishRequest) -> Keys | None:
        code, account, topic = wish
        command = Command(code=code, ext={ACCESS_KEY: account, "b": topic, "i": ""})
        row = self._serving.row(code)
        found = self._access.lasting_grant_keys(
            IncomingRequest(self._peer, row, command, None, self._now_ms)
        )
        if found is None:
            return None
        return tuple(tuple(signing_key(each) for each in one.secrets if each) for one in found)

    def uncount_last(self) -> None:
        """Uncount the last admitted request, which was not put: the access check will judge it
        again."""
        self._access.quotas.uncount(*self._counted.pop())

    def end_run(self, *, is_stored: bool) -> None:
        """End the run; if it was not stored, uncount all its requests."""
        while not is_stored and self._counted:
            self.uncount_last()
        self._counted.clear()


def _needs_access_check(properties: bytes) -> bool:
    """Whether the access check must judge a send with these properties: it may be a half, or have a
    property of EscrowMQ itself."""
    return b"TRAN_MSG" in properties or b"escrow" in properties
