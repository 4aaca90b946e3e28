"""Facts about a setting: when a change takes effect, whether it is a secret, its unit and its
bounds. Stored in the `extra` of its Meta; code that changes, shows or documents settings reads them
here."""

from __future__ import annotations

import functools
import typing
from typing import Final, Literal

import msgspec

from escrowmq.base.fixed_limits import LONG_MAX

Holds = Literal["fixed", "restart", "live"]

FIXED: Final = {"holds": "fixed"}
"""No request changes the setting, because it must stay the same while the broker exists: a name, an
address, the form of a file, who is an operator."""

RESTART: Final = {"holds": "restart"}
"""The setting is read once: a change is saved, and takes effect at the next start. The default."""

LIVE: Final = {"holds": "live"}
"""The setting is read each time, so a change takes effect immediately. A test finds code that keeps
a copy of the value."""

SECRET: Final = {"secret": "yes"}
"""The setting contains a password, which is never shown."""

_UNITS: Final = {
    "_ms": "ms",
    "_s": "s",
    "_hours": "h",
    "_size": "bytes",
    "_percent": "%",
    "_per_s": "a second",
}
_SAID: Final = {"ms": "milliseconds", "s": "seconds", "h": "hours", "%": "percent"}


def parse_setting_value(text: str, kind: object) -> object:
    """Convert a text to the value of a setting of this type; raises msgspec.ValidationError if it
    is invalid. Numbers have at most 64 bits."""
    plain = text.lower() if text.lower() in ("true", "false") else text
    found: object = msgspec.convert(plain, kind, strict=False)
    if isinstance(found, int) and abs(found) > LONG_MAX:
        raise msgspec.ValidationError("Expected a number of 64 bits")
    return found


def unit_in_words(field: str) -> str:
    """Return the unit of a setting in words, from the name of its field; empty without one."""
    unit = _unit_of_field(field)
    return _SAID.get(unit, unit if unit == "bytes" else "")


def _unit_of_field(field: str) -> str:
    # The longest end counts: a rate is no span.
    ends = sorted(_UNITS, key=len, reverse=True)
    measured = field.removesuffix("_max")
    return next((_UNITS[end] for end in ends if measured.endswith(end)), "")


class Setting(msgspec.Struct, frozen=True):
    """One setting of a table."""

    name: str
    """The setting's name in files and requests."""

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
    """Return the fields of a table of settings, cached. msgspec determines their types each time:
    10 ms per table, which a broker needs several times when it starts."""
    return msgspec.structs.fields(table)


def settings_of(table: type[msgspec.Struct]) -> list[Setting]:
    """Return all settings of a table, in order."""
    hints = typing.get_type_hints(table, include_extras=True)
    return [_describe_setting(field, hints[field.name]) for field in fields_of(table)]


def _describe_setting(field: msgspec.structs.FieldInfo, hint: object) -> Setting:
    metas = [part for part in typing.get_args(hint)[1:] if isinstance(part, msgspec.Meta)]
    meta = metas[0] if metas else msgspec.Meta()
    extra = meta.extra or {}
    return Setting(
        name=field.encode_name,
        field=field.name,
        default=field.default,
        holds=extra.get("holds", "restart"),
        is_secret="secret" in extra,
        unit=_unit_of_field(field.name),
        low=meta.ge,
        high=meta.le,
        description=meta.description or "",
    )
