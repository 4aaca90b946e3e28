"""Serves the requests that RocketMQ's operators send to a controller. In our groups, each member
answers them."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

import msgspec

from escrowmq.base.answer import Answer, Refusal, Reply
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.group_report import GroupReport
from escrowmq.broker.incoming_request import IncomingRequest, not_supported
from escrowmq.broker.requests.on_group_members import GroupMemberHandlers
from escrowmq.codec import fastjson

_NO_CONTROLLER: Final = "this request only for controllerMode "


class ControllerHandlers:
    """Serves CONTROLLER_GET_METADATA_INFO (1005), CONTROLLER_GET_SYNC_STATE_DATA (1006) and
    GET_BROKER_EPOCH_CACHE (1007)."""

    def __init__(self, settings: BrokerSettings, group: GroupMemberHandlers) -> None:
        self._settings = settings
        self._group = group

    def controller_metadata(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the address of the master, as the leader of the controllers."""
        report = self._group.report()
        if report is None:
            return not_supported(request)
        return Answer(
            ext={
                "group": report.broker,
                "controllerLeaderId": report.master,
                "controllerLeaderAddress": report.master_address,
                "isLeader": "true" if report.is_master else "false",
                "peers": report.master_address,
            }
        )

    def sync_state(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the members that are in sync, for mqadmin's getSyncStateSet
        (BrokerReplicasInfo)."""
        report = self._group.report()
        if report is None:
            return not_supported(request)
        try:
            names = msgspec.json.decode(request.command.body, type=list[str])
        except msgspec.MsgspecError:
            return Refusal(Response.INVALID_PARAMETER, "a JSON array of broker names is expected")
        known = {report.broker: _replicas(report)} if report.broker in names else {}
        return Answer(body=fastjson.encode({"replicasInfoTable": known}))

    def log_epochs(self, request: IncomingRequest[None]) -> Reply:
        """Answer with the epochs that wrote the log, for mqadmin's getBrokerEpoch
        (EpochEntryCache)."""
        report = self._group.report()
        if report is None:
            return Refusal(Response.SYSTEM_ERROR, _NO_CONTROLLER)
        ends = [*report.epochs, (0, report.end)]
        entries = [
            {"epoch": epoch, "startOffset": start, "endOffset": end}
            for (epoch, start), (_, end) in pairwise(ends)
        ]
        body = {
            "brokerId": self._settings.broker_id,
            "brokerName": report.broker,
            "clusterName": report.cluster,
            "epochList": entries,
            "maxOffset": report.end,
        }
        return Answer(body=fastjson.encode(body))


def _replicas(report: GroupReport) -> dict[str, object]:
    connected = {copy.member: copy.address for copy in report.copies}
    if report.master:
        connected[report.master] = report.master_address
    replicas = {
        name: {
            "alive": name in connected,
            "brokerAddress": connected.get(name, ""),
            "brokerId": report.numbers.get(name, -1),
            "brokerName": report.broker,
        }
        for name in report.members
    }
    return {
        "inSyncReplicas": [replicas[name] for name in report.in_sync],
        "masterAddress": report.master_address,
        "masterBrokerId": report.numbers.get(report.master, -1),
        "masterEpoch": report.epoch,
        "notInSyncReplicas": [
            replica for name, replica in replicas.items() if name not in report.in_sync
        ],
        "syncStateSetEpoch": report.epoch,
    }
