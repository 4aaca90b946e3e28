"""The shapes of requests that one connection repeats, so that the fast path can serve them
(broker/fast/fast_path)."""

from __future__ import annotations

from typing import Final

from escrowmq.base.codes import Request
from escrowmq.broker.fast.backoff import Backoff
from escrowmq.broker.fast.lane_input import lane_shape
from escrowmq.broker.fast.publish_grants import GrantCache
from escrowmq.codec.request_shapes import END, SEND, RequestKind, RequestShape, learn_shape
from escrowmq.lane.native import LaneShape

_SENDS: Final = (Request.SEND_MESSAGE_V2, Request.SEND_BATCH_MESSAGE)
_BINARY_SENDS: Final = tuple(code.to_bytes(2, "big") for code in _SENDS)
_BINARY_END: Final = Request.END_TRANSACTION.to_bytes(2, "big")
_IN_JSON: Final = b'{"'
_JSON_SENDS: Final = tuple(b'{"code":%d,' % code for code in _SENDS)
_JSON_END: Final = b'{"code":%d,' % Request.END_TRANSACTION
ENDS: Final = (_BINARY_END, _JSON_END)
"""The first bytes of an END's header, in both encodings."""

_SHAPES_MAX: Final = 8
_LEARN_COST: Final = 4
CREDIT_MAX: Final = 128
"""The most credit of a connection. Learning costs credit; each served request earns some. A
connection whose requests are never alike soon learns rarely, because learning would not pay."""

_KINDS: Final = {**dict.fromkeys(_BINARY_SENDS, SEND), _BINARY_END: END}
binary_request_kind: Final = _KINDS.get
"""Returns the kind of a request by the first two bytes of its binary header; None if the fast path
cannot serve it."""


def json_request_kind(data: bytes, at: int) -> RequestKind | None:
    """Return the kind of a request with a header in JSON; None if the fast path cannot serve it."""
    if data.startswith(_JSON_SENDS, at + 8):
        return SEND
    return END if data.startswith(_JSON_END, at + 8) else None


class KnownShapes:
    """The known shapes of one kind of request, the newest first."""

    __slots__ = ("lane_shapes", "shapes")

    def __init__(self) -> None:
        self.shapes: list[RequestShape] = []
        self.lane_shapes: list[LaneShape] = []
        """The same shapes in the native lane's form."""

    def add(self, one: RequestShape, shape: LaneShape) -> None:
        """Add a shape, unless it is known already."""
        if any(one.pieces == other.pieces for other in self.shapes):
            return
        self.shapes.insert(0, one)
        self.lane_shapes.insert(0, shape)
        del self.shapes[_SHAPES_MAX:], self.lane_shapes[_SHAPES_MAX:]


class KnownRequests:
    """The shapes that one connection has shown, and what they cost it to learn."""

    __slots__ = ("backoff", "credit", "ends", "grants", "sends", "wants_ids")

    def __init__(self) -> None:
        self.backoff = Backoff()
        """Counts how many ENDs to leave to the general path, because earlier ones could not be
        served here. Transactions of several messages are an example."""
        self.sends, self.ends = KnownShapes(), KnownShapes()
        self.wants_ids = False
        """Whether halves of this connection may request signed ids."""
        self.credit = CREDIT_MAX
        """Pays for learning shapes; grows with each served request."""
        self.grants = GrantCache()

    def may_take_fast_path(self, data: bytes, at: int) -> bool:
        """Whether the request at a position may take the fast path. Checked first, by its leading
        bytes alone."""
        first = data[at + 8 : at + 10]
        kind = json_request_kind(data, at) if first == _IN_JSON else binary_request_kind(first)
        backoff = self.backoff
        return kind is SEND or (kind is END and not (backoff.left and backoff.skips_attempt()))

    def add_credit(self, count: int) -> None:
        """Add credit for served requests."""
        self.credit = min(self.credit + count, CREDIT_MAX)

    def pay_for_learning(self) -> bool:
        """Whether to learn from a request that was not served, which costs credit: no, if there
        were too many such requests recently."""
        if self.credit < _LEARN_COST:
            self.credit += 1
            return False
        self.credit -= _LEARN_COST
        return True

    def learn_shape(
        self, data: bytes, at: int, header_end: int, kind: RequestKind
    ) -> RequestShape | None:
        """Learn the shape of a request that was not served. Return None if it has none, or if
        learning is not allowed now."""
        one = learn_shape(data, at, header_end, kind) if self.pay_for_learning() else None
        if one is None:
            return None
        shape = lane_shape(one)
        if shape is None:
            return None
        (self.sends if kind is SEND else self.ends).add(one, shape)
        self.wants_ids |= shape.wants_id
        return one
