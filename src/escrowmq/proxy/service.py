"""The table of methods of the v2 service, by path. Other paths are answered with UNIMPLEMENTED."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from google.protobuf.message import Message

from escrowmq.proxy import standard_services
from escrowmq.proxy.end_transaction import EndMethods
from escrowmq.proxy.gen import v2
from escrowmq.proxy.grpc_call import GrpcCall, ServiceMethod
from escrowmq.proxy.heartbeats import PresenceMethods
from escrowmq.proxy.pull_methods import PullMethods
from escrowmq.proxy.receipt_methods import ReceiptMethods
from escrowmq.proxy.receive_methods import ReceiveMethods
from escrowmq.proxy.result_codes import CallFault, make_status
from escrowmq.proxy.route_methods import RouteMethods
from escrowmq.proxy.send_methods import SendMethods
from escrowmq.proxy.service_context import ServiceContext
from escrowmq.proxy.standard_services import SERVICE
from escrowmq.proxy.telemetry import TelemetryMethods


def service_methods(shared: ServiceContext) -> dict[str, ServiceMethod]:
    """Return all methods of the service by path."""
    routes, sending, settling = RouteMethods(shared), SendMethods(shared), ReceiptMethods(shared)
    presence, receiving = PresenceMethods(shared), ReceiveMethods(shared)
    pulling = PullMethods(shared)
    found = {
        "QueryRoute": _unary(v2.QueryRouteRequest, v2.QueryRouteResponse, routes.query_route),
        "QueryAssignment": _unary(
            v2.QueryAssignmentRequest, v2.QueryAssignmentResponse, routes.query_assignment
        ),
        "SendMessage": _unary(v2.SendMessageRequest, v2.SendMessageResponse, sending.send_messages),
        "RecallMessage": _unary(
            v2.RecallMessageRequest, v2.RecallMessageResponse, sending.recall_message
        ),
        "EndTransaction": _unary(
            v2.EndTransactionRequest, v2.EndTransactionResponse, EndMethods().end_transaction
        ),
        "ReceiveMessage": ServiceMethod(
            v2.ReceiveMessageRequest,
            receiving.receive_messages,
            receiving.refuse_receive,
            is_read=True,
        ),
        "AckMessage": _unary(v2.AckMessageRequest, v2.AckMessageResponse, settling.ack_messages),
        "ChangeInvisibleDuration": _unary(
            v2.ChangeInvisibleDurationRequest,
            v2.ChangeInvisibleDurationResponse,
            settling.change_invisible_time,
        ),
        "ForwardMessageToDeadLetterQueue": _unary(
            v2.ForwardMessageToDeadLetterQueueRequest,
            v2.ForwardMessageToDeadLetterQueueResponse,
            settling.move_to_dead_letters,
        ),
        "Heartbeat": _unary(v2.HeartbeatRequest, v2.HeartbeatResponse, presence.heartbeat),
        "NotifyClientTermination": _unary(
            v2.NotifyClientTerminationRequest,
            v2.NotifyClientTerminationResponse,
            presence.unregister_client,
        ),
        "Telemetry": TelemetryMethods(shared).telemetry_method(),
        "PullMessage": ServiceMethod(
            v2.PullMessageRequest, pulling.pull_messages, pulling.refuse_pull, is_read=True
        ),
        "UpdateOffset": _unary(
            v2.UpdateOffsetRequest, v2.UpdateOffsetResponse, pulling.update_offset
        ),
        "GetOffset": _unary(v2.GetOffsetRequest, v2.GetOffsetResponse, pulling.get_offset),
        "QueryOffset": _unary(v2.QueryOffsetRequest, v2.QueryOffsetResponse, pulling.query_offset),
        "SyncLiteSubscription": _unary(
            v2.SyncLiteSubscriptionRequest, v2.SyncLiteSubscriptionResponse, _refuse_lite
        ),
    }
    return {
        f"/{SERVICE}/{name}": method for name, method in found.items()
    } | standard_services.standard_methods()


class _Response(Protocol):
    """A response class with a status field."""

    def __call__(self, *, status: v2.Status) -> Message:
        """Make a response with only a status."""


def _unary(
    request: type[Message], response: _Response, serve: Callable[..., None]
) -> ServiceMethod:
    """Return the entry for a method with one request and one response. A refusal is reported in the
    response's status."""

    def refuse(call: GrpcCall[Message], fault: CallFault) -> None:
        call.send_answer(response(status=make_status(fault.code, str(fault))))

    return ServiceMethod(request, serve, refuse)


def _refuse_lite(_: GrpcCall[v2.SyncLiteSubscriptionRequest]) -> None:
    raise CallFault(v2.NOT_IMPLEMENTED, NO_LITE)


NO_LITE = "lite topics are not served here; use topics of type NORMAL and their queues"
