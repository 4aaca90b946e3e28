"""Health and reflection, for everybody."""

from __future__ import annotations

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from escrowmq.proxy.gen import health, reflection

from .client import V5, Stream, World


def call(client: V5, path: str, request: object) -> Stream:
    service, method = path.rsplit("/", 1)
    number = client.begin(method, service=f"/{service}/")
    client.write(number, request, is_end="Health" in path)  # type: ignore[arg-type]
    return client.streams[number]


def test_probes_are_told_that_it_serves() -> None:
    client = World().connect("")
    kind = health.HealthCheckResponse
    for service, status in (("", 0), ("apache.rocketmq.v2.MessagingService", 0), ("x", 5)):
        request = health.HealthCheckRequest(service=service)
        stream = call(client, "grpc.health.v1.Health/Check", request)
        assert stream.code == status
        if not status:
            assert stream.messages(kind)[0].status == kind.SERVING
    stream = call(client, "grpc.health.v1.Health/Watch", health.HealthCheckRequest())
    assert stream.messages(kind)[0].status == kind.SERVING
    assert not stream.is_over


def test_tools_find_out_what_is_served() -> None:
    client = World().connect("")
    for version in ("v1", "v1alpha"):
        path = f"grpc.reflection.{version}.ServerReflection/ServerReflectionInfo"
        request = reflection.ServerReflectionRequest(list_services="")
        (found,) = call(client, path, request).messages(reflection.ServerReflectionResponse)
        names = [each.name for each in found.list_services_response.service]
        assert "apache.rocketmq.v2.MessagingService" in names
        request = reflection.ServerReflectionRequest(
            file_containing_symbol="apache.rocketmq.v2.MessagingService"
        )
        (found,) = call(client, path, request).messages(reflection.ServerReflectionResponse)
        files = [
            FileDescriptorProto.FromString(data)
            for data in found.file_descriptor_response.file_descriptor_proto
        ]
        assert [file.name for file in files] == [
            "v2.proto", "google/protobuf/duration.proto", "google/protobuf/timestamp.proto",
        ]  # fmt: skip
        request = reflection.ServerReflectionRequest(file_by_filename="nothing.proto")
        (found,) = call(client, path, request).messages(reflection.ServerReflectionResponse)
        assert found.error_response.error_code == 5


def test_a_stream_of_questions_ends_with_its_client() -> None:
    client = World().connect("")
    number = client.begin("ServerReflectionInfo", service="/grpc.reflection.v1.ServerReflection/")
    request = reflection.ServerReflectionRequest(list_services="")
    client.write(number, request)
    client.write(number, request, is_end=True)
    assert len(client.streams[number].messages(reflection.ServerReflectionResponse)) == 2
    assert client.streams[number].code == 0
