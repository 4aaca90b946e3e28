"""What foreign clients tell us, as values."""

import base64
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True)
class Sent:
    """The result of a send."""

    status: str
    msg_id: str
    offset_msg_id: str | None
    broker: str
    queue_id: int
    queue_offset: int
    transaction_id: str | None
    recall_handle: str | None

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Self:
        """From a driver's answer."""
        return cls(
            status=answer["status"],
            msg_id=answer["msgId"],
            offset_msg_id=answer.get("offsetMsgId"),
            broker=answer["broker"],
            queue_id=answer["queueId"],
            queue_offset=answer["queueOffset"],
            transaction_id=answer.get("transactionId"),
            recall_handle=answer.get("recallHandle"),
        )


@dataclass(frozen=True)
class Received:
    """A message as the listener of a foreign client was given it."""

    topic: str
    queue_id: int
    queue_offset: int
    commit_log_offset: int
    msg_id: str
    offset_msg_id: str
    transaction_id: str | None
    born_ms: int
    stored_ms: int
    consumed_ms: int
    sys_flag: int
    flag: int
    reconsume_times: int
    prepared_offset: int
    properties: dict[str, str]
    body: bytes
    consumer: str
    answer: str

    @classmethod
    def of(cls, seen: dict[str, Any]) -> Self:
        """From a driver's answer."""
        return cls(
            topic=seen["topic"],
            queue_id=seen.get("queueId", -1),
            queue_offset=seen.get("queueOffset", -1),
            commit_log_offset=seen.get("commitLogOffset", -1),
            msg_id=seen.get("msgId", ""),
            offset_msg_id=seen.get("offsetMsgId", ""),
            transaction_id=seen.get("transactionId"),
            born_ms=seen.get("bornTimestamp", 0),
            stored_ms=seen.get("storeTimestamp", 0),
            consumed_ms=seen.get("consumedMs", 0) or seen.get("checkedMs", 0),
            sys_flag=seen.get("sysFlag", 0),
            flag=seen.get("flag", 0),
            reconsume_times=seen.get("reconsumeTimes", 0),
            prepared_offset=seen.get("preparedTransactionOffset", 0),
            properties=seen.get("properties") or {},
            body=base64.b64decode(seen.get("body") or ""),
            consumer=seen.get("consumer", ""),
            answer=seen.get("answer", ""),
        )

    @property
    def text(self) -> str:
        """The body as text."""
        return self.body.decode()

    @property
    def tag(self) -> str | None:
        """The tag."""
        return self.properties.get("TAGS")

    @property
    def keys(self) -> str | None:
        """The keys, joined by blanks."""
        return self.properties.get("KEYS")


@dataclass(frozen=True)
class Pulled:
    """The answer to one pull."""

    status: str
    next_offset: int
    min_offset: int
    max_offset: int
    messages: list[Received]

    @classmethod
    def of(cls, answer: dict[str, Any]) -> Self:
        """From a driver's answer."""
        found = [Received.of(each) for each in answer.get("messages") or []]
        return cls(answer["status"], answer["next"], answer["min"], answer["max"], found)
