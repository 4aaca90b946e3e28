"""The addresses from which transactions may be administered (`escrowAdmin`)."""

from __future__ import annotations

import ipaddress

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.broker.peer import Peer


def admits_operator(settings: BrokerSettings, peer: Peer) -> bool:
    """Whether a peer may administer transactions from its address."""
    if settings.admin_from == "loopback":
        return ipaddress.ip_address(peer.packed[:-4]).is_loopback
    return settings.admin_from == "everybody"
