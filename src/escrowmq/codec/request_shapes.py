"""Similar send requests: what one sender's requests have in common is parsed once.

A producer's requests to a topic differ only in their number, queue, time and properties, and in
their signature if they have one. The first of them is parsed as usual; those that follow are parsed
by one `struct` call, and verified in all other bytes by one comparison. A request that does not
match is parsed as usual."""

from __future__ import annotations

import struct
from collections.abc import Container, Iterable
from typing import Final, NamedTuple, TypeVar

import msgspec

from escrowmq.base.command import Command, Int
from escrowmq.base.own_properties import WANTS_ID
from escrowmq.codec.binary_header import field_spans
from escrowmq.codec.command import BINARY, decode_header
from escrowmq.codec.hashes import tags_code
from escrowmq.codec.headers import EndTransactionHeader, SendHeaderV2, read_header
from escrowmq.codec.own_signature import NUMBER
from escrowmq.codec.signature import ACCESS_KEY, SIGNATURE
from escrowmq.codec.texts import is_text
from escrowmq.errors import EscrowMQError

H = TypeVar("H", SendHeaderV2, EndTransactionHeader)

_FIXED_SIZE: Final = 29
"""Of a binary header without a remark, with the beginning of its frame."""

_NUMBER_SIZE_MAX: Final = 18
_VARIES: Final = (b"e", b"g", b"i")
"""Queue, time and properties, in this order."""

_SIGNATURE: Final = SIGNATURE.encode()
_SIGNATURE_SIZE: Final = 28
NEVER_ALIKE: Final = {NUMBER, "_UNIQUE_KEY_QUERY"}
"""Fields of signed requests that are different each time, or not signed."""

_DIGITS_MAX: Final = 9
_LONG_DIGITS_MAX: Final = 18
_TRUTHS: Final = ("false", "true")
_END_VARIES: Final = (b"tranStateTableOffset", b"commitLogOffset", b"transactionId", b"msgId")
_END_NAMES: Final = {
    *_END_VARIES,
    *(b"producerGroup", b"bname", b"topic", b"commitOrRollback", b"fromTransactionCheck"),
}

PLAIN_KEYS_MAX: Final = 4
"""With more keys in a message, its input may be too much for one turn."""

_NAMES_MAX: Final = 32
_PLANS_MAX: Final = 1024
_TEXT: Final = bytes(range(256)).translate(None, b"\x01\x02")


Alike = tuple[bytes, bytes, bytes, bytes]
"""What varies between requests of one shape, in raw form: opaque, queue, time, properties. (A plain
tuple: a named one takes a microsecond to make.)"""


class SendShape:
    """A shape of binary send requests: all bytes of the header, apart from the values in these
    fields."""

    __slots__ = (
        "_back", "_consts", "_front_size", "_unpack", "flag", "front", "header", "signed", "spans",
        "suffix", "wants_id",
    )  # fmt: skip

    def __init__(
        self, data: bytes, at: int, header_end: int, spans: list[tuple[int, int]], flag: int
    ) -> None:
        (queue, queue_end), (born, born_end), (properties, properties_end) = spans
        first = at + _FIXED_SIZE
        self._unpack = struct.Struct(
            f">8x5s4s8sI{queue - first}s{queue_end - queue}s{born - queue_end}s"
            f"{born_end - born}s{properties - 4 - born_end}sI"
        ).unpack_from
        self._consts = self._unpack(data, at)[::2]
        self._front_size = properties - at
        self.front = data[at:properties]
        """Up to the properties."""
        self.spans = queue - at, queue_end - at, born - at, born_end - at
        """The positions of queue and time in it."""
        self.suffix = data[properties_end:header_end]
        """The header after the properties; for signed requests, up to the signature."""
        self._back = b""
        """The header after the signature."""
        self.signed: Signed | None = None
        self.flag = flag
        self.header: SendHeaderV2
        """Of the request from which it was learnt."""
        self.wants_id = False
        """Whether its sender requests a signed id for a half."""

    def match(self, data: bytes, at: int, header_end: int) -> Alike | None:
        """The varying parts of the request at a position; None if it has another shape."""
        properties = at + self._front_size
        if properties > header_end:
            return None
        parts = self._unpack(data, at)
        if parts[::2] != self._consts:
            return None
        _, opaque, _, fields_size, _, queue, _, born, _, size = parts
        end, suffix_end = properties + size, header_end
        if self.signed is not None:
            suffix_end -= _SIGNATURE_SIZE + len(self._back)
        if (
            end > suffix_end  # it says more than there is: the body is not its own
            or data[end:suffix_end] != self.suffix
            or (
                suffix_end < header_end
                and not data.startswith(self._back, header_end - len(self._back))
            )
            or fields_size != header_end - at - _FIXED_SIZE
        ):
            return None
        return opaque, queue, born, data[properties:end]

    def leave_out(self, signed: Signed, begin: int, end: int) -> None:
        """The signature is this far after the properties, and varies."""
        self.signed, self._back = signed, self.suffix[end:]
        self.suffix = self.suffix[:begin]

    def signature(self, data: bytes, header_end: int) -> bytes:
        """The signature of a signed request of this shape."""
        end = header_end - len(self._back)
        return data[end - _SIGNATURE_SIZE : end]


class Signed:
    """What requests of one shape are signed over: the values of their fields, sorted by name."""

    def __init__(self, data: bytes, spans: dict[bytes, tuple[int, int]], access_key: str) -> None:
        names = sorted(name for name in spans if name != _SIGNATURE)
        self._parts = [data[slice(*spans[name])] for name in names]
        self._places = [names.index(name) for name in _VARIES]
        self.access_key = access_key
        """The access key."""

    def content(self, queue: bytes, born: bytes, properties: bytes) -> bytes:
        """The signed content of one of them, without its body."""
        parts = self._parts
        for place, value in zip(self._places, (queue, born, properties), strict=True):
            parts[place] = value
        return b"".join(parts)


class EndShape:
    """All bytes of a binary END's header except its number, and the half that it names."""

    __slots__ = ("_consts", "_order", "_unpack", "flag", "front", "header", "spans")

    def __init__(
        self, data: bytes, at: int, header_end: int, spans: dict[bytes, tuple[int, int]]
    ) -> None:
        pieces, last = ["8x5s4s"], at + 17
        places = sorted((spans[name], nth) for nth, name in enumerate(_END_VARIES))
        for (begin, end), _ in places:
            pieces.append(f"{begin - last}s{end - begin}s")
            last = end
        self._unpack = struct.Struct(f">{''.join(pieces)}{header_end - last}s").unpack_from
        self._consts = self._unpack(data, at)[::2]
        order = [nth for _, nth in places]
        self._order = tuple(2 * order.index(nth) + 3 for nth in range(len(_END_VARIES)))
        self.front = data[at:header_end]
        """All of the frame."""
        self.spans = [(spans[name][0] - at, spans[name][1] - at) for name in _END_VARIES]
        """The positions of queue offset, log offset, transaction id and message id in it."""
        self.flag: int
        self.header: EndTransactionHeader
        """Of the request from which it was learnt."""

    def match(self, data: bytes, at: int, header_end: int) -> Alike | None:
        """Queue offset, log offset and transaction id of the request at a position; None if it has
        another shape."""
        if header_end - at != len(self.front):
            return None
        parts = self._unpack(data, at)
        if parts[::2] != self._consts:
            return None
        queue_offset, log_offset, key, message_id = self._order
        if not parts[message_id].isascii():  # if it is no text, the request is broken
            return None
        return parts[1], parts[queue_offset], parts[log_offset], parts[key]


def learn_end(data: bytes, at: int, header_end: int) -> EndShape | None:
    """The shape of the END whose frame starts at a position; None if similar requests are
    unlikely."""
    read = _read(data, at, header_end, EndTransactionHeader)
    if read is None:
        return None
    command, header = read
    spans = field_spans(data, at + _FIXED_SIZE, header_end)
    is_plain = set(_END_VARIES) <= spans.keys() <= _END_NAMES
    if not is_plain or any(begin == end for begin, end in spans.values()):
        return None
    shape = EndShape(data, at, header_end, spans)
    shape.flag, shape.header = command.flag, header
    return shape


def learn_send(data: bytes, at: int, header_end: int) -> SendShape | None:
    """The shape of the send request (version 2) whose frame starts at a position; None if similar
    requests are unlikely."""
    read = _read(data, at, header_end, SendHeaderV2)
    if read is None:
        return None
    command, header = read
    found = field_spans(data, at + _FIXED_SIZE, header_end)
    places = [found[name] for name in _VARIES if name in found]
    if len(places) < len(_VARIES) or places != sorted(places):
        return None
    if any(not 0 < end - begin <= _NUMBER_SIZE_MAX for begin, end in places[:2]):
        return None
    ext = command.ext or {}
    shape = SendShape(data, at, header_end, places, command.flag)
    shape.header, shape.wants_id = header, ext.get(WANTS_ID) == "true"
    signature = found.get(_SIGNATURE)
    if signature is not None:
        begin, end = signature
        is_plain = end - begin == _SIGNATURE_SIZE and begin > places[-1][1] and ext.get(ACCESS_KEY)
        if not is_plain or not NEVER_ALIKE.isdisjoint(ext):
            return None
        signed = Signed(data, found, ext[ACCESS_KEY])
        shape.leave_out(signed, begin - places[-1][1], end - places[-1][1])
    return shape if shape.match(data, at, header_end) is not None else None


def _read(data: bytes, at: int, header_end: int, kind: type[H]) -> tuple[Command, H] | None:
    """The request whose frame starts at a position, parsed as usual."""
    if int.from_bytes(data[at + 25 : at + 29], "big") != header_end - at - _FIXED_SIZE:
        return None  # it has a remark, or does not fit
    try:
        command = decode_header(data[at + 8 : header_end], BINARY)
        return command, read_header(kind, command.ext)
    except EscrowMQError:
        return None


class _Fields(msgspec.Struct):
    b: str
    e: str
    f: str
    g: str
    i: str
    d: str = "0"
    h: str = "0"
    j: str = "0"
    k: str = "false"
    l: str = "0"  # noqa: E741
    m: str = "false"
    escrowWantsId: str = ""  # noqa: N815 - the wire's spelling

    @property
    def are_plain(self) -> bool:
        """Whether numbers and booleans are in clients' usual form."""
        numbers = self.d, self.e, self.f, self.h, self.j, self.l
        return (
            all(map(_is_int, numbers))
            and _is_long(self.g)
            and self.k in _TRUTHS
            and self.m in _TRUTHS
        )


class JsonSend(msgspec.Struct):
    """A send request (version 2) in JSON, for a plain message."""

    extFields: _Fields  # noqa: N815 - the wire's spelling
    code: Int
    opaque: Int
    flag: Int = 0


class _EndFields(msgspec.Struct, rename="camel"):
    producer_group: str
    tran_state_table_offset: str
    commit_log_offset: str
    commit_or_rollback: str
    transaction_id: str
    from_transaction_check: str = "false"
    escrow_id: str = ""
    escrow_count: str = ""

    @property
    def are_plain(self) -> bool:
        """Whether offsets are in clients' usual form."""
        return _is_long(self.tran_state_table_offset) and _is_long(self.commit_log_offset)


class JsonEnd(msgspec.Struct):
    """An END in JSON, for an ordinary half."""

    extFields: _EndFields  # noqa: N815 - the wire's spelling
    code: Int
    opaque: Int
    flag: Int = 0


class _JsonFields(msgspec.Struct):
    extFields: dict[str, str]  # noqa: N815 - the wire's spelling


_decode_fields: Final = msgspec.json.Decoder(_JsonFields).decode
_decode_end: Final = msgspec.json.Decoder(JsonEnd).decode
_decode_send: Final = msgspec.json.Decoder(JsonSend).decode


def read_json_send(data: bytes) -> JsonSend | None:
    """Decode a JSON header; None if it is not in clients' usual form."""
    if not is_text(data):
        return None
    try:
        found = _decode_send(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.extFields.are_plain else None


def read_json_fields(data: bytes) -> dict[str, str] | None:
    """All fields of a JSON header, by name."""
    if not is_text(data):
        return None
    try:
        return _decode_fields(data).extFields
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


def read_json_end(data: bytes) -> JsonEnd | None:
    """Decode the JSON header of an END; None if it is not in clients' usual form."""
    if not is_text(data):
        return None
    try:
        found = _decode_end(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return found if found.extFields.are_plain else None


def _is_int(text: str) -> bool:
    return len(text) <= _DIGITS_MAX and _is_long(text)


def _is_long(text: str) -> bool:
    return (
        len(text) <= _LONG_DIGITS_MAX
        and text.isascii()
        and text.isdigit()
        and (text[0] != "0" or len(text) == 1)
    )


class Plan(NamedTuple):
    """For properties with certain names, the positions of the values that the broker needs; -1 if
    one is missing."""

    separators: bytes
    key: int
    tags: int
    keys: int
    is_half: int
    group: int

    def keys_in(self, fields: list[bytes]) -> tuple[bytes, ...]:
        """The keys of a message."""
        if self.keys < 0:
            return ()
        return tuple(filter(None, fields[self.keys].split(b" ")))

    def tags_code_in(self, fields: list[bytes]) -> int:
        """The hash of its tags for a queue."""
        return tags_code(fields[self.tags].decode()) if self.tags >= 0 else 0


class Properties:
    """Encoded properties that can be stored unchanged: the same names, in the same order, were seen
    before, and the broker acts on none of them, in a message or in a half."""

    def __init__(self, special: Container[str], special_of_half: Container[str]) -> None:
        self._special = special
        self._special_of_half = special_of_half
        self.plans: dict[tuple[bytes, ...], Plan | None] = {}
        """By the names; None if such properties must be decoded one by one."""

    def read(self, encoded: bytes) -> tuple[Plan, list[bytes]] | None:
        """The plan for properties that end with a separator; None if they must be decoded one by
        one."""
        if b"\x01\x02" in encoded or not encoded.isascii():
            return None
        fields = encoded.replace(b"\x02", b"\x01").split(b"\x01")
        del fields[-1]
        names = tuple(fields[::2])
        plans = self.plans
        try:
            plan = plans[names]
        except KeyError:
            plan = self._learn(names)
        if plan is None or encoded.translate(None, _TEXT) != plan.separators:
            return None
        return plan, fields

    def are_plain(self, names: Iterable[str]) -> bool:
        """Whether the broker acts on none of these, in a message that is not a half."""
        return not any(name in self._special or name == "TRAN_MSG" for name in names)

    def _learn(self, names: tuple[bytes, ...]) -> Plan | None:
        if len(names) > _NAMES_MAX:
            return None
        if len(self.plans) >= _PLANS_MAX:
            self.plans.clear()
        plan = self.plans[names] = self._plan(names)
        return plan

    def _plan(self, names: tuple[bytes, ...]) -> Plan | None:
        if len(set(names)) < len(names) or b"" in names or b"UNIQ_KEY" not in names:
            return None
        special = self._special_of_half if b"TRAN_MSG" in names else self._special
        if any(name.decode("ascii") in special for name in names):
            return None
        values = {name: 2 * nth + 1 for nth, name in enumerate(names)}
        looked_at = (b"UNIQ_KEY", b"TAGS", b"KEYS", b"TRAN_MSG", b"PGROUP")
        return Plan(b"\x01\x02" * len(names), *[values.get(name, -1) for name in looked_at])


def are_plain_numbers(one: bytes, other: bytes) -> bool:
    """Whether both are numbers in clients' usual form: the general path handles other forms."""
    return (
        one.isdigit()
        and other.isdigit()
        and len(one) <= _LONG_DIGITS_MAX
        and len(other) <= _LONG_DIGITS_MAX
        and (one[0] != 48 or len(one) == 1)
        and (other[0] != 48 or len(other) == 1)
    )
