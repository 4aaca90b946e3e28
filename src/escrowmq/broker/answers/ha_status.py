"""Replication state in the form of mqadmin's haStatus (RocketMQ's HARuntimeInfo)."""

from __future__ import annotations

from collections.abc import Sequence

HaConnection = dict[str, object]
"""One broker that copies from a master, in the form of RocketMQ's HAConnectionRuntimeInfo."""


def describe_connection(
    address: str,
    *,
    end_offset: int,
    acknowledged: int,
    sent_end: int,
    is_in_sync: bool,
    bytes_per_s: int = 0,
) -> HaConnection:
    """Return the state of one broker that copies a log which ends at `end_offset`."""
    return {
        "addr": address,
        "diff": end_offset - acknowledged,
        "inSync": is_in_sync,
        "slaveAckOffset": acknowledged,
        "transferFromWhere": sent_end,
        "transferredByteInSecond": bytes_per_s,
    }


def master_ha_status(
    end_offset: int, connections: Sequence[HaConnection] = (), *, in_sync_count: int = 0
) -> dict[str, object]:
    """Return the state of a master: where its log ends, and the brokers that copy it."""
    return {
        "haConnectionInfo": list(connections),
        "inSyncSlaveNums": in_sync_count,
        "master": True,
        "masterCommitLogMaxOffset": end_offset,
    }


def copying_ha_status(
    *,
    is_copying: bool,
    master_address: str,
    master_end: int,
    end_offset: int,
    fault: str,
    heard_ms: int,
    said_ms: int,
) -> dict[str, object]:
    """Return the state of a broker that copies its master's log. `heard_ms` and `said_ms` are the
    times at which it last received and sent something."""
    return {
        "haClientRuntimeInfo": {
            "isActivated": is_copying,
            "lastReadTimestamp": heard_ms,
            "lastWriteTimestamp": said_ms,
            "masterAddr": master_address,
            "masterFlushOffset": 0,
            "maxOffset": end_offset,
            "transferredByteInSecond": 0,
        },
        "escrowFault": fault,
        "haConnectionInfo": [],
        "inSyncSlaveNums": 0,
        "master": False,
        "masterCommitLogMaxOffset": master_end,
    }
