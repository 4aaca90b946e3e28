"""What a setting knows about itself: from when on a change of it holds, whether it is a secret, its
unit and its bounds. Stands in the `extra` of its Meta; whoever changes, shows or documents settings
asks here."""

from __future__ import annotations

import functools
import typing
from typing import Final, Literal

import msgspec

Holds = Literal["fixed", "restart", "live"]

FIXED: Final = {"holds": "fixed"}
"""From start to end: a name, an address, the form of a file, who is an operator. No request changes
it."""

RESTART: Final = {"holds": "restart"}
"""It is read once: a change is kept, and holds from the next start. So is one that says nothing."""

LIVE: Final = {"holds": "live"}
"""Its owner reads it each time: a change holds at once. A test finds those who keep a copy."""

SECRET: Final = {"secret": "yes"}
"""There is a password in it, which nobody is shown."""

_UNITS: Final = {
    "_ms": "ms",
    "_s": "s",
    "_hours": "h",
    "_size": "bytes",
    "_percent": "%",
    "_per_s": "a second",
}
_SAID: Final = {"ms": "milliseconds", "s": "seconds", "h": "hours", "%": "percent"}


def unit_in_words(field: str) -> str:
    """The unit of a setting by the name of its field, as a sentence says it; empty without one."""
    unit = _unit(field)
    return _SAID.get(unit, unit if unit == "bytes" else "")


def _unit(field: str) -> str:
    # The longest end counts: a rate is no span.
    ends = sorted(_UNITS, key=len, reverse=True)
    measured = field.removesuffix("_max")
    return next((_UNITS[end] for end in ends if measured.endswith(end)), "")


class Setting(msgspec.Struct, frozen=True):
    """One setting of a table."""

    name: str
    """As files and requests spell it."""

    field: str
    default: object
    holds: Holds = "restart"
    is_secret: bool = False
    unit: str = ""
    low: int | float | None = None
    high: int | float | None = None
    description: str = ""


@functools.cache
def fields_of(table: type[msgspec.Struct]) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The fields of a table of settings. msgspec finds out their types anew each time: 10 ms for a
    table, which a broker asks for several times when it starts."""
    return msgspec.structs.fields(table)


def settings_of(table: type[msgspec.Struct]) -> list[Setting]:
    """All of a table, in their order."""
    hints = typing.get_type_hints(table, include_extras=True)
    return [_setting(field, hints[field.name]) for field in fields_of(table)]


def _setting(field: msgspec.structs.FieldInfo, hint: object) -> Setting:
    metas = [part for part in typing.get_args(hint)[1:] if isinstance(part, msgspec.Meta)]
    meta = metas[0] if metas else msgspec.Meta()
    extra = meta.extra or {}
    return Setting(
        name=field.encode_name,
        field=field.name,
        default=field.default,
        holds=extra.get("holds", "restart"),
        is_secret="secret" in extra,
        unit=_unit(field.name),
        low=meta.ge,
        high=meta.le,
        description=meta.description or "",
    )
