"""Values that a broker and a front of another protocol exchange about a client. Such a client is a
guest: the broker treats it as a peer of its own, whatever connections it uses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec

from escrowmq.base.answer import Answer, Refusal

OnReply = Callable[[Answer | Refusal], None]
"""Called with the answer to a request."""

OnPut = Callable[[int, str], None]
"""Called with the queue offset of a stored message, and, for a half, the id that ends its
transaction. The offset is -1 if the front must send the message by a request instead."""


class GuestIdentity(msgspec.Struct, frozen=True):
    """A guest's identity."""

    host: str
    port: int
    identity: str = ""
    """The account of its connection's TLS certificate."""

    language: str = "OTHER"
    """The client's language under RocketMQ's name (codec/binary_header.LANGUAGES)."""


class RequestByValue(msgspec.Struct):
    """A guest's request as a value. It means the same as the request of RocketMQ's remoting
    protocol with these fields."""

    code: int
    ext: dict[str, str]
    body: bytes = b""
    content: bytes | None = None
    """The signed content, if the fields contain an account and a signature."""

    signed_ms: int = 0
    """When the signature arrived; for requests on a stream, when the call came that opened it."""


class MessageByValue(msgspec.Struct):
    """A message or a half to store, to which no special rule applies as far as the front knows. It
    means the same as a SEND_MESSAGE_V2 with these values, and defaults for all others. For a half,
    its signed id is requested too."""

    topic: str
    queue_id: int
    properties: str
    """The properties, in the form of a send request."""

    body: bytes
    born_ms: int
    is_half: bool = False


class TopicFacts(msgspec.Struct, frozen=True):
    """What a front knows about a topic."""

    read_queues: int
    write_queues: int
    is_readable: bool
    is_writable: bool
    message_type: str
    """NORMAL, FIFO, DELAY, TRANSACTION, PRIORITY or MIXED; UNSPECIFIED if it is not set."""


class GroupFacts(msgspec.Struct, frozen=True):
    """What a front knows about a consumer group."""

    is_orderly: bool = False
    retries_max: int = 16
    policy: dict[str, object] = {}
    """The group's groupRetryPolicy, as set by operators."""


class ClientCallbacks(Protocol):
    """Receives the broker's requests to a guest."""

    def send_request(
        self, code: int, opaque: int, ext: dict[str, str], body: bytes, *, is_one_way: bool
    ) -> None:
        """Send a request of the broker to the guest. An answer, if one is due, is returned with the
        same `opaque`."""
