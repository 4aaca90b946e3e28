"""What a front for another protocol and a broker say to each other about a client, as values.

A guest is a client that speaks with a front: the broker knows it as a peer of its own, whatever
connections it comes by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from escrowmq.base.answer import Answer, Refusal

OnReply = Callable[[Answer | Refusal], None]
"""Is told what became of a question."""

OnPut = Callable[[int, str], None]
"""Is told the place in its queue of a message that was put, and the id by which the transaction of
a half is ended; -1 when it has to be asked for as a question after all."""


class Who(msgspec.Struct, frozen=True):
    """Who a guest is."""

    host: str
    port: int
    identity: str = ""
    """The account that the certificate of its connection stands for."""

    language: str = "OTHER"
    """Its language under RocketMQ's name (codec.binary_header.LANGUAGES)."""


class Wish(msgspec.Struct):
    """What a guest asks: a request of RocketMQ's remoting protocol, by value."""

    code: int
    ext: dict[str, str]
    body: bytes = b""
    content: bytes | None = None
    """What was signed, where the fields name an account and have a signature."""


class PlainMessage(msgspec.Struct):
    """A message or a half to be stored about which a front knows nothing special. The same as a
    question is a SEND_MESSAGE_V2 with these values, and no other that differ from their defaults,
    but that a half's sender wants its id."""

    topic: str
    queue_id: int
    properties: str
    """As a send carries them."""

    body: bytes
    born_ms: int
    is_half: bool = False


class TopicFacts(msgspec.Struct, frozen=True):
    """What a front has to know of a topic here."""

    read_queues: int
    write_queues: int
    is_readable: bool
    is_writable: bool
    message_type: str
    """NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY or MIXED; UNSPECIFIED when nobody has said."""


class GroupFacts(msgspec.Struct, frozen=True):
    """What a front has to know of a consumer group."""

    is_orderly: bool = False
    retries_max: int = 16
    policy: dict[str, object] = {}
    """Its groupRetryPolicy, as operators have set it."""


class Ear(Protocol):
    """Hears what the broker asks of a guest."""

    def asked(
        self, code: int, opaque: int, ext: dict[str, str], body: bytes, *, is_one_way: bool
    ) -> None:
        """A request of the broker; an answer, if one is due, goes back under the opaque."""
