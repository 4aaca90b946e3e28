"""Finds out whether a request's account is proved by something else than the signature of
RocketMQ's remoting protocol: by the certificate of its connection, by our own clients' signature,
or by that of RocketMQ's gRPC protocol."""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final, Protocol

import msgspec

from escrowmq.base.codes import Response
from escrowmq.base.command import Command, ForeignRequest
from escrowmq.base.ports import RandomSource
from escrowmq.codec.own_signature import NUMBER, is_request_signed
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE, signing_key

SETTING: Final = "escrowOwnSignatures"
_ADMINISTRATORS: Final = "administrators"
_ALL: Final = "all"
_SESSION_BITS: Final = 128
_DIGITS_MAX: Final = 18


class ProvingConnection(Protocol):
    """A connection, as authentication sees it."""

    identity: str
    """The account that the connection's certificate stands for."""
    session: str
    """The session that our own clients sign with their requests on this connection."""
    signed_number: int
    """The number of the last request that was signed with the session."""


class AccountSecrets(msgspec.Struct, frozen=True):
    """The secrets of an account, and whether it is an administrator."""

    secrets: tuple[str, ...]
    is_admin: bool


class ProofResult(msgspec.Struct, frozen=True):
    """What the checks before RocketMQ's signature have shown about a request."""

    is_proved: bool = False
    code: int = Response.SUCCESS
    fault: str = ""
    """Why the request is refused, whatever its signature; empty if it is not."""


_PROVED: Final = ProofResult(is_proved=True)
_UNPROVED: Final = ProofResult()


class RequestProofs:
    """Checks certificates, sessions and signatures of requests."""

    def __init__(
        self, text: str, *, chance: RandomSource, find: Callable[[str], list[AccountSecrets]]
    ) -> None:
        self._wanted = frozenset(filter(None, (part.strip() for part in text.split(";"))))
        self._chance = chance
        self._find = find
        self._vouched_last: tuple[str, bytes, list[AccountSecrets], bytes] | None = None
        """The last valid signature of a gRPC call: account, signed content, secrets, signature. All
        requests of one call have the same one, so it is verified once."""

    def session_of(self, peer: ProvingConnection) -> str:
        """Return the session of a connection; it is chosen once, at random."""
        if not peer.session:
            peer.session = f"{self._chance.getrandbits(_SESSION_BITS):032x}"
        return peer.session

    def verify_request(
        self,
        peer: ProvingConnection,
        request: Command,
        *,
        is_held: bool,
        now_ms: int = 0,
        window_s: int = 0,
    ) -> ProofResult:
        """Verify the signature of a request, and return what it proves. `is_held`: it was accepted
        before and waited since, so its request number may be used already. With `window_s`, the
        signed time must be at most that far from `now_ms`."""
        ext = request.ext or {}
        key = ext.get(ACCESS_KEY, "")
        if peer.identity and key == peer.identity and SIGNATURE not in ext:
            return _PROVED
        number = ext.get(NUMBER)
        if number is not None:
            return self._verify_own_signature(peer, request, key, number, is_held=is_held)
        if self.requires_own_signature(key):
            return ProofResult(
                code=Response.ESCROW_SIGNATURE_WANTED,
                fault=f"{key} must sign as EscrowMQ's own clients do ({SETTING}): "
                "RocketMQ's signature can be replayed, even for another request",
            )
        if not isinstance(request, ForeignRequest):
            return _UNPROVED
        proof = self._verify_front_call(request, key)
        if window_s and proof.is_proved:
            # The time is not needed at a start, nor without a window.
            from escrowmq.acl.signed_time import signed_time_fault

            fault = signed_time_fault(request.content, request.signed_ms or now_ms, window_s)
            if fault:
                return ProofResult(code=Response.NO_PERMISSION, fault=f"{key}: {fault}")
        return proof

    def _verify_front_call(self, request: ForeignRequest, key: str) -> ProofResult:
        """Verify the signature of a gRPC call: whether the account has signed the content."""
        found = self._find(key)
        if not found:
            return _UNPROVED
        given = (request.ext or {}).get(SIGNATURE, "").encode()
        signed, last = (key, request.content, found), self._vouched_last
        if last is not None and last[:3] == signed and hmac.compare_digest(given, last[3]):
            return _PROVED
        for one in found:
            made = [
                signing_key(secret).sign_parts(request.content) for secret in one.secrets if secret
            ]
            if not any(hmac.compare_digest(given, each) for each in made):
                fault = f"the signature of {key} is not right; check the secret key"
                return ProofResult(code=Response.NO_PERMISSION, fault=fault)
        self._vouched_last = (*signed, given)
        return _PROVED

    def requires_own_signature(self, key: str) -> bool:
        """Whether requests of an account must have the signature of our own clients."""
        if key in self._wanted:
            return True
        if self._wanted.isdisjoint((_ALL, _ADMINISTRATORS)):
            return False
        found = self._find(key)
        return bool(found) and (_ALL in self._wanted or any(one.is_admin for one in found))

    def _verify_own_signature(
        self, peer: ProvingConnection, request: Command, key: str, number: str, *, is_held: bool
    ) -> ProofResult:
        failed = ProofResult(
            code=Response.NO_PERMISSION, fault=f"the signature of {key} is not right"
        )
        found = self._find(key)
        is_number = number.isascii() and number.isdigit() and len(number) <= _DIGITS_MAX
        if not (found and peer.session and is_number):
            return failed
        # If both kinds of access control are on, it must satisfy both.
        for one in found:
            if not any(self._is_signed_with(peer, request, secret) for secret in one.secrets):
                return failed
        if is_held:
            return _PROVED
        if int(number) <= peer.signed_number:
            return ProofResult(
                code=Response.NO_PERMISSION,
                fault=f"request {number} of this session was sent before; number {key}'s requests "
                f"upwards, the last one was {peer.signed_number}",
            )
        peer.signed_number = int(number)
        return _PROVED

    @staticmethod
    def _is_signed_with(peer: ProvingConnection, request: Command, secret: str) -> bool:
        return bool(secret) and is_request_signed(
            request.code, request.ext or {}, request.body, secret=secret, session=peer.session
        )


def name_account(request: Command, account: str) -> None:
    """Add the account of the connection's certificate to a request that names no account. A request
    that names one must be signed by it, whatever the certificate says, because a gateway forwards
    requests that others have signed."""
    if request.ext is None:
        request.ext = {}
    request.ext.setdefault(ACCESS_KEY, account)
