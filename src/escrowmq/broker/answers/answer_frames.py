"""Encodes answers as frames of RocketMQ's remoting protocol. No other module does this."""

from __future__ import annotations

import contextlib

from escrowmq.base.answer import Answer, PullAnswer, Refusal, SendAnswer
from escrowmq.base.broker_settings import BrokerSettings
from escrowmq.base.codes import Response
from escrowmq.base.command import Command
from escrowmq.base.message import Property
from escrowmq.codec.command import encode_reply
from escrowmq.codec.large_answers import COMPRESSED, accepts_zlib, compress_body
from escrowmq.codec.pulled_reply import encode_pulled
from escrowmq.codec.reply_template import ReplyTemplates, escaped, sent_template
from escrowmq.errors import LocalProtocolError


class AnswerFrames:
    """Encodes the broker's answers as remoting frames."""

    def __init__(self, settings: BrokerSettings) -> None:
        self._settings = settings
        self._is_traced: bool | None = None
        self._reply_fields: dict[str, str] = {}
        self._templates = ReplyTemplates()
        self.send_reply_fields()

    def send_reply_fields(self) -> dict[str, str]:
        """Return the fields that every answer to a send has. They are also stored as properties of
        every message. A new dictionary replaces them when an operator changes the settings."""
        settings = self._settings
        if settings.is_traced is not self._is_traced:
            self._is_traced = settings.is_traced
            self._reply_fields = {
                Property.MSG_REGION: settings.region,
                Property.TRACE_ON: "true" if settings.is_traced else "false",
            }
            self._sent = sent_template(self._reply_fields)
        return self._reply_fields

    @property
    def reply_fields(self) -> dict[str, str]:
        """The fields that every answer to a send has, as `send_reply_fields` last returned them."""
        return self._reply_fields

    def frames_of(self, command: Command, reply: Answer | Refusal) -> tuple[bytes, ...]:
        """The frames of a reply, to be written one after the other."""
        if type(reply) is SendAnswer:
            if reply.ext is not None or reply.code or not reply.transaction_id.isascii():
                return self._encode_sent_with_fields(command, reply)
            key, is_binary = reply.transaction_id, command.is_binary
            values = (
                reply.message_id.encode(), b"%d" % reply.queue_id, b"%d" % reply.queue_offset,
                key.encode() if is_binary else escaped(key),
            )  # fmt: skip
            return (self._sent.frame(command.opaque, values, is_binary=is_binary),)
        if type(reply) is PullAnswer:
            front = encode_pulled(
                command, reply.code, reply.remark or "",
                reply.next_offset, reply.min_offset, reply.max_offset,
                reply.flags, reply.size,
            )  # fmt: skip
            return (front, *reply.chunks)
        if isinstance(reply, Refusal):
            return (encode_reply(command, reply.code, remark=reply.remark, ext=reply.ext),)
        ext = reply.ext
        if not (reply.body or reply.chunks) and (ext is None or reply.code):
            # A plain success, or a pull without messages: frequent, so encoded from a template.
            return (self._templates.encode(command, reply.code, remark=reply.remark, ext=ext),)
        return self._encode_answer(command, reply, ext)

    def _encode_sent_with_fields(self, command: Command, sent: SendAnswer) -> tuple[bytes, ...]:
        """Encode the answer to a send that has more than the usual fields."""
        ext = {
            **self._reply_fields,
            "msgId": sent.message_id,
            "queueId": str(sent.queue_id),
            "queueOffset": str(sent.queue_offset),
        }
        if sent.transaction_id:  # clients of 4.x set none on a batch, and get none
            ext["transactionId"] = sent.transaction_id
        return self._encode_answer(command, sent, ext | (sent.ext or {}))

    def _encode_answer(
        self, command: Command, answer: Answer, ext: dict[str, str] | None
    ) -> tuple[bytes, ...]:
        try:
            front = encode_reply(
                command,
                answer.code,
                remark=answer.remark,
                ext=ext,
                body=answer.body,
                later_size=sum(map(len, answer.chunks)) if answer.chunks else 0,
            )
        except LocalProtocolError as error:
            return (self._compress_or_refuse(command, answer, ext, error),)
        return (front, *answer.chunks)

    def _compress_or_refuse(
        self,
        command: Command,
        answer: Answer,
        ext: dict[str, str] | None,
        error: LocalProtocolError,
    ) -> bytes:
        """Return the frame for an answer that is too large: the answer compressed, or a refusal if
        the client cannot read that."""
        if accepts_zlib(command):
            body = compress_body(b"".join((answer.body, *answer.chunks)))
            with contextlib.suppress(LocalProtocolError):
                return encode_reply(
                    command, answer.code, remark=answer.remark, ext=(ext or {}) | COMPRESSED,
                    body=body,
                )  # fmt: skip
        return encode_reply(
            command, Response.SYSTEM_ERROR, remark=f"the answer is too large: {error}"
        )
