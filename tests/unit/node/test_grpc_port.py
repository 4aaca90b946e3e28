"""Which port gRPC clients find, and what happens when it is another's or opens late."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.store_settings import StoreSettings
from escrowmq.errors import ConnectFailed
from escrowmq.net.incoming_connections import bind_port
from escrowmq.net.tls import PortOptions
from escrowmq.node import broker as node_broker
from escrowmq.node.broker import BrokerNode
from escrowmq.node.connection_settings import ConnectionSettings
from escrowmq.node.grpc_port import NO_PORT, bind_grpc

HOST = "127.0.0.1"


@pytest.mark.parametrize(("wanted", "default"), [(NO_PORT, 8081), (NO_PORT, None), (None, None)])
def test_no_port_is_opened_where_none_is_wanted(wanted: int | None, default: int | None) -> None:
    assert bind_grpc(HOST, wanted, default=default) is None


def test_a_port_of_0_is_any_that_is_free() -> None:
    found = bind_grpc(HOST, 0, default=None)
    assert found is not None
    with found:
        assert found.getsockname()[1] > 0


def test_a_port_that_was_asked_for_must_be_free_and_a_default_one_need_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with bind_port(HOST, 0) as taken:
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConnectFailed):
            bind_grpc(HOST, port, default=None)
        assert bind_grpc(HOST, None, default=port) is None
    assert "--grpc-port" in caplog.text


def test_the_other_ports_serve_while_a_certificate_is_made_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A copy that takes over may have none yet, and senders wait for it."""
    served: list[bool] = []
    was_served: list[bool] = []

    def make(*_: object, **_more: object) -> None:
        end_s = time.monotonic() + 10
        while not served and time.monotonic() < end_s:
            time.sleep(0.01)
        was_served.append(bool(served))

    monkeypatch.setattr(node_broker, "self_signed_tls", make)

    async def main() -> None:
        broker = BrokerNode(
            BrokerSettings(name="b"), StoreSettings(log_segment_size=1 << 20),
            data=str(tmp_path), host=HOST, port=0, grpc_socket=bind_port(HOST, 0),
        )  # fmt: skip
        opening = asyncio.create_task(
            broker.open(
                idle_ms=60_000, port_options=PortOptions(), ports=ConnectionSettings(), spin_us=0
            )
        )

        async def connect() -> None:
            _, writer = await asyncio.open_connection(HOST, broker.port)
            served.append(True)
            writer.close()

        while not opening.done() and not served:
            try:
                await connect()
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
        await opening
        await broker.close()

    asyncio.run(main())
    assert was_served == [True]
