"""mqadmin's haStatus names the fields of RocketMQ's HARuntimeInfo."""

from __future__ import annotations

from escrowmq.broker.answers.ha_status import (
    copying_ha_status,
    describe_connection,
    master_ha_status,
)


def test_a_master_shows_how_far_each_copy_is_behind() -> None:
    connection = describe_connection(
        "10.0.0.2:10911",
        end_offset=900,
        acknowledged=400,
        sent_end=700,
        is_in_sync=True,
        bytes_per_s=8,
    )
    assert master_ha_status(900, [connection], in_sync_count=1) == {
        "haConnectionInfo": [
            {
                "addr": "10.0.0.2:10911",
                "diff": 500,
                "inSync": True,
                "slaveAckOffset": 400,
                "transferFromWhere": 700,
                "transferredByteInSecond": 8,
            }
        ],
        "inSyncSlaveNums": 1,
        "master": True,
        "masterCommitLogMaxOffset": 900,
    }


def test_a_master_without_copies_shows_none() -> None:
    status = master_ha_status(7)
    assert (status["haConnectionInfo"], status["inSyncSlaveNums"]) == ([], 0)


def test_a_copy_shows_its_master_and_both_ends() -> None:
    status = copying_ha_status(
        is_copying=True,
        master_address="10.0.0.1:10912",
        master_end=900,
        end_offset=400,
        fault="its disk is full",
        heard_ms=5,
        said_ms=6,
    )
    assert status["haClientRuntimeInfo"] == {
        "isActivated": True,
        "lastReadTimestamp": 5,
        "lastWriteTimestamp": 6,
        "masterAddr": "10.0.0.1:10912",
        "masterFlushOffset": 0,
        "maxOffset": 400,
        "transferredByteInSecond": 0,
    }
    assert (status["master"], status["masterCommitLogMaxOffset"]) == (False, 900)
    assert status["escrowFault"] == "its disk is full"
