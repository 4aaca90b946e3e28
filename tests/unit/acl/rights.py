"""What a request needs, by the broker's table."""

from __future__ import annotations

from escrowmq.acl.request_needs import Places
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.command import Command
from escrowmq.broker.access.request_rights import Rights
from escrowmq.broker.asked import Asked
from escrowmq.broker.peer import Peer
from escrowmq.broker.requests.requests import UNKNOWN, rows

ROWS = {row.code: row for row in rows()}


def rights_of(
    command: Command, places: Places, *, as_rocketmq: bool = False, cluster: str = "DefaultCluster"
) -> Rights:
    row = ROWS.get(command.code, UNKNOWN)
    asked: Asked[None] = Asked(Peer(1, "10.0.0.1", 5), row, command, None, 0)
    return Rights(asked, places, BrokerSettings(acl_as_rocketmq=as_rocketmq, cluster=cluster))
