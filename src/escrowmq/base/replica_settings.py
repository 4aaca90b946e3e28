"""Settings of replication: which broker is master and which slave, and how many replicas a message
waits for."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from escrowmq.base.setting_facts import FIXED, LIVE

Role = Literal["ASYNC_MASTER", "SYNC_MASTER", "SLAVE"]


class ReplicaSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The settings of replication (RocketMQ's MessageStoreConfig)."""

    role: Annotated[
        Role,
        Meta(
            description="SYNC_MASTER: senders wait for inSyncReplicas; SLAVE: a copy of the master "
            "that has the same brokerName",
            extra=FIXED,
        ),
    ] = field(default="ASYNC_MASTER", name="brokerRole")
    ha_port: Annotated[
        int,
        Meta(ge=0, le=65_535, description="slaves connect there; 0: listenPort + 1", extra=FIXED),
    ] = field(default=0, name="haListenPort")
    ha_bind: Annotated[
        str,
        Meta(description="address at which that port listens; bindAddress when empty", extra=FIXED),
    ] = field(default="", name="escrowHaBindAddress")
    ha_host: Annotated[
        str,
        Meta(
            description="address of that port registered for slaves; brokerIP1 when empty",
            extra=FIXED,
        ),
    ] = field(default="", name="brokerIP2")
    ha_master: Annotated[
        str,
        Meta(
            description="of a slave: HOST:PORT of its master's haListenPort, instead of what the "
            "name server says",
            extra=FIXED,
        ),
    ] = field(default="", name="haMasterAddress")
    in_sync_copies: Annotated[
        int,
        Meta(
            ge=1,
            le=32,
            description="of a SYNC_MASTER: number of copies, including the master's own, that a "
            "message needs before its sender is answered",
            extra=FIXED,
        ),
    ] = field(default=1, name="inSyncReplicas")
    slave_timeout_ms: Annotated[
        int,
        Meta(
            ge=1, description="how long a sender waits for them; after that, FLUSH_SLAVE_TIMEOUT",
            extra=FIXED,
        ),
    ] = field(default=3_000, name="slaveTimeout")  # fmt: skip
    slave_reads: Annotated[
        bool, Meta(description="of a slave: consumers may pull from it", extra=LIVE)
    ] = field(default=False, name="slaveReadEnable")
    batch_size: Annotated[
        int,
        Meta(ge=1_024, le=4_194_292, description="bytes of the log sent at once", extra=FIXED),
    ] = field(default=32_768, name="haTransferBatchSize")
    heartbeat_ms: Annotated[
        int,
        Meta(ge=100, description="a keep-alive is sent after this long without data", extra=FIXED),
    ] = field(default=5_000, name="haSendHeartbeatInterval")
    housekeeping_ms: Annotated[
        int, Meta(ge=1_000, description="a connection silent for this is closed", extra=FIXED)
    ] = field(default=20_000, name="haHousekeepingInterval")
    gap_size_max: Annotated[
        int,
        Meta(ge=0, description="a slave that lags by more than this is not in sync", extra=FIXED),
    ] = field(default=268_435_456, name="haMaxGapNotInSync")
    needs_ticket: Annotated[
        bool,
        Meta(
            description="admit only slaves of EscrowMQ, which get a ticket by an authenticated "
            "request",
            extra=FIXED,
        ),
    ] = field(default=False, name="escrowHaTickets")

    @property
    def is_slave(self) -> bool:
        """Whether this broker is a slave, which copies another broker's log."""
        return self.role == "SLAVE"

    @property
    def copies(self) -> int:
        """The number of brokers, with the master, that must have a message before its send is
        acknowledged."""
        return self.in_sync_copies if self.role == "SYNC_MASTER" else 1
