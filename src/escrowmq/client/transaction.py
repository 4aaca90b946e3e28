"""A transaction for asyncio."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, Self, Unpack

from escrowmq.base.codes import Response
from escrowmq.base.extensions import CHECKER, DELAYED, ORDER_KEY, TRANSACTION
from escrowmq.base.limits import BUNDLE_MESSAGES_MAX
from escrowmq.base.message import Property
from escrowmq.client.core.ending import Half, half_of, token_of
from escrowmq.client.core.message import Message
from escrowmq.client.core.routes import MessageQueue
from escrowmq.client.core.sending import Outcome, SendResult, delay_properties
from escrowmq.client.settings import MessageFields, message_of
from escrowmq.errors import (
    EscrowMQError,
    HalfNotSafe,
    ManyMessagesUnsupported,
    OutcomeUnknown,
    TransactionBroken,
    UsageError,
)

if TYPE_CHECKING:
    from types import TracebackType

    from escrowmq.client.producer import Producer

_log = logging.getLogger(__name__)

OUR_LANGUAGE: Final = "PYTHON"
"""What EscrowMQ's brokers say that they are written in; RocketMQ's say JAVA."""


class Transaction:
    """Made by `Producer.transaction`. Commits when its block ends, rolls back when it raises.

    A commit is confirmed by the broker before the block is left; OutcomeUnknown says that it was
    not, and that the check-back will settle it.
    """

    def __init__(self, producer: Producer, message: Message | None, *, checker: str = "") -> None:
        self._producer = producer
        self._first = message
        self._checker = checker
        self._bundle = ""
        self._halves: list[Half] = []
        self._plan = Outcome.COMMIT
        self._is_begun = False
        self._is_over = False
        self._is_detached = False
        self._failure: BaseException | None = None
        self._results: list[SendResult] = []
        self._ends: list[tuple[Message, str]] = []

    @property
    def id(self) -> str:
        """The id with which any process can end it; empty before the first message is stored."""
        return token_of(self._halves[0]) if self._halves else ""

    @property
    def plan(self) -> Outcome:
        """What the end of the block will do, if nothing is raised in it."""
        return self._plan

    @property
    def results(self) -> list[SendResult]:
        """What was stored, in the order of sending."""
        return self._results

    @property
    def message(self) -> Message:
        """The message that it began with."""
        if self._first is None:
            raise UsageError("this transaction began without a message; see `results`")
        return self._first

    # -- the block ---------------------------------------------------------------------------

    async def begin(self) -> Self:
        """Store the message that the transaction was made with, invisible to consumers."""
        if self._is_begun:
            raise UsageError("a transaction begins once; make a new one")
        self._is_begun = True
        self._producer.check_open()
        if self._first is None:
            self._bundle = self._producer.dispatch.new_id()
        else:
            await self._send(self._first)
        return self

    async def __aenter__(self) -> Self:
        return await self.begin()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._is_over:
            return
        if error is not None:
            await self._roll_back_quietly()
        elif self._failure is not None:
            await self._roll_back_quietly()
            raise TransactionBroken(
                "a message of the transaction could not be sent, so all of it was rolled back; "
                "run the transaction again"
            ) from self._failure
        else:
            await self.settle(self._plan)

    async def send(
        self, topic: str | Message, body: bytes = b"", **fields: Unpack[MessageFields]
    ) -> SendResult:
        """Store one more message, invisible until all of them appear together. Only in a
        transaction that was made without a message; all messages go to one broker."""
        if self._is_over or not self._is_begun:
            raise UsageError("messages are sent inside the transaction's block only")
        if not self._bundle:
            raise UsageError(
                "this transaction was made with its one message; use `transaction()` without "
                "arguments to send several"
            )
        if len(self._halves) >= BUNDLE_MESSAGES_MAX:
            raise UsageError(
                f"a transaction has {BUNDLE_MESSAGES_MAX} messages at most; put more into each"
            )
        message = message_of(topic, body, fields)
        if self._halves and not self._halves[0].signed_id:
            await self.settle(Outcome.ROLLBACK)
            raise ManyMessagesUnsupported(
                f"broker {self._halves[0].broker_name} does not bind several messages into one "
                "transaction, only EscrowMQ's do; nothing was delivered, use one message or one "
                "of those brokers"
            )
        return await self._send(message)

    def unknown(self) -> None:
        """Leave the outcome open at the end of the block: the broker will ask the check-back."""
        self._plan = Outcome.UNKNOWN

    def rollback(self) -> None:
        """Roll back at the end of the block, although nothing was raised."""
        self._plan = Outcome.ROLLBACK

    def detach(self) -> str:
        """The transaction's id. The block leaves it alone from now on: whoever has the id ends it
        with `Producer.commit` or `Producer.rollback`, from any process; else a check-back does."""
        if not self._halves:
            raise UsageError("a transaction without a message cannot be detached; send one first")
        if self._is_over:
            raise UsageError("the transaction has ended; detach it inside its block")
        self._is_over = self._is_detached = True
        return self.id

    async def settle(self, outcome: Outcome) -> None:
        """End it now. A block does this by itself."""
        if self._is_over:
            raise UsageError("the transaction has ended, or was detached")
        if not self._is_begun:
            raise UsageError(
                "the transaction has not begun, so that nothing is stored; use it in a `with` "
                "block, or call begin() first"
            )
        if not isinstance(outcome, Outcome):
            raise UsageError(f"outcome={outcome!r}; an Outcome is expected: COMMIT or ROLLBACK")
        self._is_over = True
        if not self._halves:
            return
        count = len(self._halves) if self._bundle and self._halves[0].signed_id else 0
        try:
            settler = self._producer.settler
            await settler.settle(self._halves[0], outcome, count=count, ends=self._ends)
        except OutcomeUnknown as error:
            if outcome is Outcome.COMMIT and self._producer.options.confirms_commits:
                raise
            _log.warning("%s", error)

    # -- inside ------------------------------------------------------------------------------

    async def _roll_back_quietly(self) -> None:
        """What went wrong in the block is news; that its rollback went wrong too is a line in
        the log, as the broker will ask."""
        try:
            await self.settle(Outcome.ROLLBACK)
        except EscrowMQError as error:
            _log.warning("%s", error)

    async def _send(self, message: Message) -> SendResult:
        try:
            half, result = await self._store(message)
        except BaseException as error:
            self._failure = error
            raise
        self._halves.append(half)
        self._results.append(result)
        self._ends.append((message, result.message_id))
        if result.status.value != Response.SUCCESS:
            await self._judge_unsafe(result)
        return result

    async def _store(self, message: Message) -> tuple[Half, SendResult]:
        producer = self._producer
        producer.dispatch.check(message)
        queue = await self._queue(message)
        out = producer.dispatch.prepare(message, self._properties(message))
        out.wants_id = True
        sent, result = await producer.dispatch.deliver(
            message, out, queue=queue, may_repeat=not self._bundle
        )
        half = half_of(
            sent.reply,
            broker_name=sent.queue.broker_name,
            topic=out.topic,
            group=producer.wire_group,
            unique_key=out.unique_key,
        )
        return half, result

    def _properties(self, message: Message) -> dict[str, str]:
        found = {Property.TRAN_MSG: "true", Property.PGROUP: self._producer.wire_group}
        if self._bundle:
            found[TRANSACTION] = self._bundle
        if self._checker:
            found[CHECKER] = self._checker
        if message.order_key:
            found[ORDER_KEY] = message.order_key
        if delay_properties(message):
            found[DELAYED] = "true"
        return found

    async def _queue(self, message: Message) -> MessageQueue | None:
        """A queue that must be: on the broker where the transaction began, or on one that keeps
        delayed halves."""
        dispatch = self._producer.dispatch
        queue = None
        if self._bundle and self._halves:
            name = self._halves[0].broker_name
            queue = await dispatch.choose_queue(message, broker_name=name)
        if delay_properties(message):
            queue = queue or await dispatch.choose_queue(message)
            await self._require_ours(queue)
        return queue

    async def _require_ours(self, queue: MessageQueue) -> None:
        """RocketMQ's brokers lose a half message that has a delay: its delivery finds the half
        topic, which nobody may write to."""
        instance = self._producer.instance
        address = instance.address_of(queue.broker_name)
        connection = await instance.pool.get(address)
        if connection.language is None:
            await instance.presence.beat(address)
        if connection.language != OUR_LANGUAGE:
            raise UsageError(
                f"broker {queue.broker_name} is not EscrowMQ's and would lose a transactional "
                "message with a delay; leave the delay out"
            )

    async def _judge_unsafe(self, result: SendResult) -> None:
        if self._producer.options.accepts_unsafe_halves:
            return
        await self._roll_back_quietly()
        raise HalfNotSafe(
            f"the first phase was stored with {result.status.name} only and was rolled back; "
            "try again, mend the broker's disk or slave, or set accepts_unsafe_halves"
        )
