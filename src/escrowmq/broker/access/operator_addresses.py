"""The addresses from which transactions may be administered (`escrowAdmin`), and the console of the
same process, whose requests come from the address on which the broker listens."""

from __future__ import annotations

import ipaddress
from typing import Final

from escrowmq.acl.request_proofs import AccountSecrets, ProofResult, RequestProofs
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.command import Command
from escrowmq.base.ports import RandomSource
from escrowmq.broker.identity import Identity
from escrowmq.broker.peer import Peer
from escrowmq.codec.signature import ACCESS_KEY

_ALL: Final = "all"


def admits_operator(settings: BrokerSettings, peer: Peer) -> bool:
    """Whether a peer may administer transactions from its address."""
    if settings.admin_from == "loopback":
        return ipaddress.ip_address(peer.packed[:-4]).is_loopback
    return settings.admin_from == "everybody"


class OwnConsole:
    """Recognizes the console in this process. Its signature proves it, not the broker's address:
    others may have that too, behind a proxy. It must be one that cannot be replayed, because the
    console asks other brokers as well."""

    def __init__(
        self, settings: BrokerSettings, identity: Identity, *, chance: RandomSource
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._proofs = RequestProofs(_ALL, chance=chance, find=self._secrets_of)

    def verify_request(self, peer: Peer, request: Command) -> ProofResult | None:
        """Return what the signature of a request proves; None if it is not the console's, or if the
        console may not administer transactions."""
        operator = self._identity.operator
        if self._settings.admin_from != "loopback" or operator is None:
            return None
        if (request.ext or {}).get(ACCESS_KEY) != operator[0]:
            return None
        return self._proofs.verify_request(peer, request, is_held=False)

    def _secrets_of(self, key: str) -> list[AccountSecrets]:
        operator = self._identity.operator
        if operator is None or key != operator[0]:
            return []
        return [AccountSecrets((operator[1],), is_admin=True)]
