"""What a request needs, by the broker's table."""

from __future__ import annotations

from escrowmq.acl.request_needs import StoredDataLookup
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.command import Command
from escrowmq.broker.access.request_rights import RequestRights
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.peer import Peer
from escrowmq.broker.requests.request_table import UNKNOWN_REQUEST_ROW, request_rows

ROWS = {row.code: row for row in request_rows()}


def rights_of(
    command: Command,
    places: StoredDataLookup,
    *,
    as_rocketmq: bool = False,
    cluster: str = "DefaultCluster",
) -> RequestRights:
    row = ROWS.get(command.code, UNKNOWN_REQUEST_ROW)
    asked: IncomingRequest[None] = IncomingRequest(Peer(1, "10.0.0.1", 5), row, command, None, 0)
    return RequestRights(
        asked, places, BrokerSettings(acl_as_rocketmq=as_rocketmq, cluster=cluster)
    )
