"""Parses encoded properties that can be stored as they were received. The positions of the values
that the broker needs are determined once for each sequence of names."""

from __future__ import annotations

from collections.abc import Container, Iterable
from typing import Final, NamedTuple

PLAIN_KEYS_MAX: Final = 4
"""The most keys of a message that the fast path accepts. Each costs time when the message is
indexed."""

_NAMES_MAX: Final = 32
_PLANS_MAX: Final = 1024
_TEXT: Final = bytes(range(256)).translate(None, b"\x01\x02")


class PropertiesPlan(NamedTuple):
    """The positions of the values that the broker needs, in properties with certain names; -1 for a
    value that is missing."""

    separators: bytes
    key: int
    tags: int
    keys: int
    is_half: int
    group: int


class PlainProperties:
    """Recognises encoded properties that can be stored unchanged: their names are known in this
    order, and the broker acts on none of them."""

    def __init__(self, special: Container[str], special_of_half: Container[str]) -> None:
        self._special = special
        self._special_of_half = special_of_half
        self.plans: dict[tuple[bytes, ...], PropertiesPlan | None] = {}
        """The plan for each sequence of names; None if such properties must be decoded one by
        one."""

    def read(self, encoded: bytes) -> tuple[PropertiesPlan, list[bytes]] | None:
        """Split properties that end with a separator. Return their plan and fields; None if they
        must be decoded one by one."""
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
        """Whether the broker acts on none of these properties, in a message that is not a half."""
        return not any(name in self._special or name == "TRAN_MSG" for name in names)

    def _learn(self, names: tuple[bytes, ...]) -> PropertiesPlan | None:
        if len(names) > _NAMES_MAX:
            return None
        if len(self.plans) >= _PLANS_MAX:
            self.plans.clear()
        plan = self.plans[names] = self._plan(names)
        return plan

    def _plan(self, names: tuple[bytes, ...]) -> PropertiesPlan | None:
        if len(set(names)) < len(names) or b"" in names or b"UNIQ_KEY" not in names:
            return None
        special = self._special_of_half if b"TRAN_MSG" in names else self._special
        if any(name.decode("ascii") in special for name in names):
            return None
        values = {name: 2 * nth + 1 for nth, name in enumerate(names)}
        looked_at = (b"UNIQ_KEY", b"TAGS", b"KEYS", b"TRAN_MSG", b"PGROUP")
        return PropertiesPlan(
            b"\x01\x02" * len(names), *[values.get(name, -1) for name in looked_at]
        )
