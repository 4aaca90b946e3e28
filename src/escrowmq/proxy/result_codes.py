"""Results of calls. As in RocketMQ's proxy, they are in the response, and the gRPC status is always
OK.

The proxy knows few of remoting's codes and reports all others as INTERNAL_SERVER_ERROR; codes that
clients could only report are reported here by their own names."""

from __future__ import annotations

from typing import Final

from escrowmq.base.answer import Answer, Denial, Refusal
from escrowmq.base.codes import Response
from escrowmq.errors import UsageError
from escrowmq.proxy.gen import v2

CODES: Final[dict[int, int]] = {
    Response.SUCCESS: v2.OK,
    Response.SYSTEM_BUSY: v2.TOO_MANY_REQUESTS,
    Response.FLOW_CONTROL: v2.TOO_MANY_REQUESTS,
    Response.REQUEST_CODE_NOT_SUPPORTED: v2.NOT_IMPLEMENTED,
    Response.FLUSH_DISK_TIMEOUT: v2.MASTER_PERSISTENCE_TIMEOUT,
    Response.SLAVE_NOT_AVAILABLE: v2.HA_NOT_AVAILABLE,
    Response.FLUSH_SLAVE_TIMEOUT: v2.SLAVE_PERSISTENCE_TIMEOUT,
    Response.MESSAGE_ILLEGAL: v2.BAD_REQUEST,
    Response.NO_PERMISSION: v2.FORBIDDEN,
    Response.TOPIC_NOT_EXIST: v2.TOPIC_NOT_FOUND,
    Response.PULL_NOT_FOUND: v2.MESSAGE_NOT_FOUND,
    Response.QUERY_NOT_FOUND: v2.OFFSET_NOT_FOUND,
    Response.SUBSCRIPTION_PARSE_FAILED: v2.ILLEGAL_FILTER_EXPRESSION,
    Response.SUBSCRIPTION_GROUP_NOT_EXIST: v2.CONSUMER_GROUP_NOT_FOUND,
    Response.INVALID_PARAMETER: v2.BAD_REQUEST,
    Response.TRANSACTION_SHOULD_COMMIT: v2.PRECONDITION_FAILED,
    Response.TRANSACTION_SHOULD_ROLLBACK: v2.PRECONDITION_FAILED,
    Response.TRANSACTION_STATE_UNKNOW: v2.PRECONDITION_FAILED,
    Response.NO_MESSAGE: v2.INVALID_RECEIPT_HANDLE,
    Response.POLLING_FULL: v2.TOO_MANY_REQUESTS,
    Response.POLLING_TIMEOUT: v2.MESSAGE_NOT_FOUND,
    Response.ILLEGAL_OPERATION: v2.PRECONDITION_FAILED,
}


class CallFault(UsageError):
    """Raised to refuse a call, with the code of the result."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(text)
        self.code = code


def make_status(code: int, text: str = "") -> v2.Status:
    """Make a status. Without a text it gets the name of its code."""
    return v2.Status(code=_to_enum(code), message=text or v2.Code.Name(_to_enum(code)))


def _to_enum(code: int) -> v2.Code:
    return code  # type: ignore[return-value]  # numbers are what protobuf wants


def result_code(reply: Answer | Refusal) -> int:
    """Return the result code for a broker's reply."""
    if isinstance(reply, Denial):
        return v2.UNAUTHORIZED
    return CODES.get(reply.code, v2.INTERNAL_SERVER_ERROR)


def reply_status(reply: Answer | Refusal) -> v2.Status:
    """Make the status for a broker's reply, with its text."""
    code = result_code(reply)
    return OK if code == v2.OK else make_status(code, reply.remark or "")


def reply_fault(reply: Answer | Refusal) -> CallFault:
    """Make the Fault for a broker's refusal."""
    return CallFault(result_code(reply), reply.remark or f"the broker answers {reply.code}")


def common_status(codes: list[int]) -> v2.Status:
    """Return the status of a call for several messages, from the codes of the messages: their
    common one, or MULTIPLE_RESULTS."""
    if len(set(codes)) == 1:
        return make_status(codes[0])
    return make_status(v2.MULTIPLE_RESULTS)


OK: Final = make_status(v2.OK)
