"""The official Python client of RocketMQ 5 (rocketmq-python-client), in processes of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import grpc
from escrowmq.proxy.gen import v2
from tests.interop.servers import EscrowServer

from .clients import PYTHON
from .places import SETTINGS, topic


def test_a_simple_consumer_gets_what_its_expression_asks_for(server: EscrowServer) -> None:
    assert PYTHON.play(server, "filtered", topic(server, "Filtered")) == ["m1:a:k1", "m3:a:k3"]


def test_a_message_that_is_not_done_with_comes_again(server: EscrowServer) -> None:
    assert PYTHON.play(server, "again", topic(server, "Again")) == ["again:1", "again:2"]


def ended(server: EscrowServer, name: str, transaction_id: str) -> v2.Status:
    request = v2.EndTransactionRequest(transaction_id=transaction_id, message_id="m")
    request.topic.name, request.resolution = name, v2.COMMIT
    with grpc.insecure_channel(server.grpc) as channel:
        end = channel.unary_unary(
            "/apache.rocketmq.v2.MessagingService/EndTransaction",
            request_serializer=v2.EndTransactionRequest.SerializeToString,
            response_deserializer=v2.EndTransactionResponse.FromString,
        )
        response: v2.EndTransactionResponse = end(
            request, timeout=10, metadata=[("x-mq-client-id", "another")]
        )
    return response.status


def test_a_transaction_is_ended_by_another_client_after_a_kill(tmp_path: Path) -> None:
    settings = {**SETTINGS, "transactionTimeOut": 600_000, "flushDiskType": "SYNC_FLUSH"}
    server = EscrowServer(tmp_path, **settings)
    (transaction_id,) = PYTHON.play(server, "half", topic(server, "Left", "TRANSACTION"))
    server.kill()
    server = EscrowServer(tmp_path, **settings)
    assert ended(server, "Left", transaction_id).code == v2.OK
    assert ended(server, "Left", transaction_id[:-4] + "AAAA").code == v2.INVALID_TRANSACTION_ID
    server.stop()


def test_the_client_and_the_front_stand_in_one_process() -> None:
    both = "import rocketmq; from escrowmq.proxy.front import GrpcFront; print('both')"
    for text in (
        both,
        "from escrowmq.proxy.front import GrpcFront; import rocketmq; print('both')",
    ):
        done = subprocess.run(
            [sys.executable, "-c", text], capture_output=True, text=True, check=False, timeout=60
        )
        assert done.stdout.strip() == "both", done.stderr[-1_000:]
