"""Clients of both protocols are members of a group, on its page and in the API."""

from __future__ import annotations

from pathlib import Path

import escrowmq
import grpc
from escrowmq.console.options import ConsoleOptions
from escrowmq.proxy.gen import v2
from tests.harness.console import ADMIN, Browser, console, program, until
from tests.interop.servers import EscrowServer

GROUP, TOPIC = "mailer", "paid"
_SERVICE = "/apache.rocketmq.v2.MessagingService"


def beat(channel: grpc.Channel, client: str) -> None:
    """Be a simple consumer of the group, by gRPC, until the channel is closed."""
    about = [("x-mq-client-id", client), ("x-mq-language", "GO")]
    telemetry = channel.stream_stream(
        f"{_SERVICE}/Telemetry",
        request_serializer=v2.TelemetryCommand.SerializeToString,
        response_deserializer=v2.TelemetryCommand.FromString,
    )
    hello = v2.TelemetryCommand()
    hello.settings.client_type = v2.SIMPLE_CONSUMER
    hello.settings.subscription.group.name = GROUP
    wanted = hello.settings.subscription.subscriptions.add()
    wanted.topic.name, wanted.expression.expression = TOPIC, "*"
    answers = telemetry(iter([hello]), metadata=about, timeout=10)
    assert next(answers).HasField("settings")
    call = channel.unary_unary(
        f"{_SERVICE}/Heartbeat",
        request_serializer=v2.HeartbeatRequest.SerializeToString,
        response_deserializer=v2.HeartbeatResponse.FromString,
    )
    request = v2.HeartbeatRequest(client_type=v2.SIMPLE_CONSUMER)
    request.group.name = GROUP
    assert call(request, timeout=10, metadata=about).status.code == v2.OK


def test_a_member_by_grpc_and_one_by_remoting_are_shown(tmp_path: Path) -> None:
    server = EscrowServer(tmp_path, grpcServerPort=0)
    try:
        with escrowmq.Admin(server.nameserver) as admin:
            admin.topics.create(TOPIC, queues=2)
        options = ConsoleOptions(name_servers=server.nameserver, login="local", users=(ADMIN,))
        with (
            grpc.insecure_channel(server.grpc) as channel,
            escrowmq.Consumer(server.nameserver, group=GROUP, topic=TOPIC),
            console(options) as port,
        ):
            beat(channel, "by-grpc")
            api = program(port)

            def members() -> set[str]:
                online = api.call("GET", f"/groups/{GROUP}").json["online"]
                return {one["language"] for one in online["members"]}

            until(lambda: "GO" in members() and len(members()) == 2)
            browser = Browser(port)
            browser.log_in()
            words = browser.get(f"/groups/{GROUP}").words()
            assert "by-grpc" in words
    finally:
        server.kill()
