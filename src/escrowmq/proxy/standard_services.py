"""gRPC's own services: health for probes, reflection for tools. They need no authentication,
because they only reveal that a server is here, and its protocol."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.descriptor import FileDescriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from escrowmq.http2.grpc_metadata import GrpcStatus
from escrowmq.proxy.gen import health, reflection, v2
from escrowmq.proxy.grpc_call import GrpcCall, R, ServiceMethod
from escrowmq.proxy.result_codes import CallFault

if TYPE_CHECKING:
    from google.protobuf.descriptor_pool import DescriptorPool
    from google.protobuf.message import Message

SERVICE: Final = "apache.rocketmq.v2.MessagingService"
_HEALTH: Final = "grpc.health.v1.Health"
_REFLECTION: Final = (
    "grpc.reflection.v1.ServerReflection",
    "grpc.reflection.v1alpha.ServerReflection",
)
_POOLS: Final = (v2.POOL, health.POOL, reflection.POOL)
_NOT_FOUND: Final = 5
_ANSWERED_BITS: Final = 10
"""Encoding 1 KiB (2 to the power of this) of an answer counts as one unit of work."""


def standard_methods() -> dict[str, ServiceMethod]:
    """Return the methods of gRPC's own services, by path."""
    found = {
        f"/{_HEALTH}/Check": _open_method(health.HealthCheckRequest, _check_health),
        f"/{_HEALTH}/Watch": _open_method(health.HealthCheckRequest, _watch_health),
    }
    for service in _REFLECTION:
        found[f"/{service}/ServerReflectionInfo"] = _open_method(
            reflection.ServerReflectionRequest, _serve_reflection, is_stream=True
        )
    return found


def _open_method(
    request: type[Message], serve: object, *, is_stream: bool = False
) -> ServiceMethod:
    assert callable(serve)
    return ServiceMethod(request, serve, _refuse, is_stream=is_stream, is_open_to_all=True)


def _refuse(call: GrpcCall[R], fault: CallFault) -> None:
    call.finish(GrpcStatus.INTERNAL, str(fault))


# -- health --------------------------------------------------------------------------------------


def _check_health(call: GrpcCall[health.HealthCheckRequest]) -> None:
    if call.request.service not in ("", SERVICE):
        call.finish(GrpcStatus.NOT_FOUND, f"{call.request.service[:200]} is not served here")
        return
    call.send_answer(health.HealthCheckResponse(status=health.HealthCheckResponse.SERVING))


def _watch_health(call: GrpcCall[health.HealthCheckRequest]) -> None:
    """Send the status once and leave the call open: the status does not change as long as the
    connection exists."""
    is_ours = call.request.service in ("", SERVICE)
    kind = health.HealthCheckResponse
    call.send_part(kind(status=kind.SERVING if is_ours else kind.SERVICE_UNKNOWN))


# -- reflection ----------------------------------------------------------------------------------


def _serve_reflection(call: GrpcCall[reflection.ServerReflectionRequest]) -> None:
    def on_message(request: object, _: int) -> None:
        assert isinstance(request, reflection.ServerReflectionRequest)
        answer = _reflection_answer(request)
        # With 40 bytes, any client may request 20 KB, so the size is counted as work.
        call.dialogue.add_cost(answer.ByteSize() >> _ANSWERED_BITS)
        call.send_part(answer)

    call.on_message = on_message
    call.on_end = _do_nothing
    on_message(call.request, call.now_ms)


def _do_nothing() -> None:
    """Do nothing at the end of a stream, which has no state."""


def _reflection_answer(
    request: reflection.ServerReflectionRequest,
) -> reflection.ServerReflectionResponse:
    response = reflection.ServerReflectionResponse(
        valid_host=request.host, original_request=request
    )
    match request.WhichOneof("message_request"):
        case "list_services":
            for name in (SERVICE, _HEALTH, *_REFLECTION):
                response.list_services_response.service.add(name=name)
        case "file_by_filename":
            _add_descriptors(response, _find_descriptor(request.file_by_filename, is_symbol=False))
        case "file_containing_symbol":
            _add_descriptors(
                response, _find_descriptor(request.file_containing_symbol, is_symbol=True)
            )
        case _:
            _add_descriptors(response, None)
    return response


def _find_descriptor(name: str, *, is_symbol: bool) -> FileDescriptor | None:
    wanted = name.replace(".v1alpha.", ".v1.")
    for pool in _POOLS:
        try:
            return _find_in_pool(pool, wanted, is_symbol=is_symbol)
        except KeyError:
            continue
    return None


def _find_in_pool(pool: DescriptorPool, name: str, *, is_symbol: bool) -> FileDescriptor:
    return pool.FindFileContainingSymbol(name) if is_symbol else pool.FindFileByName(name)


def _add_descriptors(
    response: reflection.ServerReflectionResponse, file: FileDescriptor | None
) -> None:
    """Add a file descriptor to an answer, and those it depends on."""
    if file is None:
        response.error_response.error_code = _NOT_FOUND
        response.error_response.error_message = "nothing of that name is served here"
        return
    for each in (file, *file.dependencies):
        proto = FileDescriptorProto()
        each.CopyToProto(proto)
        response.file_descriptor_response.file_descriptor_proto.append(proto.SerializeToString())
