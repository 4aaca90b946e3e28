"""What is known of the requests of one connection: which may be served by the short cut
(broker/fast/shortcut), and what they have in common."""

from __future__ import annotations

from typing import Final

from escrowmq.base.codes import Request
from escrowmq.broker.fast.passes import Passes
from escrowmq.broker.fast.publish_standings import Known
from escrowmq.broker.fast.stretches import end_shape_of, json_shape_of, shape_of
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
"""How the header of an END begins."""

_SHAPES_MAX: Final = 8
_LEARN_COST: Final = 8
CREDIT_MAX: Final = 64
"""A connection learns a shape for every so many requests of a known one, and some at first: whose
requests are never alike does not pay for it each time."""

_SEND, _END, _JSON = range(3)
_KINDS: Final = {**dict.fromkeys(_BINARY_SENDS, _SEND), _BINARY_END: _END, b'{"': _JSON}
"""What a header may be, by its first two bytes."""


def _left(credit: int) -> int:
    """What is left of a credit by which something is learnt, or was too much to be."""
    return credit - _LEARN_COST if credit >= _LEARN_COST else credit + 1


def _kind_in_json(data: bytes, at: int) -> int | None:
    if data.startswith(JSON_SENDS, at):
        return _SEND
    return _END if data.startswith(JSON_END, at) else None


class Habits:
    """What is known of the requests of one connection."""

    __slots__ = (
        "_json_credit", "credit", "end_stretches", "ends", "json_sends", "passes", "sends",
        "standing", "stretches",
    )  # fmt: skip

    def __init__(self) -> None:
        self.passes = Passes()
        """Of ENDs, by the general way unasked: those before them had to be asked more, as those of
        transactions of several messages have to be."""
        self.sends: list[SendShape] = []
        self.json_sends: list[JsonSendShape] = []
        """These are of use to the lane alone."""
        self.stretches: list[Shape | JsonShape] = []
        """What the compiled lane is told of those that it serves."""
        self.ends: list[EndShape] = []
        self.end_stretches: list[GivenEnd] = []
        """What the compiled lane is told of those that it serves."""
        self.credit = self._json_credit = CREDIT_MAX
        self.standing = Known()

    def note_known(self, count: int) -> None:
        """So many requests were of known shapes."""
        self.credit = min(self.credit + count, CREDIT_MAX)

    def may_learn(self) -> bool:
        """A request was of no known shape: whether to learn it."""
        credit = self.credit
        self.credit = _left(credit)
        return credit >= _LEARN_COST

    def is_short(self, data: bytes, at: int) -> bool:
        """Whether a request starts at a place that may be served here: asked before all else."""
        kind = _KINDS.get(data[at + 8 : at + 10])
        if kind is _JSON:
            kind = _kind_in_json(data, at + 8)
        passes = self.passes
        return kind is _SEND or (kind is _END and not (passes.left and passes.take()))

    def learn_send(self, data: bytes, at: int, header_end: int) -> None:
        """The next send like this one is of a known shape."""
        if self.may_learn() and (shape := learn_send(data, at, header_end)) is not None:
            self.sends.insert(0, shape)
            del self.sends[_SHAPES_MAX:]
            self._tell_of_sends()

    def learn_json_send(self, data: bytes, at: int, header_end: int) -> None:
        """The same where its header, which begins at a place, is in JSON."""
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
        self.stretches = [one for one in told if one is not None]

    def learn_end(self, data: bytes, at: int, header_end: int) -> None:
        """The next END like this one is of a known shape."""
        if self.may_learn() and (shape := learn_end(data, at, header_end)) is not None:
            self.ends.insert(0, shape)
            del self.ends[_SHAPES_MAX:]
            known = map(end_shape_of, self.ends)
            self.end_stretches = [one for one in known if one is not None]
