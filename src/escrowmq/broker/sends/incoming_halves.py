"""Stores the half messages that producers send."""

from __future__ import annotations

from escrowmq.base.answer import Refusal
from escrowmq.base.message import Message, Property
from escrowmq.base.own_properties import OWNER
from escrowmq.broker.incoming_request import IncomingRequest
from escrowmq.broker.rules import first_refusal
from escrowmq.broker.sends.destinations import Header
from escrowmq.broker.sends.half_rules import HALF_RULES, REJECTED, HalfRules
from escrowmq.broker.sends.log_puts import MessageStorer
from escrowmq.codec.hashes import account_mark
from escrowmq.delivery.auto_created import RequestAccount
from escrowmq.delivery.clients import Clients
from escrowmq.store.store import PutResult
from escrowmq.txn.transactions import Transactions


class IncomingHalves:
    """Checks half messages by the rules and stores them."""

    def __init__(
        self,
        *,
        clients: Clients,
        present: RequestAccount,
        putter: MessageStorer,
        transactions: Transactions,
        rules: HalfRules,
    ) -> None:
        self._clients = clients
        self._present = present
        self._putter = putter
        self._transactions = transactions
        self._rules = rules

    def store_half(
        self, request: IncomingRequest[Header], message: Message, *, wants_id: bool
    ) -> PutResult | Refusal:
        """Store a half message. With `wants_id`, its sender requests a signed id: if a new signing
        key is due, create that first."""
        if self._present.has_owners and request.account:
            # It belongs to the account: no other may end it, or add a half to its transaction.
            message.properties[OWNER] = account_mark(request.account)
        transactions, now_ms = self._transactions, request.now_ms
        engine = transactions.engine
        about = self._rules.facts_of(message, engine.halves, now_ms)
        if (
            wants_id
            and transactions.keyring.is_rotation_due(now_ms)
            and not REJECTED.concerns(about)
        ):
            transactions.renew_due_key(now_ms)
        refusal = first_refusal(HALF_RULES, about)
        if refusal is not None:
            return refusal
        group = message.properties.get(Property.PGROUP, "")
        origin = self._clients.note_published(group, request.peer.id, message.topic)
        put = engine.prepare(message, now_ms, origin=origin, account=request.peer.counted_for)
        return put if put.log_offset >= 0 else self._putter.put_refusal(put)

    def signed_id(self, put: PutResult, unique_key: str, now_ms: int) -> str:
        """Return the signed id of a stored half, with which any client can end its transaction."""
        return self._transactions.sign(put, unique_key, now_ms)
