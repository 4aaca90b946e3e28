"""The blocking connection of executors, over real sockets."""

from __future__ import annotations

from pathlib import Path

import pytest

from escrowmq.base.codes import Request, Response
from escrowmq.base.command import Command
from escrowmq.codec.command import encode_reply
from escrowmq.codec.own_signature import SESSION, is_request_signed
from escrowmq.errors import RemoteProtocolError
from escrowmq.pipeline.brokers.link import BrokerLink
from escrowmq.pipeline.brokers.options import ClusterAccess
from tests.unit.pipeline.scripted import ScriptedServer


def test_a_broker_that_wants_our_own_signature_gets_it(tmp_path: Path) -> None:
    secret = "the secret of spark"
    (tmp_path / "secret").write_text(secret)

    def answer(request: Command) -> bytes:
        fields = request.ext or {}
        if request.code == Request.ESCROW_SESSION:
            return encode_reply(request, 0, ext={SESSION: "5e55"})
        is_own = is_request_signed(request.code, fields, b"", secret=secret, session="5e55")
        return encode_reply(request, 0 if is_own else Response.ESCROW_SIGNATURE_WANTED)

    server = ScriptedServer(answer)
    access = ClusterAccess(access_key="spark", secret_key_file=str(tmp_path / "secret"))
    link = BrokerLink(server.address, access, timeout_ms=5_000)
    first, second = (link.post(Request.GET_MAX_OFFSET, {"topic": name}) for name in "TU")
    assert link.take_reply(second).code == link.take_reply(first).code == 0
    assert not link.has_open_requests
    link.close()
    server.close()


def test_a_server_of_another_kind_is_named() -> None:
    server = ScriptedServer(lambda _: b"HTTP/1.1 400 Bad Request\r\n\r\n")
    link = BrokerLink(server.address, ClusterAccess(), timeout_ms=5_000)
    with pytest.raises(RemoteProtocolError, match="speaks HTTP"):
        link.ask(Request.GET_MAX_OFFSET, {})
    link.close()
    server.close()
