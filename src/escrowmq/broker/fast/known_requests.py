"""What is known of the requests of one connection: which may take the fast path
(broker/fast/fast_path), and what they have in common."""

from __future__ import annotations

from typing import Final

from escrowmq.base.codes import Request
from escrowmq.broker.fast.backoff import Backoff
from escrowmq.broker.fast.lane_input import end_shape_of, json_shape_of, shape_of
from escrowmq.broker.fast.publish_grants import GrantCache
from escrowmq.codec.json_shapes import JsonSendShape, learn_json_send
from escrowmq.codec.request_shapes import EndShape, SendShape, learn_end, learn_send
from escrowmq.lane.native import EndShape as GivenEnd
from escrowmq.lane.native import JsonShape, Shape

SENDS: Final = (Request.SEND_MESSAGE_V2, Request.SEND_BATCH_MESSAGE)
_BINARY_SENDS: Final = tuple(code.to_bytes(2, "big") for code in SENDS)
BINARY_BATCH: Final = _BINARY_SENDS[1]
_BINARY_END: Final = Request.END_TRANSACTION.to_bytes(2, "big")
JSON_SENDS: Final = tuple(b'{"code":%d,' % code for code in SENDS)
JSON_END: Final = b'{"code":%d,' % Request.END_TRANSACTION
ENDS: Final = (_BINARY_END, JSON_END)
"""The first bytes of the header of an END."""

_SHAPES_MAX: Final = 8
_LEARN_COST: Final = 8
CREDIT_MAX: Final = 64
"""A connection may learn some shapes at first, then one for each number of requests of known
shapes: connections whose requests are never alike do not pay for learning each time."""

_SEND, _END, _JSON = range(3)
_KINDS: Final = {**dict.fromkeys(_BINARY_SENDS, _SEND), _BINARY_END: _END, b'{"': _JSON}
"""The possible headers, by their first two bytes."""


def _left(credit: int) -> int:
    """What remains of a learning credit after a shape was learnt or rejected."""
    return credit - _LEARN_COST if credit >= _LEARN_COST else credit + 1


def _kind_in_json(data: bytes, at: int) -> int | None:
    if data.startswith(JSON_SENDS, at):
        return _SEND
    return _END if data.startswith(JSON_END, at) else None


class KnownRequests:
    """What is known of the requests of one connection."""

    __slots__ = (
        "_json_credit",
        "backoff",
        "credit",
        "ends",
        "ends_for_lane",
        "grants",
        "json_sends",
        "sends",
        "sends_for_lane",
    )  # fmt: skip

    def __init__(self) -> None:
        self.backoff = Backoff()
        """How many ENDs take the general path untried, because earlier ones could not take the fast
        one, as with transactions of several messages."""
        self.sends: list[SendShape] = []
        self.json_sends: list[JsonSendShape] = []
        """Known shapes of sends in JSON, for the native lane only."""
        self.sends_for_lane: list[Shape | JsonShape] = []
        """The shapes of sends in the native lane's form."""
        self.ends: list[EndShape] = []
        self.ends_for_lane: list[GivenEnd] = []
        """The shapes of ENDs in the native lane's form."""
        self.credit = self._json_credit = CREDIT_MAX
        self.grants = GrantCache()

    def note_known(self, count: int) -> None:
        """Count requests of known shapes."""
        self.credit = min(self.credit + count, CREDIT_MAX)

    def may_learn(self) -> bool:
        """Whether to learn the shape of a request that was not known."""
        credit = self.credit
        self.credit = _left(credit)
        return credit >= _LEARN_COST

    def is_short(self, data: bytes, at: int) -> bool:
        """Whether a request that may take the fast path starts at a position; checked before
        anything else."""
        kind = _KINDS.get(data[at + 8 : at + 10])
        if kind is _JSON:
            kind = _kind_in_json(data, at + 8)
        backoff = self.backoff
        return kind is _SEND or (kind is _END and not (backoff.left and backoff.take()))

    def learn_send(self, data: bytes, at: int, header_end: int) -> None:
        """Learn the shape of a send."""
        if self.may_learn() and (shape := learn_send(data, at, header_end)) is not None:
            self.sends.insert(0, shape)
            del self.sends[_SHAPES_MAX:]
            self._tell_of_sends()

    def learn_json_send(self, data: bytes, at: int, header_end: int) -> None:
        """Learn the shape of a send whose JSON header begins at a position."""
        if any(shape.may_match(data, at, header_end) for shape in self.json_sends):
            return  # it was something else that kept the lane from serving it
        credit = self._json_credit
        self._json_credit = _left(credit)
        if credit < _LEARN_COST:
            return
        if (shape := learn_json_send(data, at, header_end)) is not None:
            self.json_sends.insert(0, shape)
            del self.json_sends[_SHAPES_MAX:]
            self._tell_of_sends()

    def _tell_of_sends(self) -> None:
        told = *map(shape_of, self.sends), *map(json_shape_of, self.json_sends)
        self.sends_for_lane = [one for one in told if one is not None]

    def learn_end(self, data: bytes, at: int, header_end: int) -> None:
        """Learn the shape of an END."""
        if self.may_learn() and (shape := learn_end(data, at, header_end)) is not None:
            self.ends.insert(0, shape)
            del self.ends[_SHAPES_MAX:]
            known = map(end_shape_of, self.ends)
            self.ends_for_lane = [one for one in known if one is not None]
