"""Batches of plain messages, put into a run: a whole batch or none of it."""

from __future__ import annotations

from typing import Final

from escrowmq.base.fixed_limits import BATCH_AT_ONCE_MAX, PROPERTIES_SIZE_MAX
from escrowmq.base.message import SysFlag
from escrowmq.broker.fast.lane_input import tail_given
from escrowmq.broker.sends.forbidden_to_senders import ODD
from escrowmq.codec.batch import decode_part
from escrowmq.codec.entries import ENTRY_SIZE
from escrowmq.codec.ids import offset_id
from escrowmq.codec.properties import parse_properties
from escrowmq.codec.request_shapes import PLAIN_KEYS_MAX, Properties
from escrowmq.errors import RemoteProtocolError
from escrowmq.lane.native import LayOutBatch, Moment
from escrowmq.store.encoding import ended
from escrowmq.store.run import Common, Piece, Run, Tail

_UNNAMED_MAX: Final = 64


Entries = tuple[bytes, int, int]
"""Bytes, and where in them messages begin and end."""


class ShortBatches:
    """Puts batches."""

    def __init__(self, run: Run, host: bytes, properties: Properties, body_size_max: int) -> None:
        self._run = run
        self._host = host
        self._properties = properties
        self._body_size_max = body_size_max
        self.unnamed: dict[bytes, bool] = {}
        """Whether properties of batches without a key are plain, by their text."""

    def key_of(self, properties: bytes) -> bytes | None:
        """The unique key of a batch in its sender's properties, empty when it has none, as from
        most clients; None when the general path must decide."""
        properties = ended(properties)
        if b"UNIQ_KEY\x01" in properties:
            found = self._properties.read(properties)
            if found is None or found[0].is_half >= 0:
                return None
            return found[1][found[0].key]
        is_plain = self.unnamed.get(properties)
        if is_plain is None:
            if len(self.unnamed) >= _UNNAMED_MAX:
                self.unnamed.clear()
            is_plain = self.unnamed[properties] = self._are_plain(properties)
        return b"" if is_plain else None

    def _are_plain(self, properties: bytes) -> bool:
        """Whether the properties of a batch are plain. They are not stored; invalid text makes the
        header unreadable."""
        try:
            names = parse_properties(properties.decode()).keys()
        except UnicodeDecodeError:
            return False
        return self._properties.are_plain(names)

    def put(
        self,
        lay_out: LayOutBatch | None,
        tail: Tail,
        entries: Entries,
        common: Common,
        suffix: bytes,
        moment: Moment,
    ) -> tuple[bytes, int] | None:
        """Put the messages, each with the suffix after its properties. Returns their places, as in
        the answer, and their number. None, with nothing done, when one is not plain, or when there
        is no space for all."""
        if common.sys_flag & (ODD | SysFlag.TRANSACTION_MASK):
            return None
        if lay_out is not None:
            laid_out = lay_out(*entries, self._properties.plans, tail_given(tail), common, moment)
            if laid_out is not None:
                records, units, keys, ids = laid_out
                self._run.put_laid_out(records, [(tail, units)], keys)
                return ids, len(units) // ENTRY_SIZE
        data, begin, end = entries
        return self._put_plain(tail, data[begin:end], common, suffix)

    def _put_plain(
        self, tail: Tail, entries: bytes, common: Common, suffix: bytes
    ) -> tuple[bytes, int] | None:
        """Put the messages without the native lane, and teach it what is new."""
        found = read_batch(entries, self._properties, suffix, self._body_size_max)
        if found is None:
            return None
        pieces, size = found
        if not self._run.fits(tail, len(pieces), size):
            return None
        places = self._run.put_batch(tail, pieces, common)
        ids = ",".join([offset_id(self._host, at) for at in places])
        return ids.encode(), len(places)


def read_batch(
    entries: bytes, known: Properties, suffix: bytes, body_size_max: int
) -> tuple[list[Piece], int] | None:
    """The messages of a batch, each with the suffix after its properties, and the bytes of their
    bodies and properties; None when one is not plain."""
    try:
        found, end = decode_part(entries, 0, count_max=BATCH_AT_ONCE_MAX)
    except RemoteProtocolError:
        return None
    if not found or end < len(entries):
        return None
    plain: list[Piece] = []
    size, read = 0, known.read
    for flag, body, said in found:
        properties = said if said[-1:] == b"\x02" else said + b"\x02"
        judged = read(properties)
        if judged is None:
            return None
        plan, fields = judged
        keys = plan.keys_in(fields)
        encoded = properties + suffix
        if (
            plan.is_half >= 0
            or len(keys) > PLAIN_KEYS_MAX
            or not 0 < len(body) <= body_size_max
            or len(encoded) > PROPERTIES_SIZE_MAX
        ):
            return None
        size += len(body) + len(encoded)
        plain.append((body, encoded, plan.tags_code_in(fields), flag, fields[plan.key], keys))
    return plain, size
