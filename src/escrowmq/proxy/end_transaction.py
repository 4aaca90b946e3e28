"""Serves EndTransaction. Transactions have signed ids, so any front can end any transaction, from
any connection, also after a restart.

RocketMQ's proxy remembers for 30 s what an id stands for, answers OK whatever the broker says, and
knows nothing of transactions begun at another proxy (TransactionProcessor, 5.3.3)."""

from __future__ import annotations

from escrowmq.base.answer import Answer, Denial, Refusal
from escrowmq.base.codes import Request, Response
from escrowmq.codec.signed_id import decode_signed_id
from escrowmq.errors import UsageError
from escrowmq.proxy.gen import v2
from escrowmq.proxy.grpc_call import GrpcCall
from escrowmq.proxy.result_codes import OK, CallFault, reply_fault, result_code
from escrowmq.proxy.validation import valid_topic_name

_VERDICTS = {v2.COMMIT: "8", v2.ROLLBACK: "12"}
_UNKNOWN = "0"
_GONE = "Find prepared transaction message failed"


class EndMethods:
    """Serves the call that ends transactions."""

    def end_transaction(self, call: GrpcCall[v2.EndTransactionRequest]) -> None:
        """Commit or roll back a transaction; answer OK only when the broker has done it."""
        request = call.request
        valid_topic_name(request.topic)
        name = request.transaction_id
        if not name.strip():
            raise CallFault(v2.INVALID_TRANSACTION_ID, "transaction id cannot be empty")
        try:
            decode_signed_id(name)
        except UsageError as error:
            raise CallFault(v2.INVALID_TRANSACTION_ID, str(error)) from error
        ext = {
            "escrowId": name,
            "commitOrRollback": _VERDICTS.get(request.resolution, _UNKNOWN),
            "fromTransactionCheck": str(request.source == v2.SOURCE_SERVER_CHECK).lower(),
        }
        if ext["commitOrRollback"] == _UNKNOWN:
            # Only a check counts as answered by this, and the broker sends no answer. A client
            # without the right to end the transaction nevertheless gets an error.
            call.require_permission(Request.END_TRANSACTION, dict(ext))
            call.make_one_way_request(Request.END_TRANSACTION, ext)
            call.send_answer(v2.EndTransactionResponse(status=OK))
            return

        def on_reply(reply: Answer | Refusal) -> None:
            if result_code(reply) != v2.OK:
                raise _end_fault(reply)
            call.send_answer(v2.EndTransactionResponse(status=OK))

        call.make_request(Request.END_TRANSACTION, ext, on_reply)


def _end_fault(reply: Answer | Refusal) -> CallFault:
    fault = reply_fault(reply)
    if isinstance(reply, Denial):
        return fault
    if reply.code == Response.NO_PERMISSION:
        return CallFault(v2.INVALID_TRANSACTION_ID, str(fault))
    if reply.code == Response.SYSTEM_ERROR and (reply.remark or "").startswith(_GONE):
        return CallFault(v2.NOT_FOUND, "the transaction is no longer known: it ended too long ago")
    return fault
