"""Reads options as Spark passes them: strings under case-insensitive names. Errors say what was
found, what is allowed, and what to do."""

from __future__ import annotations

import difflib
import json
import os
import ssl
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import msgspec

from escrowmq.client.client_settings import Credentials
from escrowmq.client.core.addresses import parse_addresses
from escrowmq.errors import UsageError

_TRUE: Final = {"true": True, "false": False}
_SIZE_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
_TIME_UNITS: Final = {"": 1, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000}
NUMBER_MAX: Final = (1 << 63) - 1
_OF_TABLES: Final = ("provider", "owner", "external", "location", "comment", "collation")
_TABLE_PREFIX: Final = "option."
"""Prefix of a table's options. Spark passes the options of a created table twice: as its
properties, and as options with this prefix."""


class UserOptions:
    """The options that a user gave. Each is read once, by its documented name and its aliases;
    `refuse_others` then raises for any that was not read."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._given = {
            name.lower().removeprefix(_TABLE_PREFIX): value for name, value in options.items()
        }
        self._known: dict[str, str] = {}

    @property
    def is_empty(self) -> bool:
        """Whether the user gave no options, apart from those that Spark adds to a table."""
        return not self._given.keys() - set(_OF_TABLES)

    def has(self, *names: str) -> bool:
        """Whether an option is given, by any of its names."""
        for name in names:
            self._known[name.lower()] = name
        return any(name.lower() in self._given for name in names)

    def text(self, *names: str, default: str = "") -> str:
        """Return an option's text, stripped."""
        found = [name for name in names if self.has(name)]
        if len(found) > 1:
            raise UsageError(f"{' and '.join(found)} mean the same option; give one of them")
        self.has(*names)
        return self._given[found[0].lower()].strip() if found else default

    def choice(self, name: str, *, allowed: Iterable[str], default: str) -> str:
        """Return an option that must be one of several words."""
        found = self.text(name, default=default).lower()
        words = list(allowed)
        if found not in words:
            raise UsageError(f"{name}={found!r}; one of {', '.join(words)} is expected")
        return found

    def flag(self, name: str, *, default: bool) -> bool:
        """Return an option that is true or false."""
        found = self.text(name, default=str(default)).lower()
        if found not in _TRUE:
            raise UsageError(f"{name}={found!r}; true or false is expected")
        return _TRUE[found]

    def number(self, *names: str, default: int, low: int = 0, high: int = NUMBER_MAX) -> int:
        """Return an option that is a whole number within bounds."""
        found = self.text(*names, default=str(default))
        try:
            number = int(found)
        except ValueError:
            number = None
        if number is None or not low <= number <= high:
            upper = "" if high == NUMBER_MAX else f" to {high}"
            raise UsageError(
                f"{names[0]}={found!r}; a whole number from {low}{upper or ' on'} is expected"
            )
        return number

    def size(self, name: str, *, default: int, low: int = 0) -> int:
        """Return an option that is a number of bytes: 1048576, 1024k or 1m."""
        return self._with_unit(name, default, low, _SIZE_UNITS, "bytes, as 1048576, 1024k or 1m,")

    def span_ms(self, name: str, *, default: int, low: int = 0) -> int:
        """Return an option that is a duration, in milliseconds: 1500, 1500ms, 90s or 15m."""
        return self._with_unit(name, default, low, _TIME_UNITS, "a time, as 1500ms, 90s or 15m,")

    def value(self, name: str) -> Any:  # noqa: ANN401 - JSON is what it is
        """Return an option's JSON value."""
        found = self.text(name)
        try:
            return json.loads(found)
        except ValueError as error:
            raise UsageError(f"{name}={found[:80]!r} is not JSON: {error}") from error

    def names(self, *names: str) -> tuple[str, ...]:
        """Return an option's words, separated by commas, without duplicates."""
        words = (word.strip() for word in self.text(*names).split(","))
        return tuple(dict.fromkeys(word for word in words if word))

    def refuse_others(self, *, passed_over: Iterable[str] = ()) -> None:
        """Raise UsageError for the first unknown option, and suggest the most similar name.
        `passed_over` are Spark's own options."""
        passed = {name.lower() for name in [*passed_over, *_OF_TABLES]}
        for name in self._given:
            if name not in self._known and name not in passed:
                near = difflib.get_close_matches(name, self._known, n=1)
                hint = f"; is {self._known[near[0]]} meant?" if near else "; leave it out"
                raise UsageError(f"there is no option {name!r} here{hint}")

    def _with_unit(
        self, name: str, default: int, low: int, units: Mapping[str, int], expected: str
    ) -> int:
        found = self.text(name, default=str(default)).lower()
        digits = found.rstrip("".join(units))
        unit = found[len(digits) :]
        if not digits.isdecimal() or unit not in units or int(digits) * units[unit] < low:
            raise UsageError(f"{name}={found!r}; {expected} from {low} on, is expected")
        return int(digits) * units[unit]


class ClusterAccess(msgspec.Struct, frozen=True, kw_only=True):
    """How to reach brokers and authenticate. It is sent to the executors, so it contains no secret,
    only where each executor finds it."""

    name_servers: tuple[str, ...] = ()
    access_key: str = ""
    secret_key_file: str = ""
    secret_key_env: str = ""
    security_token: str = ""
    uses_tls: bool = False
    tls_ca_file: str = ""
    tls_cert_file: str = ""
    tls_key_file: str = ""
    tls_verifies: bool = True
    tls_checks_name: bool = True

    def credentials(self) -> Credentials | None:
        """Read the secret from where it is configured, and return the client's account; None
        without one."""
        if not self.access_key:
            return None
        if self.secret_key_file:
            try:
                secret = Path(self.secret_key_file).read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                why = error.strerror if isinstance(error, OSError) else "it is no text"
                raise UsageError(
                    f"secretKeyFile={self.secret_key_file!r} cannot be read here: {why}; the "
                    "driver and every executor need it"
                ) from error
        else:
            secret = os.environ.get(self.secret_key_env, "")
        if not secret:
            where = self.secret_key_file or f"environment variable {self.secret_key_env}"
            raise UsageError(f"the secret key in {where} is empty on this machine; set it there")
        return Credentials(self.access_key, secret, self.security_token)

    def tls(self) -> ssl.SSLContext | None:
        """The TLS settings; None for plain connections."""
        if not self.uses_tls:
            return None
        try:
            context = ssl.create_default_context(cafile=self.tls_ca_file or None)
            if self.tls_cert_file:
                context.load_cert_chain(self.tls_cert_file, self.tls_key_file or None)
        except OSError as error:
            raise UsageError(
                f"tlsCaFile={self.tls_ca_file!r}, tlsCertFile={self.tls_cert_file!r}, "
                f"tlsKeyFile={self.tls_key_file!r} cannot be used here: {error}; the driver "
                "and every executor need them"
            ) from error
        context.check_hostname = self.tls_checks_name and self.tls_verifies
        if not self.tls_verifies:
            context.verify_mode = ssl.CERT_NONE
        return context


def parse_access(given: UserOptions, *, needs_name_server: bool) -> ClusterAccess:
    """Parse the options of addresses, accounts and TLS."""
    named = given.text("nameServer", "namesrvAddr", "kafka.bootstrap.servers")
    if needs_name_server and not named:
        lost = " (Spark loses the options of CREATE TABLE; use CREATE TEMPORARY VIEW)"
        raise UsageError(
            "nameServer is missing; give host:port, or several separated by "
            f"`;`{lost if given.is_empty else ''}"
        )
    access = ClusterAccess(
        name_servers=parse_addresses(named) if named else (),
        access_key=given.text("accessKey"),
        secret_key_file=given.text("secretKeyFile"),
        secret_key_env=given.text("secretKeyEnv"),
        security_token=given.text("securityToken"),
        uses_tls=given.flag("useTls", default=False),
        tls_ca_file=given.text("tlsCaFile"),
        tls_cert_file=given.text("tlsCertFile"),
        tls_key_file=given.text("tlsKeyFile"),
        tls_verifies=given.flag("tlsVerify", default=True),
        tls_checks_name=given.flag("tlsCheckName", default=True),
    )
    if given.has("secretKey"):
        raise UsageError(
            "secretKey would be visible to everyone who sees the plan; put it into a file "
            "(secretKeyFile) or an environment variable (secretKeyEnv) of driver and executors"
        )
    places = [access.secret_key_file, access.secret_key_env]
    if bool(access.access_key) != any(places) or all(places):
        raise UsageError(
            "accessKey and one of secretKeyFile and secretKeyEnv are only valid together"
        )
    return access
