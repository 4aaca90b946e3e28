"""The requests that one connection repeats: which may take the fast path (broker/fast/fast_path),
and what they have in common."""

from __future__ import annotations

from typing import Final

from escrowmq.base.codes import Request
from escrowmq.broker.fast.backoff import Backoff
from escrowmq.broker.fast.lane_input import shape_of
from escrowmq.broker.fast.publish_grants import GrantCache
from escrowmq.codec.alike import END, SEND, Alike, Kind, learn
from escrowmq.lane.native import Shape

_SENDS: Final = (Request.SEND_MESSAGE_V2, Request.SEND_BATCH_MESSAGE)
_BINARY_SENDS: Final = tuple(code.to_bytes(2, "big") for code in _SENDS)
_BINARY_END: Final = Request.END_TRANSACTION.to_bytes(2, "big")
_IN_JSON: Final = b'{"'
_JSON_SENDS: Final = tuple(b'{"code":%d,' % code for code in _SENDS)
_JSON_END: Final = b'{"code":%d,' % Request.END_TRANSACTION
ENDS: Final = (_BINARY_END, _JSON_END)
"""The first bytes of the header of an END."""

_SHAPES_MAX: Final = 8
_LEARN_COST: Final = 4
CREDIT_MAX: Final = 128
"""A connection may teach some shapes and queues at first, then one for each number of requests: it
does not pay for learning each time where its requests are never alike."""

_KINDS: Final = {**dict.fromkeys(_BINARY_SENDS, SEND), _BINARY_END: END}
kind_in_binary: Final = _KINDS.get
"""The kind of a request that may take the fast path, by the first two bytes of a binary header."""


def kind_in_json(data: bytes, at: int) -> Kind | None:
    """The kind of a request whose header may be in JSON."""
    if data.startswith(_JSON_SENDS, at + 8):
        return SEND
    return END if data.startswith(_JSON_END, at + 8) else None


class Shapes:
    """Shapes of one kind, the newest first."""

    __slots__ = ("alike", "for_lane")

    def __init__(self) -> None:
        self.alike: list[Alike] = []
        self.for_lane: list[Shape] = []
        """The same in the native lane's form."""

    def add(self, one: Alike, shape: Shape) -> None:
        """Add a shape, unless it is there already."""
        if any(one.pieces == other.pieces for other in self.alike):
            return
        self.alike.insert(0, one)
        self.for_lane.insert(0, shape)
        del self.alike[_SHAPES_MAX:], self.for_lane[_SHAPES_MAX:]


class KnownRequests:
    """The shapes of the requests that one connection repeats."""

    __slots__ = ("backoff", "credit", "ends", "grants", "sends", "wants_ids")

    def __init__(self) -> None:
        self.backoff = Backoff()
        """How many ENDs take the general path untried, because earlier ones could not take the fast
        one, as with transactions of several messages."""
        self.sends, self.ends = Shapes(), Shapes()
        self.wants_ids = False
        """Whether its halves may request signed ids."""
        self.credit = CREDIT_MAX
        """Grows with each request that is served."""
        self.grants = GrantCache()

    def is_short(self, data: bytes, at: int) -> bool:
        """Whether a request that may take the fast path starts at a position; checked before
        anything else."""
        first = data[at + 8 : at + 10]
        kind = kind_in_json(data, at) if first == _IN_JSON else kind_in_binary(first)
        backoff = self.backoff
        return kind is SEND or (kind is END and not (backoff.left and backoff.take()))

    def note_known(self, count: int) -> None:
        """Count requests that were served."""
        self.credit = min(self.credit + count, CREDIT_MAX)

    def may_learn(self) -> bool:
        """Whether to learn from a request that was not served: not if there were too many such
        requests lately."""
        if self.credit < _LEARN_COST:
            self.credit += 1
            return False
        self.credit -= _LEARN_COST
        return True

    def learn(self, data: bytes, at: int, header_end: int, kind: Kind) -> Alike | None:
        """Learn the shape of a request that was not served; None if there is none, or it may not
        be learnt."""
        one = learn(data, at, header_end, kind) if self.may_learn() else None
        if one is None:
            return None
        shape = shape_of(one)
        if shape is None:
            return None
        (self.sends if kind is SEND else self.ends).add(one, shape)
        self.wants_ids |= shape.wants_id
        return one
