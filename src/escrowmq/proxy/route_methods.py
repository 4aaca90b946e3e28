"""Serves QueryRoute and QueryAssignment: the queues of a topic."""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator
from typing import Any, Final

from escrowmq.base.answer import Answer, Refusal
from escrowmq.base.codes import Request
from escrowmq.base.guests import TopicFacts
from escrowmq.proxy.gen import v2
from escrowmq.proxy.grpc_call import GrpcCall
from escrowmq.proxy.result_codes import OK, CallFault, reply_fault, result_code
from escrowmq.proxy.route_answer import encode_queues
from escrowmq.proxy.service_context import ServiceContext
from escrowmq.proxy.validation import check_endpoints, valid_group_name, valid_topic_name

ANY_QUEUE: Final = -1
_SIX: Final = 6
_ADDRESSES_MAX: Final = 16
_QUEUES_BITS: Final = 5
"""Encoding 32 queues (2 to the power of this) counts as one unit of work."""

MESSAGE_TYPES: Final[dict[str, tuple[v2.MessageType, ...]]] = {
    "NORMAL": (v2.NORMAL,),
    "FIFO": (v2.FIFO,),
    "DELAY": (v2.DELAY,),
    "TRANSACTION": (v2.TRANSACTION,),
    "PRIORITY": (v2.PRIORITY,),
    "MIXED": (v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION),
}
"""By a topic's attribute message.type: the message types that it accepts; NORMAL if it has no such
attribute."""


class RouteMethods:
    """Serves routes that point to this front."""

    def __init__(self, shared: ServiceContext) -> None:
        self._shared = shared

    def query_route(self, call: GrpcCall[v2.QueryRouteRequest]) -> None:
        """Answer with every queue of a topic."""
        topic = valid_topic_name(call.request.topic)

        def on_reply(reply: Answer | Refusal) -> None:
            facts = self._require_topic(topic, reply)
            endpoints = self._route_endpoints(call.request.endpoints)
            found = [v2.QueryRouteResponse(status=OK).SerializeToString()]
            for ids, permission in _queue_ranges(facts):
                queue = self._route_queue(topic, permission, endpoints)
                queue.accept_message_types.extend(
                    MESSAGE_TYPES.get(facts.message_type, (v2.NORMAL,))
                )
                found += encode_queues(queue, ids, is_assigned=False)
            _send_queues(call, found)

        call.make_request(Request.GET_ROUTEINFO_BY_TOPIC, {"topic": topic}, on_reply)

    def query_assignment(self, call: GrpcCall[v2.QueryAssignmentRequest]) -> None:
        """Answer with the queues that a member of a group reads: one entry that stands for any
        queue of the broker; for an orderly group, each queue."""
        topic, group = valid_topic_name(call.request.topic), valid_group_name(call.request.group)

        def on_reply(reply: Answer | Refusal) -> None:
            facts = self._require_topic(topic, reply)
            if not (facts.is_readable and facts.read_queues):
                raise CallFault(v2.FORBIDDEN, "no readable queue")
            known = self._shared.backend.group_facts(group)
            is_orderly = known is not None and known.is_orderly
            permission = _permission(True, facts.is_writable)
            endpoints = self._route_endpoints(call.request.endpoints)
            queue = self._route_queue(topic, permission, endpoints)
            response = v2.QueryAssignmentResponse(status=OK)
            if is_orderly:
                ids = range(facts.read_queues)
                queues = encode_queues(queue, ids, is_assigned=True)
                _send_queues(call, [response.SerializeToString(), *queues])
            else:
                queue.id = ANY_QUEUE
                response.assignments.append(v2.Assignment(message_queue=queue))
                call.send_answer(response)

        ext = {"topic": topic, "consumerGroup": group}
        call.make_request(Request.GET_ROUTEINFO_BY_TOPIC, ext, on_reply)

    def _require_topic(self, topic: str, reply: Answer | Refusal) -> TopicFacts:
        if result_code(reply) != v2.OK:
            raise reply_fault(reply)
        facts = self._shared.backend.topic_facts(topic)
        if facts is None:
            text = f"No topic route info in name server for the topic: {topic}"
            raise CallFault(v2.TOPIC_NOT_FOUND, text)
        return facts

    def _route_endpoints(self, asked: v2.Endpoints) -> v2.Endpoints:
        """Return the addresses for a route. Normally this is this front's address. In a group that
        fails over, it is the addresses that the client was given (as in RocketMQ's proxy): one of
        them also leads to the next master, so that an END reaches the broker of its half."""
        options = self._shared.options
        if options.is_of_group and 0 < len(asked.addresses) <= _ADDRESSES_MAX:
            check_endpoints(asked)
            return asked
        return to_endpoints(*options.endpoint)

    def _route_queue(
        self, topic: str, permission: v2.Permission, endpoints: v2.Endpoints
    ) -> v2.MessageQueue:
        queue = v2.MessageQueue(permission=permission)
        queue.topic.name = topic
        queue.broker.name = self._shared.backend.name
        queue.broker.endpoints.CopyFrom(endpoints)
        return queue


def _queue_ranges(facts: TopicFacts) -> Iterator[tuple[range, v2.Permission]]:
    """Yield the queue ids of a topic in order, those with the same permission together."""
    both = min(facts.read_queues, facts.write_queues)
    yield range(both), _permission(facts.is_readable, facts.is_writable)
    yield range(both, facts.read_queues), _permission(facts.is_readable, False)
    yield range(both, facts.write_queues), _permission(False, facts.is_writable)


def _send_queues(call: GrpcCall[Any], parts: list[bytes]) -> None:
    call.dialogue.add_cost(len(parts) >> _QUEUES_BITS)
    call.send_answer_bytes(b"".join(parts))


def to_endpoints(host: str, port: int) -> v2.Endpoints:
    """Return an address in the form of the gRPC protocol."""
    scheme = v2.DOMAIN_NAME
    with contextlib.suppress(ValueError):
        scheme = v2.IPv6 if ipaddress.ip_address(host).version == _SIX else v2.IPv4
    return v2.Endpoints(scheme=scheme, addresses=[v2.Address(host=host, port=port)])


def _permission(may_read: bool, may_write: bool) -> v2.Permission:
    if may_read:
        return v2.READ_WRITE if may_write else v2.READ
    return v2.WRITE if may_write else v2.NONE
