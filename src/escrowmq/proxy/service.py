"""The table of methods of the v2 service, by path. Other paths are answered with UNIMPLEMENTED."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from google.protobuf.message import Message

from escrowmq.proxy import standard_services
from escrowmq.proxy.acknowledging import Settling
from escrowmq.proxy.call import Call, Method
from escrowmq.proxy.end_transaction import Ending
from escrowmq.proxy.gen import v2
from escrowmq.proxy.heartbeats import ClientPresence
from escrowmq.proxy.pulling import Pulling
from escrowmq.proxy.receiving import Receiving
from escrowmq.proxy.result_codes import Fault, status
from escrowmq.proxy.routes import Routes
from escrowmq.proxy.sending import Sending
from escrowmq.proxy.service_context import Shared
from escrowmq.proxy.standard_services import SERVICE
from escrowmq.proxy.telemetry import Telemetry


def methods(shared: Shared) -> dict[str, Method]:
    """Return all methods of the service by path."""
    routes, sending, settling = Routes(shared), Sending(shared), Settling(shared)
    presence, receiving, pulling = ClientPresence(shared), Receiving(shared), Pulling(shared)
    found = {
        "QueryRoute": _unary(v2.QueryRouteRequest, v2.QueryRouteResponse, routes.query),
        "QueryAssignment": _unary(
            v2.QueryAssignmentRequest, v2.QueryAssignmentResponse, routes.assign
        ),
        "SendMessage": _unary(v2.SendMessageRequest, v2.SendMessageResponse, sending.send),
        "RecallMessage": _unary(v2.RecallMessageRequest, v2.RecallMessageResponse, sending.recall),
        "EndTransaction": _unary(v2.EndTransactionRequest, v2.EndTransactionResponse, Ending().end),
        "ReceiveMessage": Method(
            v2.ReceiveMessageRequest, receiving.receive, receiving.refuse, is_read=True
        ),
        "AckMessage": _unary(v2.AckMessageRequest, v2.AckMessageResponse, settling.ack),
        "ChangeInvisibleDuration": _unary(
            v2.ChangeInvisibleDurationRequest, v2.ChangeInvisibleDurationResponse, settling.change
        ),
        "ForwardMessageToDeadLetterQueue": _unary(
            v2.ForwardMessageToDeadLetterQueueRequest,
            v2.ForwardMessageToDeadLetterQueueResponse,
            settling.move_to_dead_letters,
        ),
        "Heartbeat": _unary(v2.HeartbeatRequest, v2.HeartbeatResponse, presence.beat),
        "NotifyClientTermination": _unary(
            v2.NotifyClientTerminationRequest, v2.NotifyClientTerminationResponse, presence.leave
        ),
        "Telemetry": Telemetry(shared).method(),
        "PullMessage": Method(v2.PullMessageRequest, pulling.pull, pulling.refuse, is_read=True),
        "UpdateOffset": _unary(v2.UpdateOffsetRequest, v2.UpdateOffsetResponse, pulling.update),
        "GetOffset": _unary(v2.GetOffsetRequest, v2.GetOffsetResponse, pulling.get),
        "QueryOffset": _unary(v2.QueryOffsetRequest, v2.QueryOffsetResponse, pulling.query),
        "SyncLiteSubscription": _unary(
            v2.SyncLiteSubscriptionRequest, v2.SyncLiteSubscriptionResponse, _no_lite
        ),
    }
    return {
        f"/{SERVICE}/{name}": method for name, method in found.items()
    } | standard_services.methods()


class _Response(Protocol):
    """A response class with a status field."""

    def __call__(self, *, status: v2.Status) -> Message:
        """Make a response with only a status."""


def _unary(request: type[Message], response: _Response, serve: Callable[..., None]) -> Method:
    """Return the entry for a method with one request and one response. A refusal is reported in the
    response's status."""

    def refuse(call: Call[Message], fault: Fault) -> None:
        call.answer(response(status=status(fault.code, str(fault))))

    return Method(request, serve, refuse)


def _no_lite(_: Call[v2.SyncLiteSubscriptionRequest]) -> None:
    raise Fault(v2.NOT_IMPLEMENTED, NO_LITE)


NO_LITE = "lite topics are not served here; use topics of type NORMAL and their queues"
