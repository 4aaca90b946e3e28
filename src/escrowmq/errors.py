"""Every exception of EscrowMQ.

EscrowMQError
├── UsageError (ValueError)         the caller asked for something that cannot be
│   ├── InvalidMessage              a topic, group, body or property that cannot be sent
│   ├── ClientClosed                used after close(), or before it was opened
│   ├── ClientForked                used in a process that was forked after it was opened
│   └── WrongThread                 used from another event loop, or a blocking client inside a loop
├── ProtocolError
│   ├── LocalProtocolError          we were about to send something malformed
│   └── RemoteProtocolError         the peer sent something malformed; its connection is closed
├── StorageError
│   ├── CorruptRecord               stored bytes fail their check
│   ├── SegmentMissing              a file that should be there is not
│   ├── StoreLocked                 another process uses the data folder
│   ├── DataLost                    messages that were to be read are not kept any more
│   └── DiskFull                    the disk has no room
├── TransportError
│   ├── ConnectFailed
│   │   └── NoNameServer            none of the name servers can be reached
│   ├── ConnectionLost
│   └── RequestTimeout
│       └── ReplyTimeout            the request was stored, nobody replied to it
├── AuthorityError
│   ├── AuthorityUnreachable        no answer of use; whether a write took effect is unknown
│   │   └── AuthorityRefused        wrong credentials, a missing right, an invalid request
│   └── AuthorityUnfit              it writes without comparing, so it cannot decide
├── RouteMissing                    no name server knows where the topic, or the broker, is
├── SendFailed                      every attempt failed; `attempts` tells each
├── TransactionError
│   ├── TransactionBroken           a message of it could not be sent, so all were rolled back
│   ├── MarkerNotWritten            the database took no marker, so nothing was sent
│   ├── TooManyKept                 no broker can be reached, and the database keeps enough
│   ├── HalfNotSafe                 the first phase was stored, but not as safely as asked for
│   ├── OutcomeUnknown              the broker did not confirm the end; the check-back will
│   ├── OutcomeContradicted         the transaction had ended the other way before
│   └── ManyMessagesUnsupported     this broker cannot bind several messages into one transaction
└── ResponseError                   the peer answered with an error code; one class a code
"""

from __future__ import annotations

from typing import ClassVar


class EscrowMQError(Exception):
    """Base of all exceptions here: catch it to catch everything that EscrowMQ raises."""


class UsageError(EscrowMQError, ValueError):
    """An invalid argument or setting; the text says what is valid."""


class InvalidMessage(UsageError):
    """A topic, a group, a body or a property that no broker would accept; nothing was sent."""


class ClientClosed(UsageError):
    """The client is closed, or was not opened yet."""


class ClientForked(UsageError):
    """The client was opened before this process was forked; its sockets belong to the parent."""


class WrongThread(UsageError):
    """A client of one event loop was used from another one, or a blocking client was used inside
    the thread that serves it."""


class ProtocolError(EscrowMQError):
    """Bytes that do not follow the protocol."""


class LocalProtocolError(ProtocolError):
    """This side was about to write something that the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer wrote something that the protocol does not allow."""


class StorageError(EscrowMQError):
    """The store cannot do what was requested."""


class CorruptRecord(StorageError):
    """Stored bytes do not pass their own check."""


class SegmentMissing(StorageError):
    """A file that other files refer to is not there."""


class StoreLocked(StorageError):
    """Another process uses this data folder."""


class DataLost(StorageError):
    """Messages that should be read are no longer there; the text names queue and offsets."""


class DiskFull(StorageError):
    """The disk has no room for the write."""


class TransportError(EscrowMQError):
    """The network failed to deliver."""


class ConnectFailed(TransportError):
    """No connection could be made."""


class NoNameServer(ConnectFailed):
    """None of the name servers answers."""


class ConnectionLost(TransportError):
    """The connection was lost before the answer came."""


class RequestTimeout(TransportError):
    """No answer came in time; whether the request took effect is unknown."""


class ReplyTimeout(RequestTimeout):
    """A request message was stored, and no consumer replied to it in time."""


class AuthorityError(EscrowMQError):
    """The authority, which decides which broker of a group is the master, failed."""


class AuthorityUnreachable(AuthorityError):
    """The authority gave no usable answer; the text names its address and what happened. Whether a
    write took effect is unknown."""


class AuthorityRefused(AuthorityUnreachable):
    """The authority answered that it does not serve this client; an operator must change
    credentials, rights or settings."""


class AuthorityUnfit(AuthorityError):
    """The authority writes without comparing, or forgets what it wrote, so that two brokers could
    become masters. Use another engine, or another release of it."""


class RouteMissing(EscrowMQError):
    """No name server knows where the topic, or the broker, is."""


class SendFailed(EscrowMQError):
    """Every attempt to send a message failed; the last failure is the cause."""

    def __init__(self, text: str, attempts: tuple[tuple[str, Exception], ...] = ()) -> None:
        super().__init__(text)
        self.attempts = attempts
        """The broker's name and the error, for each attempt."""


class TransactionError(EscrowMQError):
    """A transaction did not end as requested."""


class TransactionBroken(TransactionError):
    """A message of a transaction could not be sent, so all of it was rolled back."""


class MarkerNotWritten(TransactionError):
    """The database did not accept the row that says how its transaction ends; nothing was sent, and
    the transaction must be rolled back."""


class TooManyKept(TransactionError):
    """`kept_max` messages are already waiting in the database for a broker. Nothing was kept."""


class HalfNotSafe(TransactionError):
    """The first phase was stored less safely than required, and was rolled back."""


class OutcomeUnknown(TransactionError):
    """The broker did not confirm the end of a transaction. You need not do anything: the broker
    asks the group's check-back, whose answer settles the transaction."""


class OutcomeContradicted(TransactionError):
    """The transaction had ended the other way before this end reached the broker."""


class ManyMessagesUnsupported(TransactionError):
    """The broker does not support transactions of several messages; nothing was delivered."""


class ResponseError(EscrowMQError):
    """The peer answered with an error code; subclasses name the code."""

    code: int = -1
    by_code: ClassVar[dict[int, type[ResponseError]]] = {}
    advice: ClassVar[str] = ""
    """What to do, if the peer's remark does not say it."""

    def __init__(self, remark: str = "", *, code: int | None = None, address: str = "") -> None:
        where = f" (code {self.code if code is None else code} of {address})" if address else ""
        advice = self.advice_for(remark)
        super().__init__(f"{remark or type(self).__name__}{where}{advice and '; '}{advice}")
        self.remark = remark
        self.address = address
        if code is not None:
            self.code = code

    def advice_for(self, remark: str) -> str:
        """Advice about the peer's answer."""
        return self.advice

    def __init_subclass__(cls) -> None:
        if "code" in cls.__dict__:
            assert cls.code not in ResponseError.by_code, cls.code
            ResponseError.by_code[cls.code] = cls


class BrokerFault(ResponseError):
    """The peer failed while it served the request; its remark has details."""

    code = 1


class BrokerBusy(ResponseError):
    """The peer is overloaded; try again a little later."""

    code = 2


class NotSupported(ResponseError):
    """The peer does not support requests of this kind."""

    code = 3


class FlushDiskTimedOut(ResponseError):
    """The disk was too slow: the message is stored, and perhaps not on disk yet."""

    code = 10


class SlaveNotAvailable(ResponseError):
    """No slave can take a copy, or a slave was asked to do a master's work."""

    code = 11


class FlushSlaveTimedOut(ResponseError):
    """The slave was too slow: the message is stored, and perhaps not copied yet."""

    code = 12


class MessageRefused(ResponseError):
    """The message, or one of its properties, is larger than the broker allows, or malformed."""

    code = 13


class ServiceNotAvailable(ResponseError):
    """The peer cannot serve this at present: a full disk, a shutdown, a missing store."""

    code = 14


class VersionNotSupported(ResponseError):
    """The peer refuses clients of this release."""

    code = 15


class PermissionDenied(ResponseError):
    """Credentials are missing or wrong, or do not allow this; ask the broker's operator."""

    code = 16
    advice = (
        "when it is a right that is missing, give this client credentials=Credentials(access_key, "
        "secret_key) of an account that has it (--access-key, --secret-key), or ask the broker's "
        "operator"
    )

    def advice_for(self, remark: str) -> str:
        """Advice that distinguishes a wrong secret or unknown key from a missing right."""
        said = remark.lower()
        if "check signature failed" in said:  # RocketMQ's words, and ours after them
            return "the secret key is not the one of that access key there; check secret_key"
        if "no acl config for" in said:
            return "there is no account with that access key; check access_key"
        return "" if "check the secret key" in said else self.advice


class TopicNotFound(ResponseError):
    """The topic does not exist at this peer; create it first."""

    code = 17


class TopicExists(ResponseError):
    """A topic of this name exists."""

    code = 18


class NothingNew(ResponseError):
    """A pull found no new messages."""

    code = 19


class PullAgain(ResponseError):
    """A pull should be repeated immediately."""

    code = 20


class OffsetMoved(ResponseError):
    """A pull's offset is not in the queue."""

    code = 21


class NotFound(ResponseError):
    """The requested object does not exist."""

    code = 22


class ExpressionInvalid(ResponseError):
    """The filter expression of a subscription cannot be parsed."""

    code = 23


_ONE_SUBSCRIPTION = (
    "all members of a group must subscribe to the same topics and tags: give each kind of member a "
    "group of its own"
)


class SubscriptionMissing(ResponseError):
    """The broker does not know this subscription: the group's members have different
    subscriptions."""

    code = 24
    advice = _ONE_SUBSCRIPTION


class SubscriptionOutdated(ResponseError):
    """The broker knows another version of this subscription."""

    code = 25
    advice = _ONE_SUBSCRIPTION


class GroupNotFound(ResponseError):
    """The consumer group does not exist at this broker; create it first."""

    code = 26


class InvalidParameter(ResponseError):
    """A parameter of the request is missing or out of range; the remark names it."""

    code = 29


class AlreadyCommitted(ResponseError):
    """The transaction was committed before."""

    code = 200


class AlreadyRolledBack(ResponseError):
    """The transaction was rolled back before."""

    code = 201


class AlreadySettled(ResponseError):
    """The transaction ended before, and not by a producer."""

    code = 202


class ConsumerOffline(ResponseError):
    """The requested consumer is not connected."""

    code = 206


class ConsumerTimedOut(ResponseError):
    """The requested consumer did not answer."""

    code = 207


class NoMessage(ResponseError):
    """There is no such message."""

    code = 208


class PollingFull(ResponseError):
    """Too many polls wait at the broker."""

    code = 209


class PollingTimedOut(ResponseError):
    """A poll ended without messages."""

    code = 210


class FlowControlled(ResponseError):
    """The broker asks the client to pause before it sends more."""

    code = 215


class IllegalOperation(ResponseError):
    """The request came at a time, or in a state, that does not allow it."""

    code = 604


class GoingAway(ResponseError):
    """The peer is shutting down; use another one, or a new connection."""

    code = 1500


class NotMaster(ServiceNotAvailable):
    """The broker is a slave, or is handing over to another member: nothing was stored. Another
    broker is the master, or will be soon."""


SLAVE_REMARK = "this broker is a slave"
SWITCHING_REMARK = "the group's master is about to be"
"""These two texts in a remark show that a broker refused because it is not the master."""

_ACL1_CLASS_NAME = "AclException"
"""The class name in the remark by which a refusal of ACL 1.0 is recognised: its code, 1, is that of
any fault."""


def response_error(code: int, remark: str | None, *, address: str) -> ResponseError:
    """Make the exception for a peer's error code."""
    text = remark or ""
    if code == BrokerFault.code and _ACL1_CLASS_NAME in text:
        return PermissionDenied(text, code=code, address=address)
    kind = ResponseError.by_code.get(code, ResponseError)
    if kind is ServiceNotAvailable and (SLAVE_REMARK in text or SWITCHING_REMARK in text):
        return NotMaster(text, code=code, address=address)
    return kind(text, code=code, address=address)
