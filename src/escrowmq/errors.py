"""Every exception of EscrowMQ.

EscrowMQError
├── UsageError (ValueError)         the caller asked for something that cannot be
├── ProtocolError
│   ├── LocalProtocolError          we were about to send something malformed
│   └── RemoteProtocolError         the peer sent something malformed; its connection is closed
├── StorageError
│   ├── CorruptRecord               stored bytes fail their check
│   ├── SegmentMissing              a file that should be there is not
│   ├── StoreLocked                 another process uses the data folder
│   └── DiskFull                    the disk has no room
├── TransportError
│   ├── ConnectFailed
│   ├── ConnectionLost
│   └── RequestTimeout
└── ResponseError                   the peer answered with an error code; one class a code
"""

from __future__ import annotations

from typing import ClassVar


class EscrowMQError(Exception):
    """The root: catch this to catch whatever EscrowMQ raises."""


class UsageError(EscrowMQError, ValueError):
    """An argument or a setting that cannot be; the text says what would do."""


class ProtocolError(EscrowMQError):
    """Bytes that do not follow the protocol."""


class LocalProtocolError(ProtocolError):
    """This side was about to write something that the protocol does not allow."""


class RemoteProtocolError(ProtocolError):
    """The peer wrote something that the protocol does not allow."""


class StorageError(EscrowMQError):
    """The store cannot do what was asked."""


class CorruptRecord(StorageError):
    """Stored bytes do not pass their own check."""


class SegmentMissing(StorageError):
    """A file that other files refer to is not there."""


class StoreLocked(StorageError):
    """Another process uses this data folder."""


class DiskFull(StorageError):
    """The disk has no room for the write."""


class TransportError(EscrowMQError):
    """The network did not deliver."""


class ConnectFailed(TransportError):
    """No connection could be made."""


class ConnectionLost(TransportError):
    """The connection went away before the answer came."""


class RequestTimeout(TransportError):
    """No answer came in time; whether the request took effect is not known."""


class ResponseError(EscrowMQError):
    """The peer answered with an error code; subclasses name the code."""

    code: ClassVar[int] = -1
    by_code: ClassVar[dict[int, type[ResponseError]]] = {}

    def __init_subclass__(cls) -> None:
        assert cls.code not in ResponseError.by_code, cls.code
        ResponseError.by_code[cls.code] = cls
