"""The addresses from which transactions may be administered (`escrowAdmin`), and the console of the
same process, whose requests come from the address on which the broker listens."""

from __future__ import annotations

import ipaddress

from escrowmq.acl.acl1_guard import is_signed
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.command import Command
from escrowmq.broker.identity import Identity
from escrowmq.broker.peer import Peer
from escrowmq.codec.signature import ACCESS_KEY


def admits_operator(settings: BrokerSettings, peer: Peer) -> bool:
    """Whether a peer may administer transactions from its address."""
    if settings.admin_from == "loopback":
        return ipaddress.ip_address(peer.packed[:-4]).is_loopback
    return settings.admin_from == "everybody"


def admits_own_console(settings: BrokerSettings, identity: Identity, request: Command) -> bool:
    """Whether a request is of the console in this process, and may administer transactions. A
    signature proves it, not the broker's address: others may have that too, behind a proxy."""
    if settings.admin_from != "loopback" or identity.operator is None:
        return False
    name, secret = identity.operator
    return (request.ext or {}).get(ACCESS_KEY) == name and is_signed(request, secret)
