"""The official Python client of RocketMQ 5 (rocketmq-python-client), in processes of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import grpc
from escrowmq.proxy.gen import v2
from tests.interop.servers import EscrowServer

from .places import SETTINGS, in_order, topic

WITHIN_S = 120


def play(server: EscrowServer, name: str, topic: str, *credentials: str) -> Any:
    """What a scene has seen."""
    script = Path(__file__).with_name("scenarios.py")
    done = subprocess.run(
        [sys.executable, str(script), name, server.grpc, topic, f"CG-{topic}", *credentials],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def test_normal_messages_by_a_simple_consumer(server: EscrowServer) -> None:
    found = play(server, "simple", topic(server, "Simple"))
    assert sorted(found) == [["1", "a", True, "3", 1], ["3", "a", True, "3", 1]]


def test_a_message_that_is_not_done_with_comes_again(server: EscrowServer) -> None:
    assert play(server, "again", topic(server, "Again")) == [1, 2]


def test_a_push_consumer_gets_everything_and_what_failed_again(server: EscrowServer) -> None:
    found = play(server, "push", topic(server, "Push"))
    assert sorted(found) == sorted([[str(nth), 1] for nth in range(10)] + [["7", 2]])


def test_message_groups_keep_their_order(server: EscrowServer) -> None:
    name = topic(server, "Fifo", "FIFO")
    in_order(server, f"CG-{name}")
    found = play(server, "fifo", name)
    for nth in range(2):
        bodies = [int(body) for body, group_name in found if group_name == f"g{nth}"]
        assert bodies == list(range(nth, 20, 2))


def test_a_delayed_message_comes_when_it_is_due_and_a_recalled_one_never(
    server: EscrowServer,
) -> None:
    assert play(server, "delay", topic(server, "Delay", "DELAY")) == [["late"], True]


def test_transactions_end_as_their_producer_says_or_its_checker_knows(
    server: EscrowServer,
) -> None:
    found = play(server, "transactions", topic(server, "Transactions", "TRANSACTION"))
    assert found == ["committed", "good orphan"]


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
    (transaction_id,) = play(server, "half", topic(server, "Left", "TRANSACTION"))
    server.kill()
    server = EscrowServer(tmp_path, **settings)
    assert ended(server, "Left", transaction_id).code == v2.OK
    assert ended(server, "Left", transaction_id[:-4] + "AAAA").code == v2.INVALID_TRANSACTION_ID
    server.stop()


@pytest.fixture(name="guarded")
def make_guarded(tmp_path: Path) -> Iterator[EscrowServer]:
    accounts = tmp_path / "accounts"
    accounts.mkdir()
    (accounts / "plain_acl.yml").write_text(
        "accounts:\n"
        "- accessKey: shop-owner\n"
        "  secretKey: secret-of-shop\n"
        "  topicPerms: [Simple=PUB|SUB]\n"
        "  groupPerms: [CG-Simple=SUB]\n"
    )
    plain = EscrowServer(tmp_path / "server", **SETTINGS)
    topic(plain, "Simple")
    plain.stop()
    server = EscrowServer(tmp_path / "server", **SETTINGS, aclEnable=True, escrowAclFolder=accounts)
    yield server
    server.stop()


def test_accounts_are_judged_by_the_clients_own_signature(guarded: EscrowServer) -> None:
    assert play(guarded, "refused", "Simple", "shop-owner", "secret-of-shop") == "sent"
    for credentials in ((), ("shop-owner", "another"), ("somebody", "secret-of-shop")):
        assert "failed to fetch topic" in play(guarded, "refused", "Simple", *credentials)


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
