"""Which port gRPC clients find, and what happens when it is another's."""

from __future__ import annotations

import pytest

from escrowmq.errors import ConnectFailed
from escrowmq.net.incoming_connections import bind_port
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
